import { useEffect, useState } from "preact/hooks";
import { OUTCOMES, SELECTED_NAMES } from "../../../../usage/reports/names.ts";
import { MEASURES, nameInWords } from "../../components/chart-layers.ts";
import { Select } from "../../components/panel.tsx";
import { useFrame } from "../../frame.tsx";
import { binFor, binsFor, datesOf, isDate, PRESETS, type Span, shifted } from "./period.ts";
import { changed, hrefTo, type View, withFilter } from "./view.ts";
import { barTitle } from "./words.ts";

interface ControlsProps {
  readonly view: View;
  readonly span: Span;
  readonly now: number;
  readonly onView: (view: View) => void;
}

/** Which period, how it is cut and measured, and which records. */
export function Controls({ view, span, now, onView }: ControlsProps) {
  const { t } = useFrame();
  return (
    <div class="row usage-controls">
      <Choice
        label={t("usage.period")}
        options={PRESETS}
        chosen={view.period.kind === "custom" ? null : view.period.kind}
        nameOf={(kind) => t(`usage.period.${kind}`)}
        viewOf={(kind) => changed(view, { period: { kind } })}
      />
      <Dates view={view} span={span} now={now} onView={onView} />
      <Choice
        label={t("usage.measure")}
        options={MEASURES}
        chosen={view.measure}
        nameOf={(measure) => t(`usage.measure.${measure}`)}
        viewOf={(measure) => changed(view, { measure })}
      />
      <Choice
        label={t("usage.bin")}
        options={binsFor(span)}
        chosen={binFor(span, view.bin)}
        nameOf={(bin) => t(`usage.bin.${bin}`)}
        viewOf={(bin) => changed(view, { bin })}
      />
      <Choice
        label={t("usage.by")}
        options={SELECTED_NAMES}
        chosen={view.by}
        nameOf={(by) => t(`usage.by.${by}`)}
        viewOf={(by) => changed(view, { by, sort: null })}
      />
      <Select
        label={t("word.outcome")}
        hasHiddenLabel
        value={view.end ?? ""}
        choices={[["", t("usage.end.all")], ...OUTCOMES.map((end) => [end, t(`outcome.${end}`)] as const)]}
        onChoose={(end) => onView(changed(view, { end: end === "" ? null : end }))}
      />
      <Search search={view.search} onSearch={(search) => onView(changed(view, { search }))} />
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

interface ChoiceProps<T extends string> {
  readonly label: string;
  readonly options: readonly T[];
  readonly chosen: T | null;
  readonly nameOf: (option: T) => string;
  readonly viewOf: (option: T) => View;
}

/** One of a few, side by side. Each is a link, because what is chosen is in the address bar. */
function Choice<T extends string>({ label, options, chosen, nameOf, viewOf }: ChoiceProps<T>) {
  return (
    <nav class="row choice" aria-label={label}>
      {options.map((option) => (
        <a key={option} href={hrefTo(viewOf(option))} aria-current={option === chosen ? "true" : undefined}>
          {nameOf(option)}
        </a>
      ))}
    </nav>
  );
}

function Dates({ view, span, now, onView }: ControlsProps) {
  const { t } = useFrame();
  const { from, to } = datesOf(span);
  const choose = (dates: { from: string; to: string }) => {
    // While a date is typed it is none yet.
    if (isDate(dates.from) && isDate(dates.to) && dates.from <= dates.to)
      onView(changed(view, { period: { kind: "custom", ...dates } }));
  };
  const arrow = (direction: -1 | 1, label: string, sign: string) => (
    <a href={hrefTo(changed(view, { period: shifted(span, direction) }))} aria-label={label}>
      {sign}
    </a>
  );
  const field = (label: string, name: "from" | "to", bounds: { min?: string; max?: string }) => (
    <input
      type="date"
      aria-label={label}
      value={name === "from" ? from : to}
      {...bounds}
      onChange={(event) => choose({ from, to, [name]: event.currentTarget.value })}
    />
  );
  return (
    <div class="row choice dates">
      {arrow(-1, t("usage.period.earlier"), "←")}
      {field(t("usage.period.from"), "from", { max: to })}
      {field(t("usage.period.to"), "to", { min: from })}
      {span.until > now ? null : arrow(1, t("usage.period.later"), "→")}
    </div>
  );
}

/** What is selected, each with a link to the page without it. */
export function Filters({ view }: { readonly view: View }) {
  const { t } = useFrame();
  const chips = SELECTED_NAMES.flatMap((by) => {
    const name = view.filters[by];
    if (name === undefined) return [];
    const what = t("usage.filter.chip", { by: t(`usage.by.${by}`), name: nameInWords(name, by, t) });
    return [{ what, without: withFilter(view, by, null) }];
  });
  if (view.end !== null)
    chips.push({ what: t(`outcome.${view.end}`), without: changed(view, { end: null }) });
  if (view.search !== "") chips.push({ what: `“${view.search}”`, without: changed(view, { search: "" }) });
  if (view.bar !== null) chips.push({ what: barTitle(view.bar), without: changed(view, { bar: null }) });
  if (chips.length === 0) return null;
  return (
    <nav class="row" aria-label={t("usage.filters")}>
      {chips.map(({ what, without }) => (
        <a key={what} class="tag" href={hrefTo(without)} aria-label={t("usage.filter.remove", { what })}>
          <span>{what}</span>
          <span aria-hidden="true">×</span>
        </a>
      ))}
      <a href={hrefTo(changed(view, { filters: {}, end: null, search: "", bar: null }))}>
        {t("usage.filter.all")}
      </a>
    </nav>
  );
}
