import { useId } from "preact/hooks";
import type { ToolSettings } from "../../api.ts";
import { useFrame } from "../frame.tsx";
import { pastedToken } from "../use-settings.ts";
import { Text } from "./text.tsx";

interface UseTokenProps {
  readonly tool: ToolSettings;
  readonly sandbox: boolean;
  readonly token: string;
  readonly onToken: (token: string) => void;
}

/** A field outside of any form, without a name: no browser offers to keep it, and nothing can send it. */
export function UseToken({ tool, sandbox, token, onToken }: UseTokenProps) {
  const { t } = useFrame();
  const help = useId();
  const shape = pastedToken(token);
  const wrong = shape === "other" || shape === "incomplete";
  return (
    <div class="use-token">
      <label>
        <span>{t("use.token")}</span>
        <input
          type="text"
          autocomplete="off"
          spellcheck={false}
          placeholder="kb_…"
          value={token}
          aria-describedby={help}
          aria-invalid={wrong}
          onInput={(event) => onToken(event.currentTarget.value.trim())}
        />
      </label>
      <div id={help} class="muted small">
        {wrong ? (
          <p class="wrong" role="alert">
            {t(`use.token.${shape}`)}
          </p>
        ) : (
          <p>{t("use.token.help")}</p>
        )}
        <p>
          <Text id={sandbox ? "use.token.sandbox" : "use.token.lost"} values={{ tool: tool.name }} />
        </p>
      </div>
    </div>
  );
}
