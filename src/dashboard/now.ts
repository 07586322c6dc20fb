import type { Status } from "../control/status.ts";
import type { Clock } from "../core/clock.ts";
import type { InFlight, InFlightCall } from "../proxy/in-flight.ts";
import { readToday, type TodayUsage } from "../usage/reports/chart.ts";
import { exportedRecord } from "../usage/reports/records.ts";
import { tokensOf, unknownCost } from "../usage/reports/sums.ts";
import type { Sums } from "../usage/rollups.ts";
import { No } from "./answer.ts";
import type { DaySums, Now, RefusedRecord, RunningCall, ShownRecord, Today } from "./api.ts";
import type { LogReader } from "./log-reader.ts";
import { lastRefusals, MOST_REFUSALS } from "./records.ts";
import { withAdvice } from "./refusal-advice.ts";

export interface NowDeps {
  readonly clock: Clock;
  readonly status: () => Promise<Status>;
  readonly inFlight: Pick<InFlight, "list" | "size">;
  readonly reader: LogReader;
}

/** This moment, put together from what is kept of the moments before. */
export interface NowView {
  now(): Promise<Now>;
  /** A request is over. */
  ended(record: ShownRecord): void;
}

const MOST_RUNNING = 200;
/** What is asked anew at most so often, however many look at it. */
const STATUS_MS = 1000;
const TODAY_MS = 1000;
/** A correction by the mirror is told by nobody. */
const TODAY_STALE_MS = 15_000;
/** A record that is over may take so long to be in the log. */
const WRITTEN_MS = 500;

export function createNowView(deps: NowDeps): NowView {
  const { clock, reader } = deps;
  const status = keptFor(STATUS_MS, clock, deps.status);
  let changedAt = Number.NEGATIVE_INFINITY;
  let readAt = Number.NEGATIVE_INFINITY;
  let sums: Today | null = null;
  let reading: Promise<Today | null> | null = null;
  let refusals: Promise<RefusedRecord[]> | null = null;

  function today(): Promise<Today | null> {
    const age = clock.elapsed() - readAt;
    const news = readAt < changedAt + WRITTEN_MS || !isToday(sums, clock.now());
    if (reading === null && (age >= TODAY_STALE_MS || (news && age >= TODAY_MS))) {
      readAt = clock.elapsed();
      reading = readSums().finally(() => {
        reading = null;
      });
    }
    return reading ?? Promise.resolve(sums);
  }

  async function readSums(): Promise<Today | null> {
    const found = await reader.read((db) => readToday(db, clock.now()));
    sums = found instanceof No ? null : todayOf(found);
    return sums;
  }

  async function readRefusals(): Promise<RefusedRecord[]> {
    const found = await reader.read(lastRefusals());
    // Not to be read now: then again the next time.
    if (found instanceof No) refusals = null;
    return found instanceof No ? [] : found.flatMap((record) => withAdvice(record) ?? []);
  }

  return {
    async now() {
      refusals ??= readRefusals();
      const [seen, day, refused] = await Promise.all([status(), today(), refusals]);
      return {
        at: clock.now(),
        status: seen,
        running: deps.inFlight.list(MOST_RUNNING, clock.elapsed()).map(runningCall),
        running_total: deps.inFlight.size,
        today: day,
        refusals: refused,
      };
    },
    ended(record) {
      changedAt = clock.elapsed();
      const refused = withAdvice(record);
      if (refused === null || refusals === null) return;
      refusals = refusals.then((list) =>
        [refused, ...list.filter(({ id }) => id !== refused.id)].slice(0, MOST_REFUSALS),
      );
    },
  };
}

/** Answers the same for a while, and whoever asks while it is found out waits for the same answer. */
function keptFor<T>(ms: number, clock: Clock, find: () => Promise<T>): () => Promise<T> {
  let kept: Promise<T> | null = null;
  let at = 0;
  return () => {
    if (kept === null || clock.elapsed() - at >= ms) {
      at = clock.elapsed();
      kept = find();
      kept.catch(() => {
        kept = null;
      });
    }
    return kept;
  };
}

function isToday(today: Today | null, now: number): boolean {
  return today !== null && new Date(now).toDateString() === new Date(today.since).toDateString();
}

function todayOf({ since, tools, total }: TodayUsage): Today {
  return {
    since,
    total: daySums(total),
    tools: [...tools]
      .map(([tool, sums]) => ({ tool, ...daySums(sums) }))
      .sort((a, b) => b.cost_microdollars - a.cost_microdollars || b.requests - a.requests),
  };
}

function daySums(sums: Readonly<Sums>): DaySums {
  return {
    requests: sums.requests,
    refused: sums.refused,
    tokens: tokensOf(sums),
    cost_microdollars: sums.cost_microdollars,
    billed_microdollars: sums.billed_requests === 0 ? null : sums.billed_microdollars,
    unknown_cost: unknownCost(sums),
  };
}

function runningCall({ observed, ...request }: InFlightCall): RunningCall {
  return {
    ...{ id: request.id, tool: request.tool, model: request.model, endpoint: request.endpoint },
    started_at: request.startedAt,
    waited_ms: request.waitedMs,
    waiting: request.waiting,
    first_byte_at: request.firstByteAt,
    stream: observed?.stream ?? null,
    bytes_out: observed?.bytesOut ?? 0,
    output_tokens: observed?.outputTokens ?? null,
    tokens_by: observed?.tokensBy ?? null,
  };
}

/** As it is exported: what the log keeps for itself stays there. */
export function shownRecord(record: ShownRecord): ShownRecord {
  return exportedRecord(record);
}
