import { background } from "../../core/background.ts";
import type { Clock } from "../../core/clock.ts";
import { errorMessage } from "../../core/errors.ts";
import type { Logger } from "../../core/log.ts";
import { MINUTE_MS } from "../../core/units.ts";
import type { ConsoleConnection } from "../connect/connection.ts";
import { ConsoleError } from "../consoles/console.ts";
import type { ListedKeys } from "../listed-keys.ts";
import type { ConsoleStatus } from "../report/shape.ts";
import type { MirrorDatabase } from "../store/database.ts";
import { readTime } from "../store/facts.ts";
import { queryNumber } from "../store/query.ts";
import { catchUp, type MirrorUsage } from "../usage.ts";
import type { Comparisons } from "./comparisons.ts";
import { noteWalk, readRows } from "./read-rows.ts";
import { SyncSchedule } from "./schedule.ts";

interface ConsoleSyncDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly usage: Pick<MirrorUsage, "catchUp" | "last">;
  readonly connection: ConsoleConnection;
  readonly listedKeys: ListedKeys;
  readonly comparisons: Comparisons;
  /** Writes down which keys are held here. */
  readonly recordHeldKeys: () => void;
  /** The mirror stopped. */
  readonly signal: AbortSignal;
  /** Called every few seconds. */
  readonly onCheck: () => void;
  /** Called after each sync that failed. */
  readonly onFailed: () => Promise<void>;
}

/** A key is read early once its own requests reach this share of the rows that the console lists. Others may use it too. */
const NEARLY_FULL = 0.6;
/** Without a schedule in config.yaml, the console is read this often: while tools are active, and otherwise. */
const ACTIVE_INTERVAL_MS = MINUTE_MS;
const IDLE_INTERVAL_MS = 5 * MINUTE_MS;
/** After a request, tools count as active for this long. */
const ACTIVE_MS = 5 * MINUTE_MS;
/** Such syncs use at most a third of the calls that the console allows. */
const BUDGET_SHARE = 3;

/** Reads one console: on its schedule, and whenever it is asked to. One sync runs at a time. */
export class ConsoleSync {
  readonly #deps: ConsoleSyncDeps;
  readonly #schedule: SyncSchedule;
  #inFlight: Promise<void> | null = null;
  /** Another sync follows the one in flight. */
  #again = false;
  /** A sync that began with another number stops: the connection changed, or the rows must be read from the beginning. */
  #generation = 0;
  #error: ConsoleError | null = null;
  /** The console was read completely at least once since the start. */
  #isSynced = false;
  /** The last complete sync, also of an earlier run. */
  #lastSync: number | null;
  #progress: ConsoleStatus["progress"] = null;
  /** How many calls the last sync took. */
  #calls = 0;

