import type { SessionStatus } from "../control/session-status.ts";
import type { Status } from "../control/status.ts";
import type { Clock } from "../core/clock.ts";
import { HttpError } from "../core/errors.ts";
import type { InFlight, InFlightCall } from "../proxy/in-flight.ts";
import type { Ask } from "../usage/index/indexer.ts";
import { startOfDay } from "../usage/reports/calendar.ts";
import type { TodayUsage } from "../usage/reports/chart.ts";
import { sumTokens, unknownCost } from "../usage/reports/sums.ts";
import type { TodayComparison } from "../usage/reports/today.ts";
import type { Sums } from "../usage/rollups.ts";
import type { DaySums, Now, RefusedRecord, RunningCall, RunningSession, ShownRecord, Today } from "./api.ts";
import { EMPTY_OUTLOOK, type Outlook, readOutlook, runningSessions } from "./outlook.ts";
import { lastRefusals, MAX_REFUSALS, withAdvice } from "./refusals.ts";

const MAX_RUNNING = 200;
/** What pages show is read at most this often, however many are open. */
const REFRESH_MS = 1000;
/** The mirror corrects costs without notice, so today's sums are read again after this time. */
const TODAY_STALE_MS = 15_000;
const OUTLOOK_STALE_MS = 15_000;
const OUTLOOK_REFRESH_MS = 3000;
/** With 100,000 records it takes a third of a second, in small steps. */
const COMPARISON_STALE_MS = 60_000;
/** It can take this long until a finished record is in the log. */
const WRITE_DELAY_MS = 500;

interface NowDeps {
  readonly clock: Clock;
  readonly status: () => Promise<Status>;
  readonly sessions: () => readonly SessionStatus[];
  readonly inFlight: Pick<InFlight, "list" | "size">;
  readonly ask: Ask;
}

/** The current state for open pages, from cached parts. */
export class NowView {
  readonly #deps: NowDeps;
  readonly #status: Cached<Status>;
  readonly #known: Cached<readonly SessionStatus[]>;
  readonly #today: Cached<TodayUsage | null>;
  readonly #outlook: Cached<Outlook>;
  readonly #comparison: Cached<TodayComparison | null>;
  #refusals: Promise<RefusedRecord[]> | null = null;
  #lastRecordAt = Number.NEGATIVE_INFINITY;
  #lastOutlook: Outlook | null = null;
  /** Sessions that were in flight after the last outlook was read. */
  #unlogged: readonly RunningSession[] = [];

  constructor(deps: NowDeps) {
    const { clock, ask } = deps;
    this.#deps = deps;
    this.#status = new Cached(clock, deps.status);
    this.#known = new Cached(clock, async () => deps.sessions());
    this.#today = new Cached(clock, () => ask("today", [clock.now()]).catch(nullIfUnavailable));
    this.#comparison = new Cached(clock, () => ask("comparison", [clock.now()]).catch(nullIfUnavailable));
    this.#outlook = new Cached(
      clock,
      async () => (await readOutlook(ask, clock.now()).catch(nullIfUnavailable)) ?? EMPTY_OUTLOOK,
    );
  }

  async read(): Promise<Now> {
    const { clock, inFlight } = this.#deps;
    const isOld = ({ age }: Age) => age >= REFRESH_MS;
    const hasChanged = ({ at }: Age) => at < this.#lastRecordAt + WRITE_DELAY_MS;
    this.#refusals ??= this.#readRefusals();
    const [status, known, today, outlook, comparison, refusals] = await Promise.all([
      this.#status.read(isOld),
      this.#known.read(isOld),
      this.#today.read(
        (it) => it.age >= TODAY_STALE_MS || (isOld(it) && (hasChanged(it) || this.#isNewDay(it))),
      ),
      this.#outlook.read(
        (it) => it.age >= OUTLOOK_STALE_MS || (it.age >= OUTLOOK_REFRESH_MS && hasChanged(it)),
      ),
      this.#comparison.read((it) => it.age >= COMPARISON_STALE_MS || this.#isNewDay(it)),
      this.#refusals,
    ]);
    const usual = comparison?.usual ?? null;
    const forecast = comparison?.forecast ?? null;
    const running = inFlight.list(MAX_RUNNING, clock.elapsed()).map(runningCall);
    if (outlook !== this.#lastOutlook) this.#unlogged = [];
    const sessions = runningSessions(outlook.sessions, [...running, ...this.#unlogged], known);
    this.#lastOutlook = outlook;
    this.#unlogged = sessions.filter((session) => session.last_at === null);
    return {
      at: clock.now(),
      status,
      running,
      running_total: inFlight.size,
      sessions,
      today: today === null ? null : { ...todayOf(today), usual, forecast },
      first_bytes: outlook.firstBytes,
      refusals,
    };
  }

  recordFinished(record: ShownRecord): void {
    this.#lastRecordAt = this.#deps.clock.elapsed();
    const refused = withAdvice(record);
    if (refused === null || this.#refusals === null) return;
    this.#refusals = this.#refusals.then((list) =>
      [refused, ...list.filter(({ id }) => id !== refused.id)].slice(0, MAX_REFUSALS),
    );
  }

  /** Since this was read. */
  #isNewDay({ age }: Age): boolean {
    const now = this.#deps.clock.now();
    return startOfDay(now) !== startOfDay(now - age);
  }

  async #readRefusals(): Promise<RefusedRecord[]> {
    const refusals = await lastRefusals(this.#deps.ask).catch(nullIfUnavailable);
    if (refusals !== null) return refusals;
    // The next call tries again.
    this.#refusals = null;
    return [];
  }
}

/** When something was read, on the clock that cannot be set, and how long ago that is. */
interface Age {
  readonly at: number;
  readonly age: number;
}

/** What was read last. Callers during a read wait for the same result. */
class Cached<T> {
  readonly #clock: Clock;
  readonly #readNow: () => Promise<T>;
  #last: Promise<T> | null = null;
  #at = 0;
  #isReading = false;

  constructor(clock: Clock, readNow: () => Promise<T>) {
    this.#clock = clock;
    this.#readNow = readNow;
  }

  read(isStale: (age: Age) => boolean): Promise<T> {
    const elapsed = this.#clock.elapsed();
    const mustRead = this.#last === null || isStale({ at: this.#at, age: elapsed - this.#at });
    if (this.#last !== null && (this.#isReading || !mustRead)) return this.#last;
    this.#at = elapsed;
    this.#isReading = true;
    const reading = this.#readNow().finally(() => {
      this.#isReading = false;
    });
    this.#last = reading;
    // The caller gets the error; the next one tries again.
    reading.catch(() => {
      this.#last = null;
    });
    return reading;
  }
}

/** The page works without the log, and shows that it cannot be read. */
function nullIfUnavailable(error: unknown): null {
  if (error instanceof HttpError) return null;
  throw error;
}

function todayOf({ since, tools, total }: TodayUsage): Omit<Today, "usual" | "forecast"> {
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
    session: call.session,
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
