import { useEffect, useId, useState } from "preact/hooks";
import { advice } from "../../../core/advice.ts";
import type { Action } from "../../actions/action.ts";
import type { PlanAnswer, RunAnswer } from "../../api.ts";
import { titleOf } from "../act.ts";
import { type ActionForm, isForm, type Values } from "../action-form.ts";
import { useFrame } from "../frame.tsx";
import { Failed, wordsOf } from "../live/failed.ts";
import { Command } from "./copy.tsx";
import { Dialog } from "./dialog.tsx";
import { Form, type FormProblem } from "./form.tsx";
import { Text } from "./text.tsx";

interface ActionDialogProps {
  readonly asked: Action | ActionForm;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

type Step =
  | { readonly name: "filling" | "planning" | "failed" }
  | { readonly name: "asking"; readonly plan: PlanAnswer; readonly busy: boolean }
  | { readonly name: "done"; readonly ran: RunAnswer };

/** Shows what an action would change, asks for the digits where it needs them, and says how to undo it. */
export function ActionDialog({ asked, onDone, onClose }: ActionDialogProps) {
  const { t, client, live } = useFrame();
  const form = isForm(asked) ? asked : null;
  const [action, setAction] = useState(isForm(asked) ? null : asked);
  const [step, setStep] = useState<Step>({ name: form === null ? "planning" : "filling" });
  const [problem, setProblem] = useState<string | null>(null);
  const explain = (error: unknown) => {
    if (error instanceof Failed && error.kind === "session") live.sessionOver();
    const isGone = error instanceof Failed && error.kind === "gone";
    setProblem(isGone ? t("frame.gone.short") : wordsOf(error));
  };
  const plan = async (wanted: Action) => {
    setProblem(null);
    setStep({ name: "planning" });
    try {
      const plan = await client.plan(wanted);
      setAction(wanted);
      setStep({ name: "asking", plan, busy: false });
    } catch (error) {
      setStep({ name: form === null ? "failed" : "filling" });
      explain(error);
    }
  };
  useEffect(() => {
    if (action !== null) void plan(action);
  }, []);
  const submit = (values: Values) => {
    const wanted = form?.actionFor(values) ?? null;
    if (wanted === null) setProblem(t("form.unchanged"));
    else void plan(wanted);
  };
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
  // The form stays while its action is planned, so that nothing that was typed is lost.
  const isFilling = form !== null && (step.name === "filling" || step.name === "planning");
  return (
    <Dialog title={action === null ? (form?.title ?? "") : titleOf(action, t)} onClose={onClose}>
      {isFilling ? (
        <Form
          fields={form.fields}
          command={form.command}
          problem={problem === null ? null : problemOf(problem)}
          busy={step.name === "planning"}
          onSubmit={submit}
        />
      ) : null}
      {step.name === "planning" && !isFilling ? <p class="muted">{t("frame.loading")}</p> : null}
      {step.name === "asking" ? (
        <Asked plan={step.plan} busy={step.busy} onRun={(digits) => void run(step.plan, digits)} />
      ) : null}
      {step.name === "done" ? (
        <DoneText ran={step.ran} hasToken={action?.kind === "token" || action?.kind === "create"} />
      ) : null}
      {problem === null || isFilling ? null : (
        <p class="wrong" role="alert">
          {problem}
        </p>
      )}
      {step.name === "failed" && action !== null ? (
        <p>
          <button type="button" class="plain" onClick={() => void plan(action)}>
            {t("frame.again")}
          </button>
        </p>
      ) : null}
    </Dialog>
  );
}

/** `tools.codex.limits.spend: …` is said beside the field limits.spend. */
function problemOf(problem: string): FormProblem {
  const [, field = null, text = problem] =
    /^tools\.(?:[\w-]+|".*?")\.([a-z_]+(?:\.[a-z_]+)*)[^:]*: (.*)$/s.exec(problem) ?? [];
  return { field, text: field === null ? problem : text };
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
            {t("act.digits.why")} <Command text={advice.confirm()} />
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

interface DoneTextProps {
  readonly ran: RunAnswer;
  readonly hasToken: boolean;
}

function DoneText({ ran: { undo, note }, hasToken }: DoneTextProps) {
  const { t } = useFrame();
  return (
    <div class="stack" role="status">
      <p>{t("act.done")}</p>
      {note === null ? null : <p>{note}</p>}
      {hasToken ? (
        <p>
          <Text id="act.token.printed" />
        </p>
      ) : null}
      {undo === null ? null : (
        <p>
          {t("act.undo")} <Command text={undo} />
        </p>
      )}
    </div>
  );
}
