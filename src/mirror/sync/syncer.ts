import { setImmediate as turn } from "node:timers/promises";
import { background } from "../../background.ts";
import type { Clock } from "../../clock.ts";
import type { Console, Gateway } from "../../config/shape.ts";
import type { Logger } from "../../logger.ts";
import { reason } from "../../reason.ts";
import type { AccountFacts, ConsoleAdapter, ConsoleKey } from "../consoles/console.ts";
import { ConsoleFault } from "../consoles/console.ts";
import type { ConsoleStatus } from "../report/shape.ts";
import type { MirrorDatabase } from "../store/database.ts";
import { readCursor, writePage, writeRows } from "../store/rows.ts";
import { askOrFail } from "../usage.ts";
import { backOff } from "./back-off.ts";
import { createTiming, type Timing } from "./timing.ts";

export interface SyncerMeans {
  readonly gateway: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask">;
  /** Makes sure that rows can be written: the index must be there. Throws a ConsoleFault. */
  readonly prepare: () => Promise<void>;
  /** Makes the adapter from the configuration in force. Throws a ConsoleFault. */
  readonly connect: () => Promise<ConsoleAdapter>;
  /** How far back the first walk goes. */
  readonly since: () => number;
  /** The console's keys were read: which of them are held here is written down. */
  readonly onKeys: (keys: readonly ConsoleKey[]) => void;
  /** The rows are there: they are compared, and alarms are raised. */
  readonly onRows: (adapter: ConsoleAdapter) => Promise<void>;
  /** They could not be read: what was raised before stands, and is told again in its time. */
  readonly onFailed: () => void;
  /** How many requests went out since then with the key that was used most. */
  readonly busiestKey: (since: number) => Promise<number>;
}

/** What the console last told beside its rows. */
export interface ConsoleFacts {
  readonly account: AccountFacts | null;
  readonly keys: readonly ConsoleKey[] | null;
  readonly asOf: number;
}

interface Failure {
  readonly fault: ConsoleFault;
  readonly at: number;
  readonly count: number;
  readonly wait: number;
  readonly retryAt: number;
}

/** So many rows are written without a pause. */
const AT_ONCE = 250;
/** Of the rows that a console lists of a key. Others may use the key too, and more calls come while it is read. */
const NEARLY = 0.6;

/** Keeps the rows of one gateway's console here, and says how that goes. Never touches a request. */
export class Syncer {
  readonly #means: SyncerMeans;
  readonly #timing: Timing;
  #running: Promise<void> | null = null;
  #adapter: ConsoleAdapter | null = null;
  /** How often it has begun anew: what a sync from before that finds out does not count any more. */
  #renewed = 0;
  #failure: Failure | null = null;
  #retry: NodeJS.Timeout | undefined;
  #lastSync: number | null = null;
  #progress: ConsoleStatus["progress"] = null;
  #facts: ConsoleFacts | null = null;
  #stopped = false;

