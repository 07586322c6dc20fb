import type { SessionStatus } from "../control/session-status.ts";
import type { Status } from "../control/status.ts";
import type { Clock } from "../core/clock.ts";
import { HttpError } from "../core/errors.ts";
import { withTimeout } from "../core/timeout.ts";
import { MINUTE_MS } from "../core/units.ts";
import type { InFlightCall } from "../proxy/in-flight.ts";
import type { Ask } from "../usage/index/indexer.ts";
import { startOfDay } from "../usage/reports/calendar.ts";
import type { TodayUsage } from "../usage/reports/chart.ts";
import type { GatewayFirstByte } from "../usage/reports/gateways.ts";
import { exportedRecord } from "../usage/reports/records.ts";
import type { SessionName, SessionRow } from "../usage/reports/sessions.ts";
import type { TodayComparison } from "../usage/reports/today.ts";
import type { Now, ShownRecord } from "./api.ts";
import type { DashboardDeps } from "./deps.ts";
import { listSessions } from "./session-list.ts";

const MAX_RUNNING = 200;
const MAX_REFUSALS = 20;
const MAX_SESSIONS = 50;
/** How long a session is shown after its last request: an agent works on its own in between. */
const SESSION_MS = 10 * MINUTE_MS;
/** What pages show is read at most this often, however many are open. */
const REFRESH_MS = 1000;
/** What is asked of the log is waited for this long. After that the page shows what was read before. */
const LOG_WAIT_MS = 1000;
/** It can take this long until a finished record is in the log. */
const WRITE_DELAY_MS = 500;

type NowDeps = Pick<DashboardDeps, "clock" | "status" | "controls" | "inFlight">;

/** The current state for open pages, from cached parts. */
export class NowView {
  readonly #deps: NowDeps;
  readonly #today: LogPart<TodayUsage>;
  readonly #recent: LogPart<RecentUse>;
  readonly #comparison: LogPart<TodayComparison>;
  readonly #logged: LogPart<readonly ShownRecord[]>;
  #state: Promise<DaemonState> | null = null;
  #stateAt = 0;
  /** The last ones since the start, newest first. */
  #refusals: readonly ShownRecord[] = [];
  #lastRecordAt = Number.NEGATIVE_INFINITY;
  #lastRecent: RecentUse | null = null;
  /** They were in flight after the recent ones were last read, so the log did not have them. */
  #unlogged: readonly SessionName[] = [];

