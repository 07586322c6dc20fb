import type { Status } from "../control/status.ts";
import type { Clock } from "../core/clock.ts";
import { HttpError } from "../core/errors.ts";
import { withTimeout } from "../core/timeout.ts";
import { MINUTE_MS } from "../core/units.ts";
import type { Ask } from "../usage/index/indexer.ts";
import { exportedRecord } from "../usage/reports/records.ts";
import type { SessionName } from "../usage/reports/sessions.ts";
import type { TodayComparison } from "../usage/reports/today.ts";
import type { Now } from "./api.ts";
import type { DashboardDeps } from "./deps.ts";
import { listSessions } from "./session-list.ts";

const MAX_RUNNING = 200;
const MAX_REFUSALS = 20;
const MAX_SESSIONS = 50;
/** How long a session is shown after its last request: an agent works on its own in between. */
const SESSION_MS = 10 * MINUTE_MS;
/** The daemon's status is read at most this often, and the log again this long after it could not be read. */
const REFRESH_MS = 1000;
/** The mirror corrects costs without notice. */
const RECENT_MS = 15_000;
/** After a record is finished. It can take half a second until it is in the log. */
const RECENT_AFTER_RECORD_MS = 2000;
/** With 100,000 records it takes a third of a second. */
const COMPARISON_MS = MINUTE_MS;
/** What is asked of the log is waited for this long. After that the page shows what was read before. */
const LOG_WAIT_MS = 1000;

type ViewDeps = Pick<DashboardDeps, "clock" | "controls" | "inFlight">;

/** The current state for open pages, from cached parts. */
export class NowView {
  readonly #deps: ViewDeps;
  readonly #recent: LogPart<Recent>;
  readonly #comparison: LogPart<TodayComparison>;
  #status: Promise<Status> | null = null;
  #statusReadAt = 0;
  #lastRecent: Recent | null = null;
  /** They were in flight after the log was last read, so it did not have them. */
  #unlogged: readonly SessionName[] = [];

  constructor(deps: ViewDeps, ask: Ask) {
    const { clock } = deps;
    this.#deps = deps;
    this.#recent = new LogPart(clock, RECENT_MS, () => readRecent(deps, ask));
    this.#comparison = new LogPart(clock, COMPARISON_MS, () => ask("comparison", [clock.now()]));
  }

  async read(): Promise<Now> {
    const { clock, controls, inFlight } = this.#deps;
    const [status, recent, comparison] = await Promise.all([
      this.#readStatus(),
      this.#recent.read(),
      this.#comparison.read(),
    ]);
    if (recent !== this.#lastRecent) this.#unlogged = [];
    this.#lastRecent = recent;
    const since = clock.now() - SESSION_MS;
    const wasShown = ({ tool, session }: SessionName) =>
      this.#unlogged.some((one) => one.tool === tool && one.session === session);
    const sessions = listSessions(recent?.sessions ?? [], [
      ...this.#unlogged,
      ...controls().sessions(),
    ]).filter((one) => one.running > 0 || (one.last_at ?? 0) >= since || wasShown(one));
    this.#unlogged = sessions
      .filter(({ last_at }) => last_at === null)
      .map(({ tool, session }) => ({ tool, session }));
    const { usual = null, forecast = null } = comparison ?? {};
    return {
      at: clock.now(),
      status,
      running: inFlight.list(MAX_RUNNING),
      running_total: inFlight.size,
      sessions: sessions.slice(0, MAX_SESSIONS),
      today: recent === null || this.#recent.failed ? null : { ...recent.today, usual, forecast },
      first_bytes: recent?.firstBytes ?? [],
      refusals: recent?.refusals ?? [],
    };
  }

  recordFinished(): void {
    this.#recent.readWithin(RECENT_AFTER_RECORD_MS);
  }

  #readStatus(): Promise<Status> {
    const elapsed = this.#deps.clock.elapsed();
    if (this.#status === null || elapsed - this.#statusReadAt >= REFRESH_MS) {
      this.#statusReadAt = elapsed;
      this.#status = this.#deps.controls().status();
    }
    return this.#status;
  }
}

type Recent = Awaited<ReturnType<typeof readRecent>>;

/** The sessions of calls in flight are among those, however long ago the calls began. */
async function readRecent({ clock, inFlight }: ViewDeps, ask: Ask) {
  const began = inFlight.list(MAX_RUNNING).map(({ started_at }) => started_at);
  const since = Math.min(clock.now() - SESSION_MS, ...began);
  const [today, firstBytes, sessions, refused] = await Promise.all([
    ask("today", [clock.now()]),
    ask("firstBytes", [clock.now()]),
    ask("sessions", [{ since, tools: [], projects: [] }]),
    ask("refused", [MAX_REFUSALS]),
  ]);
  return { today, firstBytes, sessions, refusals: refused.map(exportedRecord) };
}

/** What is read from the log. The page works without it, so what was read last is shown while that takes long or fails. */
class LogPart<T> {
  readonly #clock: Clock;
  readonly #everyMs: number;
  readonly #readNow: () => Promise<T>;
  #last: T | null = null;
  #dueAt = Number.NEGATIVE_INFINITY;
  #isReading = false;
  /** The last reading did. */
  failed = false;
  /** Ends with the reading, or before it if that takes long. */
  #wait: Promise<void> = Promise.resolve();

  constructor(clock: Clock, everyMs: number, readNow: () => Promise<T>) {
    this.#clock = clock;
    this.#everyMs = everyMs;
    this.#readNow = readNow;
  }

  readWithin(ms: number): void {
    this.#dueAt = Math.min(this.#dueAt, this.#clock.elapsed() + ms);
  }

  /** null: nothing was read yet. */
  async read(): Promise<T | null> {
    const elapsed = this.#clock.elapsed();
    if (!this.#isReading && elapsed >= this.#dueAt) {
      this.#dueAt = elapsed + this.#everyMs;
      this.#wait = withTimeout(this.#refresh(), LOG_WAIT_MS, undefined);
    }
    await this.#wait;
    return this.#last;
  }

  async #refresh(): Promise<void> {
    this.#isReading = true;
    try {
      this.#last = await this.#readNow();
      this.failed = false;
    } catch (error) {
      this.failed = true;
      this.readWithin(REFRESH_MS);
      if (!(error instanceof HttpError)) throw error;
    } finally {
      this.#isReading = false;
    }
  }
}