  constructor(deps: ConsoleSyncDeps) {
    const { clock, log, database, connection, onCheck } = deps;
    this.#deps = deps;
    this.#lastSync = database.ask((db) => readTime(db, connection.gateway.name, "last_sync"));
    this.#schedule = new SyncSchedule(
      clock,
      () => background(this.run(), log, "reading the console"),
      () => this.#interval(),
      onCheck,
    );
    this.followSchedule();
  }

  get isSyncing(): boolean {
    return this.#inFlight !== null;
  }

  /** The console failed a short while ago, and is not to be called yet. */
  get isWaiting(): boolean {
    return this.#schedule.isWaiting;
  }

  /** Why the last sync failed; null: it did not. */
  get error(): ConsoleError | null {
    return this.#error;
  }

  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** When and how often the console is read, for `status`. */
  get times(): Pick<ConsoleStatus, "last_sync" | "next_sync" | "interval" | "progress"> {
    return {
      last_sync: this.#lastSync,
      next_sync: this.#schedule.next,
      interval: this.#schedule.interval,
      progress: this.#progress,
    };
  }

  /** config.yaml may have another schedule. */
  followSchedule(): void {
    this.#schedule.follow(this.#deps.connection.gateway.console.schedule);
  }

  /** Reads the console as it is from now on: a sync in flight may have passed the newest rows, so another one follows it. */
  start(): void {
    this.#again = this.isSyncing;
    background(this.run(), this.#deps.log, "reading the console");
  }

  /** The connection was reset: a sync in flight ends, and another one follows it. */
  restart(): void {
    this.#generation += 1;
    this.#error = null;
    this.#schedule.succeeded();
    const previous = this.#inFlight ?? Promise.resolve();
    background(
      previous.then(() => this.run()),
      this.#deps.log,
      "reading the console",
    );
  }

  /** Another console has the gateway's name: forgets when the earlier one was read. */
  forget(): void {
    this.#isSynced = false;
    this.#lastSync = null;
    this.startOver();
  }

  /** The rows must be read from the beginning. A sync in flight would write its own cursor. */
  startOver(): void {
    if (!this.isSyncing) return;
    this.#generation += 1;
    this.#again = true;
  }

  /** Reads the console now. A call during a sync waits for that one. A failure is in `error`. */
  async run(): Promise<void> {
    if (this.#deps.signal.aborted) return;
    this.#inFlight ??= this.#runAll().finally(() => {
      this.#inFlight = null;
      this.#progress = null;
    });
    await this.#inFlight;
  }

  /** Reads the console early where it would otherwise no longer list all of a key's rows. */
  async runIfBusy(): Promise<void> {
    const { usage, database, connection } = this.#deps;
    const rowsPerKey = connection.adapter?.rowsPerKey;
    if (rowsPerKey === undefined || !this.#isSynced || this.isSyncing) return;
    await catchUp(usage);
    const busiest = database.ask((db) =>
      queryNumber(
        db,
        `SELECT max(calls) FROM (SELECT count(*) AS calls FROM usage.records
         WHERE end IS NOT NULL AND gateway = ? AND started_at >= ? GROUP BY key)`,
        connection.gateway.name,
        this.#lastSync ?? 0,
      ),
    );
    if ((busiest ?? 0) >= rowsPerKey * NEARLY_FULL && !this.isWaiting) await this.run();
  }

  /** Resolves when the sync in flight has ended. */
  async stop(): Promise<void> {
    this.#schedule.stop();
    await this.#inFlight;
  }

  async #runAll(): Promise<void> {
    do {
      this.#again = false;
      await this.#runOne();
    } while (this.#again && !this.#deps.signal.aborted);
  }

  async #runOne(): Promise<void> {
    const { connection, signal } = this.#deps;
    this.#schedule.began();
    const sentBefore = connection.calls.sent;
    const generation = this.#generation;
    const isStale = () => signal.aborted || generation !== this.#generation;
    try {
      await this.#readAndCompare(isStale);
    } catch (error) {
      if (!isStale()) await this.#fail(error);
    } finally {
      this.#calls = connection.calls.sent - sentBefore;
    }
  }

  async #readAndCompare(isStale: () => boolean): Promise<void> {
    const { clock, log, usage, database, connection, listedKeys, comparisons, recordHeldKeys } = this.#deps;
    const gateway = connection.gateway.name;
    // After a start the index may be incomplete for a while, and rows cannot be written without it.
    await catchUp(usage);
    if (isStale()) return;
    const adapter = await connection.open();
    if (isStale()) return;
    await listedKeys.read(adapter, isStale);
    if (isStale()) return;
    // If mirror.db was damaged or deleted, the new one has no keys yet.
    recordHeldKeys();
    const onProgress = (progress: ConsoleStatus["progress"]) => {
      this.#progress = progress;
    };
    await readRows(adapter, { gateway, database, now: clock.now(), isStale, onProgress });
    if (isStale()) return;
    noteWalk(adapter, listedKeys.withoutAccount(), { gateway, database, now: clock.now() });
    await comparisons.compare(adapter);
    // The other accounts were read and compared; this one needs a person.
    const error = adapter.lastError?.("rows") ?? null;
    if (error !== null) throw error;
    if (this.#error !== null) log.info({ gateway }, "the console can be read again");
    this.#isSynced = true;
    this.#lastSync = clock.now();
    this.#error = null;
    this.#schedule.succeeded();
  }

  async #fail(error: unknown): Promise<void> {
    const { log, connection, onFailed } = this.#deps;
    const gateway = connection.gateway.name;
    const before = this.#error;
    let consoleError: ConsoleError;
    if (error instanceof ConsoleError) consoleError = error;
    else {
      log.error({ err: error, gateway }, "reading or comparing console rows failed");
      consoleError = new ConsoleError("failing", `could not be read and compared: ${errorMessage(error)}`);
    }
    this.#error = consoleError;
    this.#schedule.failed(consoleError.retryAfter);
    // After any other error the connection stays, with its session and the time of a refused password.
    if (consoleError.kind === "not-a-console" || consoleError.kind === "other-shape") connection.close();
    if (before?.kind !== consoleError.kind || before.message !== consoleError.message)
      log.warn({ gateway, kind: consoleError.kind }, `the console ${consoleError.message}`);
    await onFailed();
  }

  /** Milliseconds between two syncs. A sync that took many calls is followed by a longer pause. */
  #interval(): number {
    const { usage, clock, connection } = this.#deps;
    const last = usage.last()?.started_at ?? Number.NEGATIVE_INFINITY;
    const isActive = Math.abs(clock.now() - last) < ACTIVE_MS;
    const usual = isActive ? ACTIVE_INTERVAL_MS : IDLE_INTERVAL_MS;
    const affordable = Math.min(IDLE_INTERVAL_MS, BUDGET_SHARE * connection.calls.timeFor(this.#calls));
    return Math.max(usual, affordable, connection.adapter?.leastInterval?.() ?? 0);
  }
}
