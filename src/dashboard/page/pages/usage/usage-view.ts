import { BINS, type BinSize, isDate, type Period, PRESETS } from "./usage-period.ts";

export const MEASURES = ["money", "tokens", "requests"] as const;
export type Measure = (typeof MEASURES)[number];

export const DIMENSIONS = ["tool", "model", "group", "key"] as const;
export type Dimension = (typeof DIMENSIONS)[number];

export const ENDS = ["complete", "client-left", "gateway-failed", "refused", "interrupted"] as const;
export type End = (typeof ENDS)[number];

/** One name for each; missing: all. Empty: records without one, such as those of unknown callers. */
export type Filters = Partial<Readonly<Record<Dimension, string>>> & { readonly end?: End };

/** Everything that is selected on the page. It is in the URL, so that reload, back and bookmarks work. */
export interface View {
  readonly period: Period;
  /** null: what is usual for the period. */
  readonly bin: BinSize | null;
  readonly by: Dimension;
  readonly measure: Measure;
  readonly filters: Filters;
  /** The beginning of the one bar whose records are listed; null: all. */
  readonly at: number | null;
  /** The record that is open beside the list. */
  readonly record: string | null;
}

export const FIRST_VIEW: View = {
  period: { kind: "7d" },
  bin: null,
  by: "tool",
  measure: "money",
  filters: {},
  at: null,
  record: null,
};

/** URLs are typed and shared, so what cannot be read is ignored. */
export function viewOf(query: URLSearchParams): View {
  const filters: Record<string, string> = {};
  for (const name of DIMENSIONS) {
    const value = query.get(name);
    if (value !== null) filters[name] = value;
  }
  const end = oneOf(ENDS, query.get("end"));
  if (end !== null) filters.end = end;
  const at = query.get("at");
  return {
    period: periodOf(query.get("period")),
    bin: oneOf(BINS, query.get("bin")),
    by: oneOf(DIMENSIONS, query.get("by")) ?? FIRST_VIEW.by,
    measure: oneOf(MEASURES, query.get("show")) ?? FIRST_VIEW.measure,
    filters,
    at: at !== null && /^\d{1,15}$/.test(at) ? Number(at) : null,
    record: readable(query.get("record")),
  };
}

/** Only what differs from the first view, so that a plain address stays plain. */
export function queryOf(view: View): URLSearchParams {
  const query = new URLSearchParams();
  const period = periodName(view.period);
  if (period !== periodName(FIRST_VIEW.period)) query.set("period", period);
  if (view.bin !== null) query.set("bin", view.bin);
  if (view.by !== FIRST_VIEW.by) query.set("by", view.by);
  if (view.measure !== FIRST_VIEW.measure) query.set("show", view.measure);
  for (const name of [...DIMENSIONS, "end"] as const) {
    const value = view.filters[name];
    if (value !== undefined) query.set(name, value);
  }
  if (view.at !== null) query.set("at", String(view.at));
  if (view.record !== null) query.set("record", view.record);
  return query;
}

/** The bars have changed, so no bar stays selected. */
export function withPeriod(view: View, period: Period): View {
  return { ...view, period, at: null };
}

export function withBin(view: View, bin: BinSize): View {
  return { ...view, bin, at: null };
}

/** Chosen once more, it is let go. */
export function withBar(view: View, at: number): View {
  return { ...view, at: view.at === at ? null : at };
}

export function withFilter(view: View, name: keyof Filters, value: string): View {
  return { ...view, filters: { ...view.filters, [name]: value } };
}

export function withoutFilter(view: View, name: keyof Filters): View {
  const { [name]: _gone, ...filters } = view.filters;
  return { ...view, filters };
}

export function periodName(period: Period): string {
  return period.kind === "custom" ? `${period.from}..${period.to}` : period.kind;
}

function periodOf(text: string | null): Period {
  const preset = oneOf(PRESETS, text);
  if (preset !== null) return { kind: preset };
  const [from = "", to = "", ...more] = (text ?? "").split("..");
  if (more.length > 0 || !isDate(from) || !isDate(to)) return FIRST_VIEW.period;
  return from <= to ? { kind: "custom", from, to } : { kind: "custom", from: to, to: from };
}

function oneOf<T extends string>(names: readonly T[], text: string | null): T | null {
  return names.find((name) => name === text) ?? null;
}

/** A record's id, as ours are written: 26 letters and digits. */
function readable(id: string | null): string | null {
  return id !== null && /^[0-9A-Z]{26}$/.test(id) ? id : null;
}
