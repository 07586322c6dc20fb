import type { Status } from "../control/status.ts";
import type { Clock } from "../core/clock.ts";
import { HttpError } from "../core/errors.ts";
import type { InFlight, InFlightCall } from "../proxy/in-flight.ts";
import { readToday, type TodayUsage } from "../usage/reports/chart.ts";
import { sumTokens, unknownCost } from "../usage/reports/sums.ts";
import type { Sums } from "../usage/rollups.ts";
import type { DaySums, Now, RefusedRecord, RunningCall, ShownRecord, Today } from "./api.ts";
import type { LogReader } from "./log-reader.ts";
import { lastRefusals, MAX_REFUSALS, withAdvice } from "./refusals.ts";

const MAX_RUNNING = 200;
/** Status and sums are read at most this often, however many pages are open. */
const REFRESH_MS = 1000;
/** The mirror corrects costs without notice, so today's sums are read again after this time. */
const TODAY_STALE_MS = 15_000;
/** It can take this long until a finished record is in the log. */
const WRITE_DELAY_MS = 500;

/** The current state for open pages, from cached parts. */
export class NowView {
  readonly #clock: Clock;
  readonly #readStatus: () => Promise<Status>;
  readonly #inFlight: Pick<InFlight, "list" | "size">;
  readonly #reader: LogReader;
  #status: Promise<Status> | null = null;
  #statusAt = Number.NEGATIVE_INFINITY;
  #today: Today | null = null;
  #todayAt = Number.NEGATIVE_INFINITY;
  #todayRead: Promise<Today | null> | null = null;
  #refusals: Promise<RefusedRecord[]> | null = null;
  #lastRecordAt = Number.NEGATIVE_INFINITY;

  constructor(
    clock: Clock,
    readStatus: () => Promise<Status>,
    inFlight: Pick<InFlight, "list" | "size">,
    reader: LogReader,
  ) {
    this.#clock = clock;
    this.#readStatus = readStatus;
    this.#inFlight = inFlight;
    this.#reader = reader;
  }

  async read(): Promise<Now> {
    this.#refusals ??= this.#readRefusals();
    const [status, today, refusals] = await Promise.all([
      this.#currentStatus(),
      this.#currentToday(),
      this.#refusals,
    ]);
    return {
      at: this.#clock.now(),
      status,
      running: this.#inFlight.list(MAX_RUNNING, this.#clock.elapsed()).map(runningCall),
      running_total: this.#inFlight.size,
      today,
      refusals,
    };
  }

  recordFinished(record: ShownRecord): void {
    this.#lastRecordAt = this.#clock.elapsed();
    const refused = withAdvice(record);
    if (refused === null || this.#refusals === null) return;
    this.#refusals = this.#refusals.then((list) =>
      [refused, ...list.filter(({ id }) => id !== refused.id)].slice(0, MAX_REFUSALS),
    );
  }

  /** Callers during a read wait for the same result. */
  #currentStatus(): Promise<Status> {
    const age = this.#clock.elapsed() - this.#statusAt;
    if (this.#status === null || age >= REFRESH_MS) {
      this.#statusAt = this.#clock.elapsed();
      this.#status = this.#readStatus();
      this.#status.catch(() => {
        this.#status = null;
      });
    }
    return this.#status;
  }

  #currentToday(): Promise<Today | null> {
    const age = this.#clock.elapsed() - this.#todayAt;
    const changed =
      this.#todayAt < this.#lastRecordAt + WRITE_DELAY_MS || !isSameDay(this.#today, this.#clock.now());
    if (this.#todayRead === null && (age >= TODAY_STALE_MS || (changed && age >= REFRESH_MS))) {
      this.#todayAt = this.#clock.elapsed();
      this.#todayRead = this.#readToday().finally(() => {
        this.#todayRead = null;
      });
    }
    return this.#todayRead ?? Promise.resolve(this.#today);
  }

  async #readToday(): Promise<Today | null> {
    const usage = await this.#reader.read((db) => readToday(db, this.#clock.now())).catch(nullIfUnavailable);
    this.#today = usage === null ? null : todayOf(usage);
    return this.#today;
  }

  async #readRefusals(): Promise<RefusedRecord[]> {
    const refusals = await this.#reader.read(lastRefusals).catch(nullIfUnavailable);
    if (refusals !== null) return refusals;
    // The next call tries again.
    this.#refusals = null;
    return [];
  }
}

/** The page works without the log, and shows that it cannot be read. */
function nullIfUnavailable(error: unknown): null {
  if (error instanceof HttpError) return null;
  throw error;
}

function isSameDay(today: Today | null, now: number): boolean {
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
    tokens: sumTokens(sums),
    cost_microdollars: sums.cost_microdollars,
    billed_microdollars: sums.billed_requests === 0 ? null : sums.billed_microdollars,
    unknown_cost: unknownCost(sums),
  };
}

function runningCall(call: InFlightCall): RunningCall {
  const { observed } = call;
  return {
    id: call.id,
    tool: call.tool,
    model: call.model,
    endpoint: call.endpoint,
    started_at: call.startedAt,
    waited_ms: call.waitedMs,
    waiting: call.waiting,
    first_byte_at: call.firstByteAt,
    stream: observed?.stream ?? null,
    bytes_out: observed?.bytesOut ?? 0,
    output_tokens: observed?.outputTokens ?? null,
    tokens_by: observed?.tokensBy ?? null,
  };
}
