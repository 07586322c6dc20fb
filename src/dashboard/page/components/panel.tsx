import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import type { Choice } from "../form.ts";

interface PanelProps {
  /** A class, for what is only so in this panel. */
  readonly name: string;
  readonly title: ComponentChildren;
  /** Beside the title. */
  readonly aside?: ComponentChildren;
  readonly children?: ComponentChildren;
}

/** A part of a page under a title. */
export function Panel({ name, title, aside, children }: PanelProps) {
  const heading = useId();
  return (
    <section class={`panel ${name}`} aria-labelledby={heading}>
      <header class="row">
        <h2 id={heading}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

interface FoldProps {
  readonly name?: string;
  readonly title: ComponentChildren;
  /** Made once it is opened. */
  readonly children: () => ComponentChildren;
}

/** What costs something to show, or is long. */
export function Fold({ name, title, children }: FoldProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class={name} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen ? children() : null}
    </details>
  );
}

/** In a word and a color: good, to look at, or bad. */
export function State({ state, children }: { readonly state: string; readonly children: ComponentChildren }) {
  return (
    <span class="state" data-state={state}>
      {children}
    </span>
  );
}

/** A name and what it stands for; null or an empty text: there is none, and it is left out. */
export type Pair = readonly [name: ComponentChildren, value: ComponentChildren];

export function Pairs({ pairs }: { readonly pairs: readonly Pair[] }) {
  return (
    <dl class="pairs">
      {pairs.map(([name, value]) =>
        value === null || value === "" ? null : (
          <div>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ),
      )}
    </dl>
  );
}

/** A large figure, and what is to be said about it. */
export interface Figure {
  readonly name: string;
  readonly value: string;
  readonly note: string;
}

export function Figures({ figures }: { readonly figures: readonly Figure[] }) {
  return (
    <dl class="grid figures">
      {figures.map(({ name, value, note }) => (
        <div key={name}>
          <dt class="muted small">{name}</dt>
          <dd>{value}</dd>
          <dd class="muted small">{note}</dd>
        </div>
      ))}
    </dl>
  );
}

interface SelectProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly choices: readonly (readonly [value: T, text: string])[];
  readonly onChoose: (value: T) => void;
}

export function Select<T extends string>({ label, value, choices, onChoose }: SelectProps<T>) {
  return (
    <label class="row">
      {label}
      <select value={value} onChange={(event) => onChoose(event.currentTarget.value as T)}>
        <Options choices={choices} />
      </select>
    </label>
  );
}

export function Options({ choices }: { readonly choices: readonly Choice[] }) {
  return (
    <>
      {choices.map(([each, text]) => (
        <option key={each} value={each}>
          {text}
        </option>
      ))}
    </>
  );
}
