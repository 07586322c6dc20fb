import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { ToolSettings } from "../../api.ts";
import { useFrame } from "../frame.tsx";
import { Failed, wordsOf } from "../live/failed.ts";

interface ToolSwitchProps {
  readonly tool: ToolSettings;
  /** Told what happened, in words. */
  readonly onSwitched: (words: string) => void;
}

/** Disables or enables a tool, after asking once, in the place of the button. */
export function ToolSwitch({ tool, onSwitched }: ToolSwitchProps) {
  const { t, client, live } = useFrame();
  const [step, setStep] = useState<"idle" | "asking" | "busy">("idle");
  const [said, setSaid] = useState<string | null>(null);
  const verb = tool.enabled ? "disable" : "enable";
  const button = useRef<HTMLButtonElement>(null);
  const returns = useRef(false);
  useEffect(() => {
    if (step !== "idle" || !returns.current) return;
    returns.current = false;
    button.current?.focus();
  }, [step]);
  const end = (words: string | null) => {
    returns.current = true;
    setSaid(words);
    setStep("idle");
  };
  const act = async () => {
    setStep("busy");
    try {
      const { in_force: inForce } = await client.setEnabled(tool.name, !tool.enabled);
      end(inForce ? null : t("tools.switch.slow"));
      onSwitched(t(`tools.${verb}d.done`, { tool: tool.name }));
    } catch (error) {
      if (error instanceof Failed && error.kind === "session") live.sessionOver();
      const gone = error instanceof Failed && error.kind === "gone";
      end(gone ? t("frame.gone.short") : wordsOf(error));
    }
  };
  if (step !== "idle")
    return <Asking tool={tool} busy={step === "busy"} onYes={() => void act()} onNo={() => end(null)} />;
  return (
    <>
      <button ref={button} type="button" class="plain" onClick={() => setStep("asking")}>
        {t(`tools.${verb}`)}
        <span class="visually-hidden"> {tool.name}</span>
      </button>
      {said === null ? null : (
        <p class="small" role="alert">
          {said}
        </p>
      )}
    </>
  );
}

interface AskingProps {
  readonly tool: ToolSettings;
  readonly busy: boolean;
  readonly onYes: () => void;
  readonly onNo: () => void;
}

function Asking({ tool, busy, onYes, onNo }: AskingProps) {
  const { t } = useFrame();
  const verb = tool.enabled ? "disable" : "enable";
  const question = useId();
  const no = useRef<HTMLButtonElement>(null);
  useEffect(() => no.current?.focus(), []);
  return (
    <fieldset
      class="asking"
      disabled={busy}
      aria-labelledby={question}
      onKeyDown={(event) => {
        if (event.key === "Escape") onNo();
      }}
    >
      <p id={question}>{busy ? t("tools.switch.busy") : t(`tools.${verb}.ask`, { tool: tool.name })}</p>
      <div class="row">
        <button type="button" class={tool.enabled ? "plain danger" : "primary"} onClick={onYes}>
          {t(`tools.${verb}.yes`, { tool: tool.name })}
        </button>
        <button ref={no} type="button" class="plain" onClick={onNo}>
          {t("frame.cancel")}
        </button>
      </div>
    </fieldset>
  );
}
