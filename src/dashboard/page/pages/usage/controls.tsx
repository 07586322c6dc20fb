import { useEffect, useState } from "preact/hooks";
import { OUTCOMES, type Outcome, SELECTED_NAMES } from "../../../../usage/reports/names.ts";
import { useFrame } from "../../frame.tsx";
import { binFor, binsFor, datesOf, isDate, PRESETS, type Span, shifted } from "./period.ts";
import { changed, hrefTo, MEASURES, type View, withFilter } from "./view.ts";
import { barTitle, nameInWords } from "./words.ts";

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
    <div class="usage-controls">
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
      <label>
        <span class="visually-hidden">{t("usage.end")}</span>
        <select
          value={view.end ?? ""}
          onChange={({ currentTarget: { value } }) =>
            onView(changed(view, { end: value === "" ? null : (value as Outcome) }))
          }
        >
          <option value="">{t("usage.end.all")}</option>
          {OUTCOMES.map((end) => (
            <option key={end} value={end}>
              {t(`outcome.${end}`)}
            </option>
          ))}
        </select>
      </label>
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
      aria-label={t("usage.search")}
      placeholder={t("usage.search")}
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
    <nav class="choice" aria-label={label}>
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
  const arrow = (direction: -1 | 1) => hrefTo(changed(view, { period: shifted(span, direction) }));
  return (
    <div class="usage-dates">
      <a href={arrow(-1)} aria-label={t("usage.period.earlier")}>
        ←
      </a>
      <input
        type="date"
        aria-label={t("usage.period.from")}
        value={from}
        max={to}
        onChange={(event) => choose({ from: event.currentTarget.value, to })}
      />
      <input
        type="date"
        aria-label={t("usage.period.to")}
        value={to}
        min={from}
        onChange={(event) => choose({ from, to: event.currentTarget.value })}
      />
      {span.until > now ? null : (
        <a href={arrow(1)} aria-label={t("usage.period.later")}>
          →
        </a>
      )}
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
        <a key={what} class="chip" href={hrefTo(without)} aria-label={t("usage.filter.remove", { what })}>
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
