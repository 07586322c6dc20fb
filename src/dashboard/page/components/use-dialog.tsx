import { useEffect, useId, useRef, useState } from "preact/hooks";
import { chooseModels, SHELLS, type Target } from "../../../clients/snippets.ts";
import { CLIENTS, findClient, guessClients, type Shell } from "../../../clients/table.ts";
import type { ToolSettings, ToolsAnswer } from "../../api.ts";
import { type PageProps, useFrame } from "../frame.tsx";
import { useAnswer } from "../use-answer.ts";
import { pastedToken, shellOf } from "../use-settings.ts";
import { Text } from "./text.tsx";
import { UseText } from "./use-text.tsx";
import { UseToken } from "./use-token.tsx";

interface UseDialogProps extends Pick<PageProps, "query" | "setQuery"> {
  readonly tool: ToolSettings;
  readonly answer: ToolsAnswer;
  readonly onClose: () => void;
}

/** The settings of a chosen program for one tool. The token is kept nowhere but in this dialog, while it is open. */
export function UseDialog({ tool, answer, query, setQuery, onClose }: UseDialogProps) {
  const { t } = useFrame();
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => {
    if (dialog.current?.open === false) dialog.current.showModal();
  }, []);
  const guessed = guessClients(tool.name);
  const client = findClient(query.get("for") ?? "") ?? (guessed.length === 1 ? (guessed[0] ?? null) : null);
  const [token, setToken] = useState("");
  const [shell, setShell] = useState<Shell>(() => shellOf(navigator.userAgent));
  const [model, setModel] = useState<string | null>(tool.model);
  const listed = useListedModels(tool);
  const choose = (id: string) => {
    const next = new URLSearchParams(query);
    next.set("for", id);
    setQuery(next, "replace");
  };
  const target: Target = {
    origin: answer.origin,
    token: pastedToken(token) === "complete" ? token : null,
    ...(client === null ? { model } : chooseModels(client, listed.names, model)),
  };
  return (
    <dialog ref={dialog} class="use" aria-labelledby={title} onClose={onClose}>
      <div class="use-head">
        <h2 id={title}>{t("use.title", { tool: tool.name })}</h2>
        <button type="button" class="plain" onClick={() => dialog.current?.close()}>
          {t("frame.close")}
        </button>
      </div>
      <div class="use-choices">
        <label>
          <span>{t("use.client")}</span>
          <select value={client?.id ?? ""} onChange={(event) => choose(event.currentTarget.value)}>
            {client === null ? <option value="">{t("use.client.choose")}</option> : null}
            {[...guessed, ...CLIENTS.filter((each) => !guessed.includes(each))].map(
              ({ id, name, unusable }) => (
                <option key={id} value={id}>
                  {unusable === null ? name : t("use.client.cannot", { name })}
                </option>
              ),
            )}
          </select>
        </label>
        {client === null || client.unusable !== null ? null : (
          <>
            <ModelChoice model={target.model} listed={listed.names} onChoose={setModel} />
            <label>
              <span>{t("use.shell")}</span>
              <select value={shell} onChange={(event) => setShell(event.currentTarget.value as Shell)}>
                {SHELLS.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>
            </label>
          </>
        )}
      </div>
      {client === null || listed.words === null ? null : (
        <p class="muted small" role="status">
          {listed.words}
        </p>
      )}
      <UseToken tool={tool} sandbox={answer.sandbox} token={token} onToken={setToken} />
      {client === null ? (
        <p class="empty">
          <Text id="use.choose" values={{ tool: tool.name }} />
        </p>
      ) : (
        <UseText tool={tool} client={client} target={target} shell={shell} />
      )}
    </dialog>
  );
}

/** What the gateway lists for this tool; words while it is asked, and where it does not tell. */
function useListedModels({ name, enabled }: ToolSettings): {
  readonly names: readonly string[];
  readonly words: string | null;
} {
  const { t, client } = useFrame();
  const asked = useAnswer(
    (signal) => client.get("/api/models", new URLSearchParams({ tool: name }), signal),
    [name, enabled],
  );
  const found = asked.value?.models ?? null;
  const names = (found?.models ?? []).filter((model) => model.in_group).map(({ id }) => id);
  if (asked.busy) return { names, words: t("use.model.asking") };
  const why = asked.failure ?? found?.problem?.why ?? null;
  return { names, words: why === null ? null : t("use.model.failed", { why }) };
}

interface ModelChoiceProps {
  readonly model: string | null;
  readonly listed: readonly string[];
  readonly onChoose: (model: string) => void;
}

function ModelChoice({ model, listed, onChoose }: ModelChoiceProps) {
  const { t } = useFrame();
  const names = model === null || listed.includes(model) ? listed : [model, ...listed];
  if (names.length === 0) return null;
  return (
    <label>
      <span>{t("use.model")}</span>
      <select value={model ?? ""} onChange={(event) => onChoose(event.currentTarget.value)}>
        {names.map((each) => (
          <option key={each}>{each}</option>
        ))}
      </select>
    </label>
  );
}
