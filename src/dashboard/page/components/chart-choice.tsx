import { useId } from "preact/hooks";

interface ChoiceProps<T extends string> {
  readonly label: string;
  /** The label is seen, not only heard. */
  readonly shown?: boolean;
  readonly options: readonly T[];
  readonly chosen: T | null;
  readonly nameOf: (option: T) => string;
  readonly onChoose: (option: T) => void;
}

/** One of a few, side by side: radio buttons, which the keyboard and a screen reader know. */
export function Choice<T extends string>(props: ChoiceProps<T>) {
  const { label, shown = false, options, chosen, nameOf, onChoose } = props;
  const name = useId();
  return (
    <fieldset class="choice">
      <legend class={shown ? "muted small" : "visually-hidden"}>{label}</legend>
      {options.map((option) => (
        <label key={option}>
          <input type="radio" name={name} checked={option === chosen} onChange={() => onChoose(option)} />
          <span>{nameOf(option)}</span>
        </label>
      ))}
    </fieldset>
  );
}
