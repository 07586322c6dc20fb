import { setImmediate as turn } from "node:timers/promises";
import type Database from "libsql";
import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import { dollars, HOUR_MS, MINUTE_MS } from "../core/units.ts";
import type { Limiter } from "../limits/limiter.ts";
import { quarterOf } from "../usage/rollups.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import type { Occurrence } from "./event.ts";

/* A tool that spends far more in this hour than it usually does in one. */

interface SpendingDeps {
  readonly clock: Clock;
  readonly limiter: Pick<Limiter, "countUse">;
  readonly usage: Pick<UsageLog, "catchUp" | "readNow">;
}

/** How many times the usual hour. */
const FACTOR = 5;
const LEAST_MICRODOLLARS = 1_000_000;
/** The usual hour is of so many days with spending, which are searched for in the last 60 days. */
const ACTIVE_DAYS = 14;
const SEARCHED_DAYS = 60;
const READ_EVERY_MS = 3 * MINUTE_MS;
const QUARTERS_PER_HOUR = 4;

/**
 * Reads the index at most every few minutes, and only for tools that spent enough in this hour, which the limiter knows without
 * it.
 */
export class Spending {
  readonly #deps: SpendingDeps;
  /** What each tool's hours usually cost, as of the hour in which it was read; null: it has none. */
  readonly #usual = new Map<string, { readonly hour: number; readonly cost: number | null }>();
  #readAt = Number.NEGATIVE_INFINITY;

  constructor(deps: SpendingDeps) {
    this.#deps = deps;
  }

  /** @param wasReported whether a tool was reported in the hour that begins then */
  async check(
    tools: readonly string[],
    wasReported: (occurrence: Pick<Occurrence, "kind" | "subject" | "once">) => boolean,
  ): Promise<Occurrence[]> {
    const { clock, usage, limiter } = this.#deps;
    const now = clock.now();
    const hour = Math.floor(now / HOUR_MS) * HOUR_MS;
    const window = { start: hour, end: hour + HOUR_MS };
    const limit = { kind: "spend", per: "hour" } as const;
    const busy = tools.filter(
      (tool) =>
        // With what is reserved for calls in flight, so this is never too little.
        limiter.countUse(tool, limit, window) >= LEAST_MICRODOLLARS &&
        !wasReported({ kind: "spending", subject: `tool ${tool}`, once: onceIn(hour) }),
    );
    for (const tool of this.#usual.keys()) if (!tools.includes(tool)) this.#usual.delete(tool);
    if (busy.length === 0 || clock.elapsed() - this.#readAt < READ_EVERY_MS) return [];
    this.#readAt = clock.elapsed();
    // What is compared with an index that lacks records would look cheaper, or more unusual, than it is.
    if (!(await usage.catchUp()).current) return [];
    const found: Occurrence[] = [];
    for (const tool of busy) {
      const usual = await this.#usualHour(tool, hour);
      if (usual === "unreadable") return found;
      const quarter = quarterOf(hour);
      const costs = usage.readNow((db) => hourCosts(db, tool, quarter, quarter + QUARTERS_PER_HOUR));
      if (costs === null) return found;
      const occurrence = unusualHour(tool, costs[0] ?? 0, usual, hour);
      if (occurrence !== null) found.push(occurrence);
    }
    return found;
  }

  /** null: it has none. */
  async #usualHour(tool: string, hour: number): Promise<number | null | "unreadable"> {
    const known = this.#usual.get(tool);
    if (known?.hour === hour) return known.cost;
    const hours = await this.#readHours(tool, hour);
    if (hours === null) return "unreadable";
    const cost = medianOf(hours);
    this.#usual.set(tool, { hour, cost });
    return cost;
  }

  /** The hours with spending of the last active days before this hour. null: the index cannot be read. */
  async #readHours(tool: string, hour: number): Promise<number[] | null> {
    const hours: number[] = [];
    let activeDays = 0;
    for (let back = 0; back < SEARCHED_DAYS && activeDays < ACTIVE_DAYS; back += 1) {
      const from = quarterOf(dayStart(hour, back));
      const to = back === 0 ? quarterOf(hour) : quarterOf(dayStart(hour, back - 1));
      // One day at a time, so that no request waits for this.
      const ofDay = this.#deps.usage.readNow((db) => hourCosts(db, tool, from, to));
      if (ofDay === null) return null;
      hours.push(...ofDay);
      if (ofDay.length > 0) activeDays += 1;
      await turn();
    }
    return hours;
  }
}

/** null: this hour is like others, or there is nothing to compare it with. */
export function unusualHour(
  tool: string,
  cost: number,
  usual: number | null,
  hour: number,
): Occurrence | null {
  if (usual === null || cost < LEAST_MICRODOLLARS || cost <= usual * FACTOR) return null;
  return {
    kind: "spending",
    severity: "critical",
    subject: `tool ${tool}`,
    message: `tool ${tool} has spent ${dollars(cost)} in this hour, ${Math.floor(cost / usual)} times its usual ${dollars(usual)}`,
    next: advice.sessions(),
    once: onceIn(hour),
    said: {
      code: "spending",
      values: {
        name: tool,
        spent: dollars(cost),
        times: Math.floor(cost / usual),
        usual: dollars(usual),
      },
    },
  };
}

function onceIn(hour: number) {
  return { name: `hour ${hour}`, until: hour + HOUR_MS };
}

/** What each hour with spending cost. Of this machine. */
function hourCosts(db: Database.Database, tool: string, from: number, to: number): number[] {
  const rows = db
    .prepare(
      `SELECT sum(cost_microdollars) AS cost FROM usage.rollups
       WHERE quarter >= ? AND quarter < ? AND tool = ? AND machine = ''
       GROUP BY quarter / ${QUARTERS_PER_HOUR} HAVING cost > 0`,
    )
    .raw()
    .all(from, to, tool) as [number][];
  return rows.map(([cost]) => cost);
}

/** The beginning of a local day. */
function dayStart(now: number, daysBack: number): number {
  const date = new Date(now);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() - daysBack).getTime();
}

/** null: there are no values. */
function medianOf(values: readonly number[]): number | null {
  const sorted = values.toSorted((a, b) => a - b);
  const half = sorted.length / 2;
  const low = sorted[Math.ceil(half) - 1];
  const high = sorted[Math.floor(half)];
  return low === undefined || high === undefined ? null : Math.round((low + high) / 2);
}
