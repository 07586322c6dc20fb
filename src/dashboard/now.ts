import type { SessionStatus } from "../control/session-status.ts";
import type { Status } from "../control/status.ts";
import type { Clock } from "../core/clock.ts";
import { HttpError } from "../core/errors.ts";
import { withTimeout } from "../core/timeout.ts";
import type { InFlight, InFlightCall } from "../proxy/in-flight.ts";
import type { Ask } from "../usage/index/indexer.ts";
import { startOfDay } from "../usage/reports/calendar.ts";
import type { TodayUsage } from "../usage/reports/chart.ts";
import { sumTokens, unknownCost } from "../usage/reports/sums.ts";
import type { TodayComparison } from "../usage/reports/today.ts";
import type { Sums } from "../usage/rollups.ts";
import type { DaySums, Now, RefusedRecord, RunningCall, RunningSession, ShownRecord, Today } from "./api.ts";
import { type Recent, readRecent, runningSessions } from "./recent.ts";
import { lastRefusals, MAX_REFUSALS, withAdvice } from "./refusals.ts";

const MAX_RUNNING = 200;
/** What pages show is read at most this often, however many are open. */
const REFRESH_MS = 1000;
/** The mirror corrects costs without notice, so today's sums are read again after this time. */
const TODAY_STALE_MS = 15_000;
const RECENT_STALE_MS = 15_000;
const RECENT_REFRESH_MS = 3000;
/** What is asked of the log is waited for this long. After that the page shows what was read before. */
const LOG_WAIT_MS = 1000;
/** With 100,000 records it takes a third of a second. */
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
  readonly #today: LogPart<TodayUsage>;
  readonly #recent: LogPart<Recent>;
  readonly #comparison: LogPart<TodayComparison>;
  /** Read once. */
  readonly #logged: LogPart<readonly RefusedRecord[]>;
  /** The last ones since the start, newest first. */
  #refusals: readonly RefusedRecord[] = [];
  #lastRecordAt = Number.NEGATIVE_INFINITY;
  #lastRecent: Recent | null = null;
  /** Sessions that were in flight after the recent ones were last read. */
  #unlogged: readonly RunningSession[] = [];

  constructor(deps: NowDeps) {
    const { clock, ask } = deps;
    this.#deps = deps;
    this.#status = new Cached(clock, deps.status);
    this.#known = new Cached(clock, async () => deps.sessions());
    this.#today = new LogPart(clock, () => ask("today", [clock.now()]));
    this.#comparison = new LogPart(clock, () => ask("comparison", [clock.now()]));
    this.#recent = new LogPart(clock, () => readRecent(ask, clock.now(), this.#running()));
    this.#logged = new LogPart(clock, () => lastRefusals(ask));
  }

  async read(): Promise<Now> {
    const { clock, inFlight } = this.#deps;
    const isOld = ({ age }: Age) => age >= REFRESH_MS;
    const hasChanged = ({ at }: Age) => at < this.#lastRecordAt + WRITE_DELAY_MS;
    const [status, known, today, recent, comparison, logged] = await Promise.all([
      this.#status.read(isOld),
      this.#known.read(isOld),
      this.#today.read(
        (it) => it.age >= TODAY_STALE_MS || (isOld(it) && (hasChanged(it) || this.#isNewDay(it))),
      ),
      this.#recent.read((it) => it.age >= RECENT_STALE_MS || (it.age >= RECENT_REFRESH_MS && hasChanged(it))),
      this.#comparison.read((it) => it.age >= COMPARISON_STALE_MS || this.#isNewDay(it)),
      this.#logged.read(() => false),
    ]);
    const usual = comparison?.usual ?? null;
    const forecast = comparison?.forecast ?? null;
    const running = this.#running();
    if (recent !== this.#lastRecent) this.#unlogged = [];
    const unlogged = [...running, ...this.#unlogged];
    const sessions = runningSessions(recent?.sessions ?? [], unlogged, known);
    this.#lastRecent = recent;
    this.#unlogged = sessions.filter((session) => session.last_at === null);
    return {
      at: clock.now(),
      status,
      running,
      running_total: inFlight.size,
      sessions,
      today: today === null || this.#today.failed ? null : { ...todayOf(today), usual, forecast },
      first_bytes: recent?.firstBytes ?? [],
      refusals: newestRefusals(this.#refusals, logged ?? []),
    };
  }

  #running(): RunningCall[] {
    const { clock, inFlight } = this.#deps;
    return inFlight.list(MAX_RUNNING, clock.elapsed()).map(runningCall);
  }

  recordFinished(record: ShownRecord): void {
    this.#lastRecordAt = this.#deps.clock.elapsed();
    const refused = withAdvice(record);
    if (refused !== null) this.#refusals = newestRefusals([refused], this.#refusals);
  }

  /** Since this was read. */
  #isNewDay({ age }: Age): boolean {
    const now = this.#deps.clock.now();
    return startOfDay(now) !== startOfDay(now - age);
  }
}

/** The later ones, then those of the earlier ones that are not among them. */
function newestRefusals(
  later: readonly RefusedRecord[],
  earlier: readonly RefusedRecord[],
): readonly RefusedRecord[] {
  const isLater = new Set(later.map(({ id }) => id));
  return [...later, ...earlier.filter(({ id }) => !isLater.has(id))].slice(0, MAX_REFUSALS);
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

/** What is read from the log. The page works without it, so what was read last is shown while that takes long or fails. */
class LogPart<T> {
  readonly #clock: Clock;
  readonly #readNow: () => Promise<T>;
  #last: T | null = null;
  #at = Number.NEGATIVE_INFINITY;
  #isReading = false;
  #failed = false;
  /** Ends with the reading, or before it if that takes long. */
  #wait: Promise<void> = Promise.resolve();

  constructor(clock: Clock, readNow: () => Promise<T>) {
    this.#clock = clock;
    this.#readNow = readNow;
  }

  /** The last reading did. */
  get failed(): boolean {
    return this.#failed;
  }

  /** null: nothing was read yet. */
  async read(isStale: (age: Age) => boolean): Promise<T | null> {
    const elapsed = this.#clock.elapsed();
    const age = elapsed - this.#at;
    const isMissing = this.#last === null || this.#failed;
    const mustRead = isMissing ? age >= REFRESH_MS : isStale({ at: this.#at, age });
    if (mustRead && !this.#isReading) {
      this.#at = elapsed;
      this.#wait = withTimeout(this.#refresh(), LOG_WAIT_MS, undefined);
    }
    await this.#wait;
    return this.#last;
  }

  async #refresh(): Promise<void> {
    this.#isReading = true;
    try {
      this.#last = await this.#readNow();
      this.#failed = false;
    } catch (error) {
      this.#failed = true;
      if (!(error instanceof HttpError)) throw error;
    } finally {
      this.#isReading = false;
    }
  }
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
