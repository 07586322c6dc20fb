import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { advice } from "../../../core/advice.ts";
import type { Action } from "../../actions/actions.ts";
import type { PlanAnswer, RunAnswer } from "../../api.ts";
import { type ActionForm, type Field, isForm, type Values } from "../form.ts";
import { useFrame, useProblem } from "../frame.tsx";
import { moreInWords } from "../limits.ts";
import { Failed } from "../live/client.ts";
import { findMessage, type Translate } from "../messages/messages.ts";
import { Dialog, Form } from "./dialog.tsx";
import { Command, Text } from "./text.tsx";

interface ActionButtonProps {
  readonly action: Action | ActionForm;
  readonly look?: "primary";
  /** What it acts on, for who does not see what it stands beside. */
  readonly what?: string;
  readonly children: ComponentChildren;
}

/** Opens the dialog of an action. */
export function ActionButton({ action, look, what, children }: ActionButtonProps) {
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

/** Shows what an action would change, asks for the digits where it needs them, and says how to undo it. */
export function ActionDialog({ asked, onClose }: ActionDialogProps) {
  const { t, client, live } = useFrame();
  const problemOf = useProblem();
  const form = isForm(asked) ? asked : null;
  // null: the form is still filled in.
  const [action, setAction] = useState(isForm(asked) ? null : asked);
  // null: it is not there yet, or used up.
  const [plan, setPlan] = useState<PlanAnswer | null>(null);
  const [ran, setRan] = useState<RunAnswer | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const attempt = async (work: () => Promise<void>) => {
    setProblem(null);
    setBusy(true);
    try {
      await work();
    } catch (error) {
      setProblem(problemOf(error));
      // 403: other digits may do. Otherwise this plan is used up.
      if (!(error instanceof Failed && error.status === 403)) setPlan(null);
    }
    setBusy(false);
  };
  const prepare = (wanted: Action) =>
    attempt(async () => {
      setPlan(await client.plan(wanted));
      setAction(wanted);
    });
  const run = ({ id }: PlanAnswer, { digits }: Values) =>
    attempt(async () => {
      setRan(await client.run(id, digits ?? null));
      live.changed();
    });
  useEffect(() => {
    if (action !== null) void prepare(action);
  }, []);
  const submit = (values: Values) => {
    const wanted = form?.actionFor(values) ?? null;
    if (wanted === null) setProblem(t("form.unchanged"));
    else void prepare(wanted);
  };
  return (
    <Dialog title={action === null ? (form?.title ?? "") : titleOf(action, t)} onClose={onClose}>
      {ran !== null ? (
        <div class="stack" role="status">
          <p>{t("act.done")}</p>
          {ran.note === null ? null : <p>{noteInWords(ran.note, t)}</p>}
          {action?.kind === "token" || action?.kind === "create" ? <Text id="act.token.printed" /> : null}
          <Undo command={ran.undo} />
        </div>
      ) : plan !== null ? (
        <Planned plan={plan} problem={problem} busy={busy} onRun={(values) => void run(plan, values)} />
      ) : form !== null && action === null ? (
        <Form fields={form.fields} command={form.command} problem={problem} busy={busy} onSubmit={submit} />
      ) : problem === null ? (
        <p class="muted">{t("frame.loading")}</p>
      ) : (
        <>
          <p class="wrong" role="alert">
            {problem}
          </p>
          <p>
            <button type="button" onClick={() => action !== null && void prepare(action)}>
              {t("frame.again")}
            </button>
          </p>
        </>
      )}
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
  if ("count" in action) values.n = action.count;
  return t(`act.${action.kind}`, values);
}

interface PlannedProps {
  readonly plan: PlanAnswer;
  readonly problem: string | null;
  readonly busy: boolean;
  readonly onRun: (values: Values) => void;
}

function Planned({ plan: { diff, needs_digits: needsDigits, undo }, problem, busy, onRun }: PlannedProps) {
  const { t } = useFrame();
  const digits: Field = {
    name: "digits",
    label: t("act.digits"),
    check: (text) => (/^\d{6}$/.test(text) ? null : t("form.wrong.digits")),
  };
  return (
    <>
      {diff.length === 0 ? <p>{t("act.no-diff")}</p> : <Diff lines={diff} />}
      {undo === null ? <p class="muted">{t("act.no-undo")}</p> : <Undo command={undo} />}
      {needsDigits ? (
        <p>
          {t("act.digits.why")} <Command text={advice.confirm()} />
        </p>
      ) : null}
      <Form
        fields={() => (needsDigits ? [digits] : [])}
        problem={problem}
        busy={busy}
        submit={t("act.do")}
        onSubmit={onRun}
      />
    </>
  );
}

function Undo({ command }: { readonly command: string | null }) {
  const { t } = useFrame();
  if (command === null) return null;
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
        <span key={line} data-kind={line[0]}>
          {`${line}\n`}
        </span>
      ))}
    </pre>
  );
}
