import { OUTCOMES, type Outcome, SELECTED_NAMES } from "../../../../usage/reports/names.ts";
import type { Bin, By } from "../../../api.ts";
import { MEASURES, type Measure } from "../../components/chart-layers.ts";
import { hrefOf } from "../../route.ts";
import { BINS, isDate, type Period, PRESETS, type Span } from "./period.ts";

/** Everything that is selected on the page. It is in the URL, so that reload, back and bookmarks work. */
export interface View {
  readonly period: Period;
  /** null: what is usual for the period. */
  readonly bin: Bin | null;
  readonly by: By;
  readonly measure: Measure;
  /** One name for each; missing: all. Empty: records without one, such as those of unknown callers. */
  readonly filters: Readonly<Partial<Record<By, string>>>;
  readonly end: Outcome | null;
  /** A part of any text of a record. */
  readonly search: string;
  /** How the sums are sorted; see Table. */
  readonly sort: string | null;
  /** Only the records of one bar are listed. */
  readonly bar: Span | null;
  /** The list begins before or after this record; null: at the newest. */
  readonly cursor: { readonly to: "older" | "newer"; readonly id: string } | null;
  /** The record that is open. */
  readonly record: string | null;
}

/** URLs are typed and shared, so what cannot be read is ignored. */
export function viewOf(query: URLSearchParams): View {
  const filters: Partial<Record<By, string>> = {};
  for (const name of SELECTED_NAMES) {
    const value = query.get(name);
    if (value !== null) filters[name] = value;
  }
  const older = idOf(query.get("before"));
  const newer = idOf(query.get("after"));
  return {
    period: periodOf(query.get("period")),
    bin: oneOf(BINS, query.get("bin")),
    by: oneOf(SELECTED_NAMES, query.get("by")) ?? "tool",
    measure: oneOf(MEASURES, query.get("show")) ?? "money",
    filters,
    end: oneOf(OUTCOMES, query.get("end")),
    search: query.get("search") ?? "",
    sort: query.get("sort"),
    bar: barOf(query.get("bar")),
    cursor: older !== null ? { to: "older", id: older } : newer !== null ? { to: "newer", id: newer } : null,
    record: idOf(query.get("record")),
  };
}

export const FIRST_VIEW = viewOf(new URLSearchParams());

/** Only what differs from the first view, so that a plain address stays plain. */
export function queryOf(view: View): URLSearchParams {
  const query = new URLSearchParams();
  const { bar, cursor } = view;
  const set = (name: string, value: string | null, usual: string | null = null) => {
    if (value !== null && value !== usual) query.set(name, value);
  };
  set("period", periodName(view.period), periodName(FIRST_VIEW.period));
  set("bin", view.bin);
  set("by", view.by, FIRST_VIEW.by);
  set("show", view.measure, FIRST_VIEW.measure);
  for (const name of SELECTED_NAMES) set(name, view.filters[name] ?? null);
  set("end", view.end);
  set("search", view.search, "");
  set("sort", view.sort);
  set("bar", bar === null ? null : `${bar.since}..${bar.until}`);
  if (cursor !== null) query.set(cursor.to === "older" ? "before" : "after", cursor.id);
  set("record", view.record);
  return query;
}

/** The view with some of it changed. Another selection has other records, so the list begins at the newest again. */
export function changed(view: View, change: Partial<View>): View {
  const isSame = Object.keys(change).every((name) => LEAVES_THE_LIST.includes(name));
  const list = isSame ? {} : { cursor: null, record: null };
  const hasOtherBars = "period" in change || "bin" in change;
  return { ...view, ...list, ...(hasOtherBars ? { bar: null } : {}), ...change };
}

const LEAVES_THE_LIST: readonly string[] = ["by", "measure", "sort", "cursor", "record"];

/** An empty name selects what has none; null: all. */
export function withFilter(view: View, by: By, name: string | null): View {
  const { [by]: _before, ...others } = view.filters;
  return changed(view, { filters: name === null ? others : { ...others, [by]: name } });
}

export function hrefTo(view: View): string {
  return hrefOf("usage", queryOf(view));
}

/** What the daemon is asked: for the chart and the sums, for the list, and for its file. */
export function selectionQuery({ filters, end, search }: View, { since, until }: Span): URLSearchParams {
  const query = new URLSearchParams({ since: String(since), until: String(until) });
  for (const name of SELECTED_NAMES) {
    const value = filters[name];
    if (value !== undefined) query.set(name, value);
  }
  if (end !== null) query.set("end", end);
  if (search !== "") query.set("search", search);
  return query;
}

function periodName(period: Period): string {
  return period.kind === "custom" ? `${period.from}..${period.to}` : period.kind;
}

function periodOf(text: string | null): Period {
  const preset = oneOf(PRESETS, text);
  if (preset !== null) return { kind: preset };
  const [from = "", to = "", ...more] = (text ?? "").split("..");
  if (more.length > 0 || !isDate(from) || !isDate(to)) return { kind: "7d" };
  return from <= to ? { kind: "custom", from, to } : { kind: "custom", from: to, to: from };
}

function barOf(text: string | null): Span | null {
  const [, since = "", until = ""] = /^(\d{1,15})\.\.(\d{1,15})$/.exec(text ?? "") ?? [];
  return Number(since) < Number(until) ? { since: Number(since), until: Number(until) } : null;
}

function oneOf<T extends string>(names: readonly T[], text: string | null): T | null {
  return names.find((name) => name === text) ?? null;
}

function idOf(text: string | null): string | null {
  return text !== null && /^[0-9A-Z]{26}$/.test(text) ? text : null;
}
