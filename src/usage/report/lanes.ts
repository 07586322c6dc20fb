import type { Database } from "libsql";
import { type Lane, SLOT_MS, SUMS, type Sums } from "../ledger/cells.ts";
import type { Bin } from "./calendar.ts";
import { sumsFrom } from "./sums.ts";

/** What one lane adds up to in one bin. */
export interface LaneSums {
  readonly lane: Lane;
  readonly bin: Bin;
  readonly sums: Sums;
  /** The first_bytes of its cells, one after the other; empty where they were not asked for. */
  readonly firstBytes: string;
}

const LANE = ["tool", "gateway", "group", "key", "model"] as const satisfies readonly (keyof Lane)[];
export const TOTALS = SUMS.map((name) => `sum(${name})`).join(", ");
export const IS_LANE = 'tool = ? AND gateway = ? AND "group" = ? AND key = ? AND model = ?';

/**
 * Every lane there is, by jumping from one to the next in the primary key, column by column: the cells between are not
 * read. A comparison of all columns at once would look only the first of them up.
 */
export function lanesOf(db: Database): Lane[] {
  return [...eachLane(db)];
}

/** The same one by one. */
export function* eachLane(db: Database): Generator<Lane> {
  const steps = LANE.map((name, depth) => {
    const same = LANE.slice(0, depth).map((before) => `"${before}" = ?`);
    // No further than the first entry, whatever the planner makes of a minimum.
    const least = (conditions: readonly string[]) =>
      db
        .prepare(
          `SELECT "${name}" FROM cells WHERE ${conditions.join(" AND ") || "true"} ORDER BY "${name}" LIMIT 1`,
        )
        .raw();
    return { first: least(same), next: least([...same, `"${name}" > ?`]) };
  });
  function* descend(names: readonly string[]): Generator<Lane> {
    const step = steps[names.length];
    const [tool = "", gateway = "", group = "", key = "", model = ""] = names;
    if (step === undefined) {
      yield { tool, gateway, group, key, model };
      return;
    }
    let found = step.first.get(...names) as [string] | undefined;
    while (found !== undefined) {
      yield* descend([...names, ...found]);
      found = step.next.get(...names, ...found) as [string] | undefined;
    }
  }
  yield* descend([]);
}

/** Which slots the lanes' cells lie in. */
export interface Extent {
  /** From the first to after the last; both 0 where there is none. */
  readonly from: number;
  readonly to: number;
  /** Beside these there are sums of what is no longer kept. */
  readonly folded: boolean;
}

export function extentOf(db: Database, lanes: readonly Lane[]): Extent {
  const find = (what: string, which: string) => `(SELECT ${what} FROM cells WHERE ${IS_LANE} AND ${which})`;
  const statement = db
    .prepare(
      `SELECT ${find("min(slot)", "slot > 0")}, ${find("max(slot)", "slot > 0")}, ${find("1", "slot = 0")}`,
    )
    .raw();
  let [from, to, folded] = [Number.POSITIVE_INFINITY, 0, false];
  for (const lane of lanes) {
    const names = namesOf(lane);
    const [first, last, below] = statement.get(...names, ...names, ...names) as (number | null)[];
    if (below === 1) folded = true;
    if (typeof first !== "number" || typeof last !== "number") continue;
    from = Math.min(from, first);
    to = Math.max(to, last + 1);
  }
  return { from: to === 0 ? 0 : from, to, folded };
}

/**
 * Sums up each lane in each bin that it has cells in. One statement a lane and bin: a range of the primary key, which
 * needs no sorting, where GROUP BY over all cells would sort them all.
 */
export function* sumsOfLanes(
  db: Database,
  lanes: readonly Lane[],
  bins: readonly Bin[],
  withFirstBytes: boolean,
): Generator<LaneSums> {
  // One visit also tells where to go on: most lanes are idle most of the time.
  const statement = db
    .prepare(
      `SELECT ${TOTALS}, ${textsOf(withFirstBytes)}, (SELECT slot FROM cells WHERE ${IS_LANE} AND slot >= ? LIMIT 1)
       FROM cells WHERE ${IS_LANE} AND slot >= ? AND slot < ?`,
    )
    .raw();
  for (const lane of lanes) {
    const names = namesOf(lane);
    for (let at = 0; at < bins.length; ) {
      const bin = bins[at];
      if (bin === undefined) break;
      const row = statement.get(...names, bin.to, ...names, bin.from, bin.to) as unknown[];
      if (row[0] !== null)
        yield { lane, bin, sums: sumsFrom(row), firstBytes: String(row[SUMS.length] ?? "") };
      const next = row[SUMS.length + 1];
      at = typeof next === "number" ? binOf(bins, next, at + 1) : bins.length;
    }
  }
}

/**
 * Between two changes of the clocks, local days and hours are slots shifted by the same number. On the day of a change
 * itself they are not, but that day ends its stretch: what is taken for another day there is put back by its bin.
 */
export function steadyStretches(bins: readonly Bin[]): { from: number; to: number; shift: number }[] {
  const stretches: { from: number; to: number; shift: number }[] = [];
  for (const { from, to } of bins) {
    const shift = -new Date(from * SLOT_MS).getTimezoneOffset() / 15;
    const last = stretches.at(-1);
    if (last !== undefined && last.to === from && last.shift === shift) last.to = to;
    else stretches.push({ from, to, shift });
  }
  return stretches;
}

/** The first bin, from this one on, that does not end before the slot. */
export function binOf(bins: readonly Bin[], slot: number, from = 0): number {
  let [low, high] = [from, bins.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((bins[middle]?.to ?? 0) <= slot) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function textsOf(withFirstBytes: boolean): string {
  return withFirstBytes ? "group_concat(first_bytes, ' ')" : "''";
}

/** How many requests of each model have no known price. */
export function unpricedIn(
  db: Database,
  lanes: readonly Lane[],
  from: number,
  to: number,
): Map<string, number> {
  const found = new Map<string, number>();
  const statement = db
    .prepare(`SELECT sum(unpriced) FROM cells WHERE ${IS_LANE} AND slot >= ? AND slot < ?`)
    .raw();
  for (const lane of lanes) {
    const [requests] = statement.get(...namesOf(lane), from, to) as [number | null];
    if (requests) found.set(lane.model, (found.get(lane.model) ?? 0) + requests);
  }
  return found;
}

export function namesOf({ tool, gateway, group, key, model }: Lane): string[] {
  return [tool, gateway, group, key, model];
}
