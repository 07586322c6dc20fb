import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Field, Values } from "../form.ts";
import { useFrame } from "../frame.tsx";
import { Options } from "./panel.tsx";
import { Command } from "./text.tsx";

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** Above the page, until it is closed: by its button, by Escape, or by `onClose`'s caller. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const { t } = useFrame();
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const opener = document.activeElement;
    if (dialog.current?.open === false) dialog.current.showModal();
    const giveBack = () => {
      // What it was opened by may be gone, as the row of a revoked token is.
      const left = opener?.isConnected ? opener : document.querySelector("main");
      if (left instanceof HTMLElement) left.focus();
    };
    // Once it is gone: as long as it is open, nothing below it takes the focus.
    return () => queueMicrotask(giveBack);
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby={heading} onClose={onClose}>
      <div class="dialog-head">
        <h2 id={heading}>{title}</h2>
        <button type="button" onClick={() => dialog.current?.close()}>
          {t("frame.close")}
        </button>
      </div>
      <div class="stack">{children}</div>
    </dialog>
  );
}

interface FormProblem {
  /** null: of no field, or of several. */
  readonly field: string | null;
  readonly text: string;
}

/** `tools.codex.limits.spend: …` is said beside the field limits.spend. */
function besideField(problem: string): FormProblem {
  const [, field = null, text = problem] =
    /^tools\.(?:[\w-]+|".*?")\.([a-z_]+(?:\.[a-z_]+)*)[^:]*: (.*)$/s.exec(problem) ?? [];
  return { field, text };
}

interface FormProps {
  /** What is asked, given what is typed so far. */
  readonly fields: (typed: Values) => readonly Field[];
  /** What to type in a terminal instead; null: the page can do it. */
  readonly command?: ((typed: Values) => string | null) | undefined;
  /** Why what was sent last cannot be done. */
  readonly problem: string | null;
  readonly busy: boolean;
  /** What the button says. */
  readonly submit?: string;
  readonly onSubmit: (values: Values) => void;
}

export function Form({ fields, command, problem, busy, submit, onSubmit }: FormProps) {
  const { t } = useFrame();
  const [typed, setTyped] = useState<Values>({});
  const [checked, setChecked] = useState<readonly FormProblem[]>([]);
  const form = useRef<HTMLFormElement>(null);
  const asked = fields(typed);
  const values = Object.fromEntries(asked.map((field) => [field.name, readValue(field, typed)]));
  const problems = problem === null || checked.length > 0 ? checked : [besideField(problem)];
  const typeInstead = command?.(values) ?? null;
  useEffect(() => {
    form.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
  }, [checked, problem]);
  const send = (event: Event) => {
    event.preventDefault();
    const trimmed = Object.fromEntries(Object.entries(values).map(([name, text]) => [name, text.trim()]));
    const found = asked.flatMap(({ name, check }): FormProblem[] => {
      const text = check?.(trimmed[name] ?? "") ?? null;
      return text === null ? [] : [{ field: name, text }];
    });
    setChecked(found);
    if (found.length === 0 && typeInstead === null) onSubmit(trimmed);
  };
  const general = problems.filter(({ field }) => !asked.some(({ name }) => name === field));
  return (
    <form class="stack" ref={form} noValidate onSubmit={send}>
      <div class="grid">
        {asked.map((field) => (
          <FieldInput
            key={field.name}
            field={field}
            value={values[field.name] ?? ""}
            problem={problems.find(({ field: name }) => name === field.name)?.text ?? null}
            onType={(text) => setTyped((before) => ({ ...before, [field.name]: text }))}
          />
        ))}
      </div>
      {general.map(({ text }) => (
        <p key={text} class="wrong" role="alert">
          {text}
        </p>
      ))}
      {typeInstead === null ? (
        <p>
          <button type="submit" class="primary" disabled={busy}>
            {submit ?? t("form.next")}
          </button>
        </p>
      ) : (
        <p role="status">
          {t("form.terminal")} <Command text={typeInstead} />
        </p>
      )}
    </form>
  );
}

function readValue({ name, initial, choices }: Field, typed: Values): string {
  const text = typed[name] ?? initial ?? "";
  if (choices === undefined) return text;
  const [chosen = ""] = choices.find(([value]) => value === text) ?? choices[0] ?? [];
  return chosen;
}

interface FieldInputProps {
  readonly field: Field;
  readonly value: string;
  readonly problem: string | null;
  readonly onType: (text: string) => void;
}

function FieldInput({ field: { label, hint, choices }, value, problem, onType }: FieldInputProps) {
  const id = useId();
  const shared = {
    id,
    "aria-invalid": problem !== null,
    "aria-describedby": problem === null ? undefined : `${id}-problem`,
  };
  return (
    <div class="field stack">
      <label for={id} class="muted small">
        {label}
      </label>
      {choices === undefined ? (
        <input
          {...shared}
          type="text"
          autocomplete="off"
          spellcheck={false}
          placeholder={hint}
          value={value}
          onInput={(event) => onType(event.currentTarget.value)}
        />
      ) : (
        <select {...shared} value={value} onChange={(event) => onType(event.currentTarget.value)}>
          <Options choices={choices} />
        </select>
      )}
      {problem === null ? null : (
        <p id={`${id}-problem`} class="wrong small" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}
