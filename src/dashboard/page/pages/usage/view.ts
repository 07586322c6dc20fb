import { OUTCOMES, type Outcome, SELECTED_NAMES } from "../../../../usage/reports/names.ts";
import type { Bin, By } from "../../../api.ts";
import { MEASURES, type Measure } from "../../components/chart-layers.ts";
import { hrefOf } from "../../route.ts";
import { BINS, type Period, readPeriod, type Span } from "./period.ts";

/** Everything that is selected on the page. It is in the address, so that reload, back and bookmarks work. */
export interface View {
  /** The address that says it. */
  readonly query: URLSearchParams;
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
  readonly cursor: readonly ["before" | "after", id: string] | null;
  /** The record that is open. */
  readonly record: string | null;
}

/** Another look at the same records, which leaves the list where it is. */
const LOOKS = ["by", "show", "sort", "before", "after", "record"] as const;
/** A parameter of the address. */
export type Parameter = By | "period" | "bin" | "end" | "search" | "bar" | (typeof LOOKS)[number];
/** null: the parameter goes. */
export type Change = { readonly [name in Parameter]?: string | null };

/** Addresses are typed and shared, so what cannot be read is ignored. */
export function viewOf(query: URLSearchParams): View {
  const names = SELECTED_NAMES.filter((name) => query.has(name));
  const before = idOf(query.get("before"));
  const after = idOf(query.get("after"));
  return {
    query,
    period: readPeriod(query.get("period")),
    bin: oneOf(BINS, query.get("bin")),
    by: oneOf(SELECTED_NAMES, query.get("by")) ?? "tool",
    measure: oneOf(MEASURES, query.get("show")) ?? "money",
    filters: Object.fromEntries(names.map((name) => [name, query.get(name)])),
    end: oneOf(OUTCOMES, query.get("end")),
    search: query.get("search") ?? "",
    sort: query.get("sort"),
    bar: barOf(query.get("bar")),
    cursor: before !== null ? ["before", before] : after !== null ? ["after", after] : null,
    record: idOf(query.get("record")),
  };
}

/** The address after a change. Another selection has other records, so the list begins at the newest again. */
export function changed({ query }: View, change: Change): URLSearchParams {
  const next = new URLSearchParams(query);
  const isSame = Object.keys(change).every((name) => LOOKS.some((look) => look === name));
  if (!isSame) for (const name of ["before", "after", "record"]) next.delete(name);
  if ("period" in change || "bin" in change) next.delete("bar");
  for (const [name, value] of Object.entries(change)) {
    if (value === null) next.delete(name);
    else next.set(name, value);
  }
  return next;
}

export function hrefTo(view: View, change: Change): string {
  return hrefOf("usage", changed(view, change));
}

/** What the daemon is asked: for the chart and the sums, for the list, and for its file. */
export function selectionQuery({ filters, end, search }: View, { since, until }: Span): URLSearchParams {
  const query = new URLSearchParams({ since: String(since), until: String(until), ...filters });
  if (end !== null) query.set("end", end);
  if (search !== "") query.set("search", search);
  return query;
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