  constructor(means: SyncerMeans) {
    this.#means = means;
    this.#timing = createTiming(
      means.clock,
      () => void this.look(),
      () => background(this.lookEarly(), means.log, "checking how busy the keys are"),
    );
  }

  get adapter(): ConsoleAdapter | null {
    return this.#adapter;
  }

  get facts(): ConsoleFacts | null {
    return this.#facts;
  }

  /** The schedule to follow. */
  follow({ schedule }: Console): void {
    this.#timing.follow(schedule);
  }

  /** Something of what it was made from changed, or somebody logged in: it begins anew, at once. */
  renew(): void {
    this.#renewed += 1;
    this.#adapter = null;
    this.#failure = null;
    void this.#running?.then(() => this.sync());
    void this.sync();
  }

  /** By itself: not while it was asked to wait. */
  look(): Promise<void> {
    const { wait, retryAt } = this.#failure ?? { wait: 0, retryAt: 0 };
    const left = retryAt - this.#means.clock.now();
    // More than it was asked to wait: the clock was set back, and that time may be weeks away.
    return left > 0 && left <= wait ? Promise.resolve() : this.sync();
  }

  /** Before its time, where the console would otherwise no longer list everything. */
  async lookEarly(): Promise<void> {
    const most = this.#adapter?.rowsPerKey;
    if (most === undefined || this.#lastSync === null || this.#running !== null) return;
    const calls = await this.#means.busiestKey(this.#lastSync);
    if (calls >= most * NEARLY) await this.look();
  }

  /** Now. One at a time: whoever asks while one runs waits for that one. */
  sync(): Promise<void> {
    if (this.#stopped) return Promise.resolve();
    const began = this.#renewed;
    this.#running ??= this.#sync(began)
      .catch((error) => (began === this.#renewed ? this.#fail(error) : undefined))
      .finally(() => {
        this.#running = null;
        this.#progress = null;
      });
    return this.#running;
  }

  state(): Pick<ConsoleStatus, "last_sync" | "next_sync" | "progress"> & {
    readonly running: boolean;
    readonly fault: ConsoleFault | null;
  } {
    return {
      running: this.#running !== null,
      fault: this.#failure?.fault ?? null,
      last_sync: this.#lastSync,
      next_sync: this.#failure?.retryAt ?? this.#timing.next(),
      progress: this.#progress,
    };
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#retry);
    this.#timing.stop();
    await this.#running;
  }

  async #sync(began: number): Promise<void> {
    const isOver = () => this.#stopped || began !== this.#renewed;
    await this.#means.prepare();
    if (isOver()) return;
    const adapter = this.#adapter ?? (await this.#means.connect());
    if (isOver()) return;
    this.#adapter = adapter;
    await this.#readFacts(adapter, isOver);
    await this.#walk(adapter, isOver);
    if (isOver()) return;
    await this.#compare(adapter);
    // The other accounts were read and compared; this one needs somebody.
    const fault = adapter.fault?.() ?? null;
    if (fault !== null) throw fault;
    this.#lastSync = this.#means.clock.now();
    if (this.#failure !== null) this.#means.log.info(this.#words(), "the console can be read again");
    this.#failure = null;
    clearTimeout(this.#retry);
  }

  /** What fails here is not the console's fault. */
  async #compare(adapter: ConsoleAdapter): Promise<void> {
    try {
      await this.#means.onRows(adapter);
    } catch (error) {
      if (error instanceof ConsoleFault) throw error;
      this.#means.log.error({ err: error, ...this.#words() }, "the mirror failed");
      throw new ConsoleFault("failing", `could not be compared: ${reason(error)}`);
    }
  }

  /** Before the rows, so that whose they are is known when they come. */
  async #readFacts(adapter: ConsoleAdapter, isOver: () => boolean): Promise<void> {
    const keys = await adapter.keys();
    if (isOver()) return;
    if (keys !== null) this.#means.onKeys(keys);
    const account = await adapter.account();
    if (isOver()) return;
    this.#facts = { account, keys: keys ?? this.#facts?.keys ?? null, asOf: this.#means.clock.now() };
  }

  async #walk(adapter: ConsoleAdapter, isOver: () => boolean): Promise<void> {
    if (isOver()) return;
    const { gateway, since } = this.#means;
    // First: it may find that the console is another one, and forget the mark.
    const from = since();
    const mark = askOrFail(this.#means.database, (db) => readCursor(db, gateway));
    for await (const page of adapter.walk(mark, from)) {
      // A first walk has many pages, and a page many rows: requests go between them.
      for (let at = 0; at + AT_ONCE < page.rows.length; at += AT_ONCE) {
        if (isOver()) return;
        askOrFail(this.#means.database, (db) => writeRows(db, gateway, page.rows.slice(at, at + AT_ONCE)));
        await turn();
      }
      if (isOver()) return;
      const last = Math.max(0, Math.ceil(page.rows.length / AT_ONCE) - 1) * AT_ONCE;
      askOrFail(this.#means.database, (db) =>
        writePage(db, gateway, { ...page, rows: page.rows.slice(last) }),
      );
      this.#progress = { done: page.done, total: page.total };
      await turn();
    }
  }

  #fail(error: unknown): void {
    if (this.#stopped) return;
    const { clock, log } = this.#means;
    const fault =
      error instanceof ConsoleFault
        ? error
        : new ConsoleFault("failing", `was not understood: ${reason(error)}`);
    if (!(error instanceof ConsoleFault)) log.error({ err: error, ...this.#words() }, "the mirror failed");
    const before = this.#failure;
    const count = (before?.count ?? 0) + 1;
    const wait = backOff(count, fault.retryAfter);
    this.#failure = { fault, at: before?.at ?? clock.now(), count, wait, retryAt: clock.now() + wait };
    // It may be another console than it was, or of another kind. Everything else keeps its session, and what that knows
    // of a password that was refused.
    if (fault.kind === "not-a-console" || fault.kind === "other-shape") this.#adapter = null;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.look(), wait).unref();
    const news = before?.fault.kind !== fault.kind || before.fault.message !== fault.message;
    if (news) log.warn({ ...this.#words(), kind: fault.kind }, `the console ${fault.message}`);
    this.#means.onFailed();
  }

  #words(): { gateway: string } {
    return { gateway: this.#means.gateway };
  }
}

/** Whether two configurations of a gateway are read by the same adapter. */
export function sameConsole(one: Gateway, other: Gateway): boolean {
  const shape = ({ console, proxy, authority, baseUrl }: Gateway) =>
    JSON.stringify([console?.kind, console?.url, console?.logins, proxy, authority, baseUrl]);
  return shape(one) === shape(other);
}