  constructor(deps: NowDeps, ask: Ask) {
    const { clock, inFlight } = deps;
    this.#deps = deps;
    // The mirror corrects costs without notice.
    this.#today = new LogPart(clock, { everyMs: 15_000, afterRecordMs: 1000 }, () =>
      ask("today", [clock.now()]),
    );
    this.#recent = new LogPart(clock, { everyMs: 15_000, afterRecordMs: 3000 }, () =>
      readRecentUse(ask, clock.now(), inFlight.list(MAX_RUNNING)),
    );
    // With 100,000 records it takes a third of a second.
    this.#comparison = new LogPart(clock, { everyMs: 60_000, afterRecordMs: 60_000 }, () =>
      ask("comparison", [clock.now()]),
    );
    // Later ones are known without the log.
    const once = { everyMs: Number.POSITIVE_INFINITY, afterRecordMs: Number.POSITIVE_INFINITY };
    this.#logged = new LogPart(clock, once, async () =>
      (await ask("refused", [MAX_REFUSALS])).map(exportedRecord),
    );
  }

  async read(): Promise<Now> {
    const { clock, inFlight } = this.#deps;
    const [{ status, sessions: known }, today, recent, comparison, logged] = await Promise.all([
      this.#readState(),
      this.#today.read(this.#lastRecordAt),
      this.#recent.read(this.#lastRecordAt),
      this.#comparison.read(this.#lastRecordAt),
      this.#logged.read(this.#lastRecordAt),
    ]);
    if (recent !== this.#lastRecent) this.#unlogged = [];
    this.#lastRecent = recent;
    const since = clock.now() - SESSION_MS;
    const wasShown = ({ tool, session }: SessionName) =>
      this.#unlogged.some((one) => one.tool === tool && one.session === session);
    const sessions = listSessions(recent?.sessions ?? [], [...this.#unlogged, ...known]).filter(
      (one) => one.running > 0 || (one.last_at ?? 0) >= since || wasShown(one),
    );
    this.#unlogged = sessions
      .filter(({ last_at }) => last_at === null)
      .map(({ tool, session }) => ({ tool, session }));
    const usual = comparison?.usual ?? null;
    const forecast = comparison?.forecast ?? null;
    return {
      at: clock.now(),
      status,
      running: inFlight.list(MAX_RUNNING),
      running_total: inFlight.size,
      sessions: sessions.slice(0, MAX_SESSIONS),
      today: today === null || this.#today.failed ? null : { ...today, usual, forecast },
      first_bytes: recent?.firstBytes ?? [],
      refusals: newestRefusals(this.#refusals, logged ?? []),
    };
  }

  recordFinished(record: ShownRecord): void {
    this.#lastRecordAt = this.#deps.clock.elapsed();
    if (record.refusal !== null) this.#refusals = newestRefusals([record], this.#refusals);
  }

  #readState(): Promise<DaemonState> {
    const elapsed = this.#deps.clock.elapsed();
    if (this.#state !== null && elapsed - this.#stateAt < REFRESH_MS) return this.#state;
    this.#stateAt = elapsed;
    this.#state = readState(this.#deps);
    return this.#state;
  }
}

interface DaemonState {
  readonly status: Status;
  readonly sessions: readonly SessionStatus[];
}

async function readState({ status, controls }: NowDeps): Promise<DaemonState> {
  return { status: await status(), sessions: controls().sessions() };
}

/** What is shown of the log beside today's sums. */
interface RecentUse {
  readonly firstBytes: readonly GatewayFirstByte[];
  readonly sessions: readonly SessionRow[];
}

/** @param running their sessions are among those, however long ago the calls began */
async function readRecentUse(
  ask: Ask,
  now: number,
  running: readonly Pick<InFlightCall, "started_at">[],
): Promise<RecentUse> {
  const since = Math.min(now - SESSION_MS, ...running.map(({ started_at }) => started_at));
  const [firstBytes, sessions] = await Promise.all([
    ask("firstBytes", [now]),
    ask("sessions", [{ since, tools: [], projects: [] }]),
  ]);
  return { firstBytes, sessions };
}

/** The later ones, then those of the earlier ones that are not among them. */
function newestRefusals(
  later: readonly ShownRecord[],
  earlier: readonly ShownRecord[],
): readonly ShownRecord[] {
  const isLater = new Set(later.map(({ id }) => id));
  return [...later, ...earlier.filter(({ id }) => !isLater.has(id))].slice(0, MAX_REFUSALS);
}

/** When a part of the log is read again. */
interface Staleness {
  readonly everyMs: number;
  /** After a record was finished. */
  readonly afterRecordMs: number;
}

/** What is read from the log. The page works without it, so what was read last is shown while that takes long or fails. */
class LogPart<T> {
  readonly #clock: Clock;
  readonly #staleness: Staleness;
  readonly #readNow: () => Promise<T>;
  #last: T | null = null;
  #at = Number.NEGATIVE_INFINITY;
  #isReading = false;
  #failed = false;
  /** Ends with the reading, or before it if that takes long. */
  #wait: Promise<void> = Promise.resolve();

  constructor(clock: Clock, staleness: Staleness, readNow: () => Promise<T>) {
    this.#clock = clock;
    this.#staleness = staleness;
    this.#readNow = readNow;
  }

  /** The last reading did. */
  get failed(): boolean {
    return this.#failed;
  }

  /** null: nothing was read yet. */
  async read(lastRecordAt: number): Promise<T | null> {
    if (!this.#isReading && this.#isStale(lastRecordAt)) {
      this.#at = this.#clock.elapsed();
      this.#wait = withTimeout(this.#refresh(), LOG_WAIT_MS, undefined);
    }
    await this.#wait;
    return this.#last;
  }

  #isStale(lastRecordAt: number): boolean {
    const { everyMs, afterRecordMs } = this.#staleness;
    const age = this.#clock.elapsed() - this.#at;
    if (this.#last === null || this.#failed) return age >= REFRESH_MS;
    const now = this.#clock.now();
    const isNewDay = startOfDay(now) !== startOfDay(now - age);
    const hasNewRecord = this.#at < lastRecordAt + WRITE_DELAY_MS;
    return age >= everyMs || (age >= REFRESH_MS && isNewDay) || (age >= afterRecordMs && hasNewRecord);
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
