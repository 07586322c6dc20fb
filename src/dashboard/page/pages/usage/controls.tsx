import { useEffect, useState } from "preact/hooks";
import { OUTCOMES, SELECTED_NAMES } from "../../../../usage/reports/names.ts";
import { MEASURES, nameInWords } from "../../components/chart-layers.ts";
import { Select } from "../../components/panel.tsx";
import type { Choice } from "../../form.ts";
import { useFrame } from "../../frame.tsx";
import { binFor, binsFor, datesOf, isDate, PRESETS, type Span } from "./period.ts";
import { type Change, hrefTo, type Parameter, type View } from "./view.ts";
import { barTitle } from "./words.ts";

interface ControlsProps {
  readonly view: View;
  readonly span: Span;
  readonly onChange: (change: Change) => void;
}

/** Which period, how it is cut and measured, and which records. */
export function Controls({ view, span, onChange }: ControlsProps) {
  const { t } = useFrame();
  /** One of a few, side by side. Each is a link, because what is chosen is in the address. */
  const choice = (name: "period" | "show" | "bin" | "by", chosen: string, choices: readonly Choice[]) => (
    <nav class="row choice" aria-label={t(`usage.${name}`)}>
      {choices.map(([value, text]) => (
        <a
          key={value}
          href={hrefTo(view, { [name]: value })}
          aria-current={value === chosen ? "true" : undefined}
        >
          {text}
        </a>
      ))}
    </nav>
  );
  const periods = PRESETS.map((each) => [each, t(`usage.period.${each}`)] as const);
  const measures = MEASURES.map((each) => [each, t(`usage.show.${each}`)] as const);
  const bins = binsFor(span).map((each) => [each, t(`usage.bin.${each}`)] as const);
  const names = SELECTED_NAMES.map((each) => [each, t(`usage.by.${each}`)] as const);
  const ends = OUTCOMES.map((each) => [each, t(`outcome.${each}`)] as const);
  return (
    <div class="row usage-controls">
      {choice("period", view.period, periods)}
      <Dates span={span} onChange={onChange} />
      {choice("show", view.measure, measures)}
      {choice("bin", binFor(span, view.bin), bins)}
      {choice("by", view.by, names)}
      <Select
        label={t("word.outcome")}
        value={view.end ?? ""}
        choices={[["", t("usage.end.all")], ...ends]}
        onChoose={(end) => onChange({ end: end === "" ? null : end })}
      />
      <Search
        search={view.search}
        onSearch={(search) => onChange({ search: search === "" ? null : search })}
      />
    </div>
  );
}

interface SearchProps {
  readonly search: string;
  readonly onSearch: (search: string) => void;
}

/** It searches with Enter, or when the field is left: each search reads many records. */
function Search({ search, onSearch }: SearchProps) {
  const { t } = useFrame();
  // The page is drawn again while one types.
  const [text, setText] = useState(search);
  useEffect(() => setText(search), [search]);
  const submit = (wanted: string) => wanted.trim() !== search && onSearch(wanted.trim());
  return (
    <input
      type="search"
      aria-label={t("word.search")}
      placeholder={t("word.search")}
      maxLength={300}
      value={text}
      onInput={({ currentTarget: { value } }) => {
        setText(value);
        if (value === "") submit("");
      }}
      onChange={(event) => submit(event.currentTarget.value)}
    />
  );
}

function Dates({ span, onChange }: Pick<ControlsProps, "span" | "onChange">) {
  const { t } = useFrame();
  const { from, to } = datesOf(span);
  const choose = (first: string, last: string) => {
    // While a date is typed it is none yet.
    if (isDate(first) && isDate(last) && first <= last) onChange({ period: `${first}..${last}` });
  };
  return (
    <div class="row choice dates">
      <input
        type="date"
        aria-label={t("usage.period.from")}
        value={from}
        max={to}
        onChange={(event) => choose(event.currentTarget.value, to)}
      />
      <input
        type="date"
        aria-label={t("usage.period.to")}
        value={to}
        min={from}
        onChange={(event) => choose(from, event.currentTarget.value)}
      />
    </div>
  );
}

/** What is selected, each with a link to the page without it. */
export function Filters({ view }: { readonly view: View }) {
  const { t } = useFrame();
  const { filters, end, search, bar } = view;
  const chips = SELECTED_NAMES.flatMap((by): [Parameter, string][] => {
    const name = filters[by];
    if (name === undefined) return [];
    return [[by, t("usage.filter.chip", { by: t(`usage.by.${by}`), name: nameInWords(name, by, t) })]];
  });
  if (end !== null) chips.push(["end", t(`outcome.${end}`)]);
  if (search !== "") chips.push(["search", `“${search}”`]);
  if (bar !== null) chips.push(["bar", barTitle(bar)]);
  if (chips.length === 0) return null;
  return (
    <nav class="row" aria-label={t("usage.filters")}>
      {chips.map(([name, what]) => (
        <a
          key={name}
          class="tag"
          href={hrefTo(view, { [name]: null })}
          aria-label={t("usage.filter.remove", { what })}
        >
          <span>{what}</span>
          <span aria-hidden="true">×</span>
        </a>
      ))}
      <a href={hrefTo(view, Object.fromEntries(chips.map(([name]) => [name, null])))}>
        {t("usage.filter.all")}
      </a>
    </nav>
  );
}
