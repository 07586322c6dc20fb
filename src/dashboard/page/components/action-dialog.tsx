import { useEffect, useId, useState } from "preact/hooks";
import type { Action } from "../../actions/action.ts";
import type { PlanAnswer, RunAnswer } from "../../api.ts";
import { titleOf } from "../act.ts";
import { useFrame } from "../frame.tsx";
import { Failed, wordsOf } from "../live/failed.ts";
import { Command } from "./copy.tsx";
import { Dialog } from "./dialog.tsx";

interface ActionDialogProps {
  readonly action: Action;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

type Step =
  | { readonly name: "planning" }
  | { readonly name: "asking"; readonly plan: PlanAnswer; readonly busy: boolean }
  | { readonly name: "done"; readonly ran: RunAnswer }
  | { readonly name: "failed" };

const CONFIRM = "keybearer confirm";

/** Shows what an action would change, asks for the digits where it needs them, and says how to undo it. */
export function ActionDialog({ action, onDone, onClose }: ActionDialogProps) {
  const { t, client, live } = useFrame();
  const [step, setStep] = useState<Step>({ name: "planning" });
  const [problem, setProblem] = useState<string | null>(null);
  const explain = (error: unknown) => {
    if (error instanceof Failed && error.kind === "session") live.sessionOver();
    const isGone = error instanceof Failed && error.kind === "gone";
    setProblem(isGone ? t("frame.gone.short") : wordsOf(error));
  };
  const plan = () => {
    setProblem(null);
    setStep({ name: "planning" });
    client.plan(action).then(
      (plan) => setStep({ name: "asking", plan, busy: false }),
      (error: unknown) => {
        setStep({ name: "failed" });
        explain(error);
      },
    );
  };
  useEffect(plan, []);
  const run = async (plan: PlanAnswer, digits: string | null) => {
    setProblem(null);
    setStep({ name: "asking", plan, busy: true });
    try {
      setStep({ name: "done", ran: await client.run(plan.id, digits) });
      onDone();
    } catch (error) {
      explain(error);
      // 403: other digits may do. Otherwise this plan is used up.
      const isOpen = error instanceof Failed && error.status === 403;
      setStep(isOpen ? { name: "asking", plan, busy: false } : { name: "failed" });
    }
  };
  return (
    <Dialog title={titleOf(action, t)} onClose={onClose}>
      {step.name === "planning" ? <p class="muted">{t("frame.loading")}</p> : null}
      {step.name === "asking" ? (
        <Asked plan={step.plan} busy={step.busy} onRun={(digits) => void run(step.plan, digits)} />
      ) : null}
      {step.name === "done" ? <DoneText ran={step.ran} /> : null}
      {problem === null ? null : (
        <p class="wrong" role="alert">
          {problem}
        </p>
      )}
      {step.name === "failed" ? (
        <p>
          <button type="button" class="plain" onClick={plan}>
            {t("frame.again")}
          </button>
        </p>
      ) : null}
    </Dialog>
  );
}

interface AskedProps {
  readonly plan: PlanAnswer;
  readonly busy: boolean;
  readonly onRun: (digits: string | null) => void;
}

function Asked({ plan: { diff, needs_digits: needsDigits, undo }, busy, onRun }: AskedProps) {
  const { t } = useFrame();
  const [digits, setDigits] = useState("");
  const field = useId();
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        onRun(needsDigits ? digits : null);
      }}
    >
      {diff.length === 0 ? <p>{t("act.no-diff")}</p> : <Diff lines={diff} />}
      {undo === null ? (
        <p class="muted">{t("act.no-undo")}</p>
      ) : (
        <p>
          {t("act.undo")} <Command text={undo} />
        </p>
      )}
      {needsDigits ? (
        <>
          <p>
            {t("act.digits.why")} <Command text={CONFIRM} />
          </p>
          <label for={field}>{t("act.digits")}</label>
          <input
            id={field}
            type="text"
            class="digits"
            inputMode="numeric"
            autocomplete="one-time-code"
            pattern="[0-9]{6}"
            maxLength={6}
            required
            value={digits}
            onInput={(event) => setDigits(event.currentTarget.value)}
          />
        </>
      ) : null}
      <p>
        <button type="submit" class="primary" disabled={busy}>
          {t("act.do")}
        </button>
      </p>
    </form>
  );
}

/** The lines of a unified diff; what begins with + or - is also marked by color. */
function Diff({ lines }: { readonly lines: readonly string[] }) {
  return (
    <pre class="diff">
      {lines.map((line) => (
        <span key={line} data-kind={/^[+-]/.test(line) ? line[0] : undefined}>
          {`${line}\n`}
        </span>
      ))}
    </pre>
  );
}

function DoneText({ ran: { undo, note } }: { readonly ran: RunAnswer }) {
  const { t } = useFrame();
  return (
    <div class="stack" role="status">
      <p>{t("act.done")}</p>
      {note === null ? null : <p>{note}</p>}
      {undo === null ? null : (
        <p>
          {t("act.undo")} <Command text={undo} />
        </p>
      )}
    </div>
  );
}
