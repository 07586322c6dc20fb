import type { ComponentChildren } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import { advice } from "../../../core/advice.ts";
import type { Action } from "../../actions/action.ts";
import type { PlanAnswer, RunAnswer } from "../../api.ts";
import { type ActionForm, isForm, type Values } from "../form.ts";
import { useFrame, useProblem } from "../frame.tsx";
import { moreInWords } from "../limits.ts";
import { Failed } from "../live/client.ts";
import { findMessage, type Translate } from "../messages/messages.ts";
import { Dialog, Form, type FormProblem } from "./dialog.tsx";
import { Command, Text } from "./text.tsx";

interface ActionButtonProps {
  readonly action: Action | ActionForm;
  readonly look?: "plain" | "plain danger" | "primary";
  /** What it acts on, for who does not see what it stands beside. */
  readonly what?: string;
  readonly children: ComponentChildren;
}

/** Opens the dialog of an action. */
export function ActionButton({ action, look = "plain", what, children }: ActionButtonProps) {
  const { act } = useFrame();
  return (
    <button type="button" class={look} onClick={() => act(action)}>
      {children}
      {what === undefined ? null : <span class="visually-hidden"> {what}</span>}
    </button>
  );
}

interface ActionDialogProps {
  readonly asked: Action | ActionForm;
  readonly onClose: () => void;
}

type Step =
  | { readonly name: "filling" | "planning" | "failed" }
  | { readonly name: "asking"; readonly plan: PlanAnswer; readonly busy: boolean }
  | { readonly name: "done"; readonly ran: RunAnswer };

/** Shows what an action would change, asks for the digits where it needs them, and says how to undo it. */
export function ActionDialog({ asked, onClose }: ActionDialogProps) {
  const { t, client, live } = useFrame();
  const problemOf = useProblem();
  const form = isForm(asked) ? asked : null;
  const [action, setAction] = useState(isForm(asked) ? null : asked);
  const [step, setStep] = useState<Step>({ name: form === null ? "planning" : "filling" });
  const [problem, setProblem] = useState<string | null>(null);
  const plan = async (wanted: Action) => {
    setProblem(null);
    setStep({ name: "planning" });
    try {
      const plan = await client.plan(wanted);
      setAction(wanted);
      setStep({ name: "asking", plan, busy: false });
    } catch (error) {
      setStep({ name: form === null ? "failed" : "filling" });
      setProblem(problemOf(error));
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
      live.changed();
    } catch (error) {
      setProblem(problemOf(error));
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
          problem={problem === null ? null : besideField(problem)}
          busy={step.name === "planning"}
          onSubmit={submit}
        />
      ) : null}
      {step.name === "planning" && !isFilling ? <p class="muted">{t("frame.loading")}</p> : null}
      {step.name === "asking" ? (
        <Asked plan={step.plan} busy={step.busy} onRun={(digits) => void run(step.plan, digits)} />
      ) : null}
      {step.name === "done" ? (
        <div class="stack" role="status">
          <p>{t("act.done")}</p>
          {step.ran.note === null ? null : <p>{noteInWords(step.ran.note, t)}</p>}
          {action?.kind === "token" || action?.kind === "create" ? <Text id="act.token.printed" /> : null}
          {step.ran.undo === null ? null : <Undo command={step.ran.undo} />}
        </div>
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

/** What has no code is what a console says. */
function noteInWords(note: string, t: Translate): string {
  const id = findMessage(`note.${note}`);
  return id === null ? note : t(id);
}

/** What an action does. */
function titleOf(action: Action, t: Translate): string {
  const names = Object.entries(action).filter(([, value]) => typeof value === "string");
  const values: Record<string, string | number> = Object.fromEntries(names);
  if ("amount" in action) values.amount = moreInWords(action.limit, action.amount, t);
  if ("alarm" in action) {
    values.key = action.alarm.key ?? "";
    values.n = action.alarm.count ?? 0;
  }
  return t(`act.${action.kind}`, values);
}

/** `tools.codex.limits.spend: …` is said beside the field limits.spend. */
function besideField(problem: string): FormProblem {
  const [, field = null, text = problem] =
    /^tools\.(?:[\w-]+|".*?")\.([a-z_]+(?:\.[a-z_]+)*)[^:]*: (.*)$/s.exec(problem) ?? [];
  return { field, text };
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
      {undo === null ? <p class="muted">{t("act.no-undo")}</p> : <Undo command={undo} />}
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

function Undo({ command }: { readonly command: string }) {
  const { t } = useFrame();
  return (
    <p>
      {t("act.undo")} <Command text={command} />
    </p>
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
