import type Database from "libsql";
import { localTime } from "../../usage/reports/calendar.ts";
import { type CoverageGap, readConsoleGaps, readUnreadKeys, type UnreadKey } from "../store/coverage-gaps.ts";
import { heldTimes } from "../store/keys.ts";

/** The latest are enough. */
const MOST_GAPS = 5;

/** Which calls of which tools the console did not list, each in words, with what to do. */
export function unseenInWords(db: Database.Database, gateway: string, skew: number): string[] {
  const held = heldTimes(db, gateway);
  const toolsOf = (key: string) => held.get(key)?.tools.join(", ") ?? key;
  const gaps = readConsoleGaps(db, gateway).map((gap) => ({
    ...gap,
    from: gap.from - skew,
    to: gap.to - skew,
  }));
  // What was before the key was held here is not compared anyway.
  const later = gaps.filter(({ key, to }) => key !== undefined && to > (held.get(key)?.since ?? 0));
  return [
    ...later
      .toSorted((a, b) => a.to - b.to)
      .slice(-MOST_GAPS)
      .map((gap) => gapInWords(toolsOf(gap.key ?? ""), gap, gateway)),
    ...readUnreadKeys(db, gateway).map((one) => keyInWords(toolsOf(one.key), one, gateway)),
  ];
}

function gapInWords(tools: string, { from, to, why }: CoverageGap, gateway: string): string {
  const span = `${tools} ${localTime(from)}–${localTime(to)}`;
  return why === "refused"
    ? `${span}: the console does not accept its key, which is disabled or deleted there`
    : `${span}, more than 1,000 calls between syncs → log in with an access token: keybearer mirror login ${gateway}`;
}

function keyInWords(tools: string, { until, why }: UnreadKey, gateway: string): string {
  if (why === "no-account")
    return `${tools}: its key belongs to no account logged in here → keybearer mirror login ${gateway} --account <name>`;
  const since = until === null ? "was never read" : `was last read ${localTime(until)}`;
  return `${tools}: its key ${since}, the console allows 20 questions about keys in 20 minutes`;
}
