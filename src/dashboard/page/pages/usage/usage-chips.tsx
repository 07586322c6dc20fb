import { useFrame } from "../../frame.tsx";
import { nameInWords } from "./usage-labels.ts";
import { DIMENSIONS, type View, withoutFilter } from "./usage-view.ts";

interface ChipsProps {
  readonly view: View;
  /** Which bar's records are listed; null: all. */
  readonly bar: string | null;
  readonly onView: (view: View) => void;
}

/** The active filters, each with a button to remove it. The filter by ending applies to the list only, and is shown there. */
export function UsageChips({ view, bar, onView }: ChipsProps) {
  const { t } = useFrame();
  const chips = DIMENSIONS.flatMap((name) => {
    const value = view.filters[name];
    if (value === undefined) return [];
    const words = { dimension: t(`usage.by.${name}`), name: nameInWords(value, name, t) };
    return [{ name, words: t("usage.filter.chip", words) }];
  });
  if (chips.length === 0 && bar === null) return null;
  return (
    <section class="usage-chips" aria-label={t("usage.filters")}>
      {chips.map(({ name, words }) => (
        <Chip key={name} words={words} onRemove={() => onView(withoutFilter(view, name))} />
      ))}
      {bar === null ? null : <Chip words={bar} onRemove={() => onView({ ...view, at: null })} />}
      <button type="button" class="quiet" onClick={() => onView({ ...view, filters: {}, at: null })}>
        {t("usage.filter.all")}
      </button>
    </section>
  );
}

export function Chip({ words, onRemove }: { readonly words: string; readonly onRemove: () => void }) {
  const { t } = useFrame();
  return (
    <button
      type="button"
      class="chip"
      aria-label={t("usage.filter.remove", { what: words })}
      onClick={onRemove}
    >
      <span class="chip-words">{words}</span>
      <span aria-hidden="true">×</span>
    </button>
  );
}
