import { costInWords, dollars } from "../../core/units.ts";
import type {
  ElsewhereUse,
  MirrorReport,
  ModelFactor,
  TokenKind,
  ToolMoney,
  VerdictCounts,
} from "./shape.ts";

/* What of a report is worth a word. The commands and the dashboard say it in words of their own. */

type CountName = Exclude<keyof VerdictCounts, "total">;

export interface ShownCount {
  readonly name: CountName;
  /** null: not known, because a foreign row could not have been seen. */
  readonly count: number | null;
}

const ALWAYS: readonly CountName[] = ["by_id", "presumed"];
const ORDER: readonly CountName[] = [
  "by_id",
  "by_pair",
  "by_sum",
  "presumed",
  "differs",
  "pending",
  "foreign_certain",
  "foreign_suspected",
  "elsewhere",
  "before",
  "unwatched",
  "companion",
  "duplicate",
];

/** The counts of the first line of a gateway; null: nothing was read, so nothing is known. */
export function shownCounts({ rows, state, last_sync }: MirrorReport): readonly ShownCount[] | null {
  if (last_sync === null && rows.total === 0) return null;
  // Never "0 foreign" beside a suspicion.
  const isShown = (name: CountName) =>
    ALWAYS.includes(name) || rows[name] > 0 || (name === "foreign_certain" && rows.foreign_suspected === 0);
  return ORDER.filter(isShown).map((name) => {
    const isBlind = name === "foreign_certain" && rows[name] === 0 && state === "cannot-see";
    return { name, count: isBlind ? null : rows[name] };
  });
}

/** A smaller difference between two machines' clocks is normal. */
const MIN_SKEW_MS = 5000;

export function isSkewed(skew: number | null): skew is number {
  return skew !== null && Math.abs(skew) >= MIN_SKEW_MS;
}

/** What both sides say a tool cost; null: one of them is not known, or not of all requests. */
export function comparableAmounts(
  tool: ToolMoney,
): { readonly ours: number; readonly theirs: number } | null {
  const { ours_microdollars: ours, theirs_microdollars: theirs } = tool;
  const isKnown = ours !== null && theirs !== null && tool.ours_unknown + tool.theirs_unknown === 0;
  return isKnown ? { ours, theirs } : null;
}

/** +$0.42 */
export function differenceInWords(tool: ToolMoney): string {
  const amounts = comparableAmounts(tool);
  if (amounts === null) return costInWords(null);
  const more = amounts.theirs - amounts.ours;
  return more > 0 ? `+${dollars(more)}` : dollars(more);
}

/** Both sides round their prices, so a smaller difference is none. */
const MAX_ROUNDING = 0.01;

export function isOtherPrice(factor: number | null): factor is number {
  return factor !== null && Math.abs(factor - 1) > MAX_ROUNDING;
}

/** The operator's price of each kind of token; none: all kinds have one factor, or it is not known. */
export function kindPrices({ explanation }: ModelFactor): readonly [TokenKind, number][] {
  const kinds = Object.entries(explanation?.factors ?? {}) as [TokenKind, number][];
  return new Set(kinds.map(([, factor]) => factor)).size > 1 ? kinds : [];
}

/** A day is unusual from this many times the usual number of requests, and from this many requests on. */
const UNUSUAL_FACTOR = 3;
const MIN_UNUSUAL = 10;

export function isFarAbove({ day, usual }: Pick<ElsewhereUse, "day" | "usual">): boolean {
  return day >= MIN_UNUSUAL && day > usual * UNUSUAL_FACTOR;
}

/** Requests a day: a small number with a digit after the point. */
export function roundedUse(usual: number): number {
  return usual < MIN_UNUSUAL ? Math.round(usual * 10) / 10 : Math.round(usual);
}

/** What the alarm cannot see, where it is not about one key or time. The dashboard says it in the reader's language. */
export const BLIND_SPOTS = {
  "never-read": "anything: its rows were never read",
  "since-sync": "anything since the last sync",
  "failed-unlogged": "calls that failed, unless the console's operator has them logged",
  failed: "calls that failed: this console lists only what was billed",
  "no-model": "calls that were refused and name no model, such as a list of models",
  "repeated-id":
    "a call whose provider repeats the id of an earlier answer: LiteLLM keeps the earlier row only, and counts both in the key's spend",
  "known-id":
    "a call with the id of a request of yours that is still in flight: LiteLLM itself lists several rows of some requests",
  "taken-for-refusal":
    "a refused call with your key and model beside a request of yours that failed or whose client left: it cost nothing, and is taken for that request's refusal",
  "taken-for-yours":
    "a call with your key and model that begins within {ms} ms of a request of yours that got no answer and was not billed: it is taken for yours",
  unlogged: "calls that the console's operator does not log",
  "keys-gone": "calls with keys that no tool here has any more: {keys}",
} as const;
