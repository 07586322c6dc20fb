import { setImmediate as turn } from "node:timers/promises";
import type { Snapshot } from "../../config/snapshot.ts";
import type { Clock } from "../../core/clock.ts";
import { MINUTE_MS } from "../../core/units.ts";
import { type Prices, toMicrodollars } from "../../metering/prices.ts";
import type { Tokens } from "../../metering/usage.ts";
import type { UsageRecord } from "../../usage/record.ts";
import type { ConsoleConnection } from "../connect/connection.ts";
import { type ConsoleAdapter, ConsoleError } from "../consoles/console.ts";
import type { LostRecords } from "../lost-records.ts";
import { blindSiblings, type Sibling } from "../reconcile/siblings.ts";
import { billsAsStreamed } from "../store/aborted-bills.ts";
import { type Amendment, type Correction, computeCorrection } from "../store/amendments.ts";
import { finishPlan, hasChangedDays } from "../store/changed-days.ts";
import type { MirrorDatabase } from "../store/database.ts";
import type { CompareOptions } from "../store/load-day.ts";
import { pruneStep, type WaitingRow } from "../store/rows.ts";
import { applyStep, applySummary, nextDue, type VerdictTally } from "../store/verdicts.ts";
import { askOrFail, catchUp, type MirrorUsage } from "../usage.ts";
import { type MirrorReader, type MirrorThread, ThreadError, type ThreadOnDemand } from "./mirror-thread.ts";

export interface ComparisonsDeps {
  readonly clock: Clock;
  readonly snapshot: () => Snapshot;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly reader: Pick<MirrorReader, "ask" | "createThread">;
  readonly usage: Pick<MirrorUsage, "catchUp" | "amend" | "last">;
  readonly prices: Prices;
  readonly lostRecords: Pick<LostRecords, "gaps">;
  readonly siblings: () => readonly Sibling[];
  readonly connection: Pick<ConsoleConnection, "gateway" | "adapter" | "skew">;
  /** The mirror stopped. */
  readonly signal: AbortSignal;
  /** A record took the console's numbers. */
  readonly onCorrected: (correction: Correction) => void;
  /** How many rows got which verdict. */
  readonly onJudged: (judged: VerdictTally) => void;
  /** Called after each comparison. */
  readonly onCompared: () => Promise<void>;
}

/** What a comparison needs to know of the console. */
type ComparedAdapter = Pick<ConsoleAdapter, "idNames" | "billsFailures" | "socketRowsHaveIds">;

/** One comparison in flight. */
interface Comparison {
  readonly thread: MirrorThread;
  readonly adapter: ComparedAdapter;
  readonly skew: number;
  /** It must not write any more. */
  readonly isStale: () => boolean;
}

/** What is learned in one round can change earlier days. It settles soon; a loop must end anyway. */
const MAX_ROUNDS = 5;
/** Pending rows are compared again when they are due, within these bounds. */
const AGAIN_MIN_MS = 1000;
const AGAIN_MAX_MS = 10 * MINUTE_MS;

/**
 * The comparisons with one console, and what the last one found. There is one after each sync, when something that is
 * pending is due, and when the records of another machine have come. Each gives rows and records their verdicts: a thread
 * compares them day by day, and the results are stored here in small steps.
 */
export class Comparisons {
  readonly #deps: ComparisonsDeps;
  /** A report must not wait for a comparison, so this is not the reader's. */
  readonly #thread: ThreadOnDemand;
  /** The comparisons that were requested so far, one after the other. */
  #inFlight: Promise<unknown> = Promise.resolve();
  /** A comparison that began with another number is stale: another console has the gateway's name since. */
  #generation = 0;
  #againTimer: NodeJS.Timeout | undefined;
  /** The rows that waited for records of siblings. */
  #waitingRows: readonly WaitingRow[] = [];
  #blind: string | null = null;
  #billsAsStreamed = false;

  constructor(deps: ComparisonsDeps) {
    this.#deps = deps;
    this.#thread = deps.reader.createThread();
    this.#readBilling();
  }

  /** Why the console's rows cannot show a leak; null: they can. */
  get blind(): string | null {
    return this.#blind;
  }

  /** Streams that a client ended were billed by what had been sent, see aborted-bills.ts. */
  get billsAsStreamed(): boolean {
    return this.#billsAsStreamed;
  }

  /** Another console has the gateway's name, and what the earlier one said was deleted: forgets what its rows showed. */
  forget(): void {
    this.#generation += 1;
    clearTimeout(this.#againTimer);
    this.#waitingRows = [];
    this.#blind = null;
    this.#readBilling();
  }

  /**
   * Compares what changed, after the comparisons that were requested before. Throws a ConsoleError if a database or the journal
   * cannot be used.
   */
  async compare(adapter: ComparedAdapter): Promise<void> {
    const { reader, clock, siblings, connection, signal, onCompared } = this.#deps;
    const { name } = connection.gateway;
    const comparing = this.#inFlight.then(() => this.#compareOnce(adapter));
    // Its caller gets the failure. It must not end the next comparison.
    this.#inFlight = comparing.catch(() => null);
    const due = await comparing;
    if (signal.aborted) return;
    this.#readBilling();
    this.#blind = await reader.ask("findBlindness", name, clock.now());
    const skew = connection.skew ?? 0;
    this.#waitingRows = siblings().length === 0 ? [] : ((await reader.ask("waitingRows", name, skew)) ?? []);
    await onCompared();
    clearTimeout(this.#againTimer);
    if (due !== null && !signal.aborted) this.#compareAgainAt(due);
  }

  /** Compares again once the records that a row waits for have come. The next sync may be hours away, or fail. */
  async compareIfSeen(): Promise<void> {
    const { siblings, connection } = this.#deps;
    const { adapter } = connection;
    const waiting = this.#waitingRows;
    const isSeen = ({ key, began }: WaitingRow) => blindSiblings(key, began, siblings()).length === 0;
    if (adapter === null || !waiting.some(isSeen)) return;
    // The next check must not start another comparison.
    this.#waitingRows = [];
    try {
      await this.compare(adapter);
    } catch {
      // The next sync fails in the same way, and says so.
      this.#waitingRows = waiting;
    }
  }

  /** Call it when the signal is aborted. */
  async stop(): Promise<void> {
    clearTimeout(this.#againTimer);
    // Whatever it works on is compared again at the next start.
    await this.#thread.stop();
    await this.#inFlight;
  }

  #readBilling(): void {
    const { database, connection } = this.#deps;
    this.#billsAsStreamed = database.ask((db) => billsAsStreamed(db, connection.gateway.name)) ?? false;
  }

  #compareAgainAt(due: number): void {
    const { connection, clock } = this.#deps;
    // Timers are limited to 24 days, and the wall clock may be set.
    const wait = Math.min(AGAIN_MAX_MS, Math.max(AGAIN_MIN_MS, due - clock.now()));
    this.#againTimer = setTimeout(() => {
      // null: the connection was reset. The sync that follows compares, by the rules of the console that it finds.
      const { adapter } = connection;
      if (adapter === null) return;
      this.compare(adapter).catch(() => {
        // The next sync fails in the same way, and says so.
      });
    }, wait).unref();
  }

  /** Returns when time alone decides the next pending row; null: never. */
  async #compareOnce(adapter: ComparedAdapter): Promise<number | null> {
    const { connection, clock, database, signal } = this.#deps;
    const { name } = connection.gateway;
    const skew = connection.skew ?? 0;
    const generation = this.#generation;
    const isStale = () => signal.aborted || generation !== this.#generation;
    if (isStale()) return null;
    try {
      await this.#thread.use((thread) => this.#compareRounds({ thread, adapter, skew, isStale }));
    } catch (error) {
      throw error instanceof ThreadError ? notCompared(error.message) : error;
    }
    while (!isStale() && database.ask(pruneStep) === true) await turn();
    if (isStale()) return null;
    return askOrFail(database, (db) => nextDue(db, name, clock.now(), skew));
  }

  async #compareRounds(comparison: Comparison): Promise<void> {
    const { database, connection } = this.#deps;
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      await this.#compareChanged(comparison);
      if (comparison.isStale()) return;
      if (!askOrFail(database, (db) => hasChangedDays(db, connection.gateway.name))) return;
    }
  }

  async #compareChanged(comparison: Comparison): Promise<void> {
    const { connection, clock, database, usage, lostRecords } = this.#deps;
    const { thread, adapter, skew, isStale } = comparison;
    const gateway = connection.gateway.name;
    const startedAt = clock.now();
    // Read before the index catches up: it then has every record from before their seenUntil.
    const siblings = this.#deps.siblings();
    const newest = await catchUp(usage);
    const now = clock.now();
    // This opens mirror.db, or begins a new one, before the thread reads it.
    const logGaps = askOrFail(database, (db) => lostRecords.gaps(db, newest));
    const { idNames, billsFailures, socketRowsHaveIds } = adapter;
    const options = { gateway, now, skew, logGaps, siblings, idNames, billsFailures, socketRowsHaveIds };
    const plan = await thread.ask("plan", gateway, { now, skew, siblings });
    for (const day of plan.days) {
      if (isStale()) return;
      await this.#compareDay(comparison, day, options);
    }
    if (!isStale()) askOrFail(database, (db) => finishPlan(db, gateway, plan, startedAt));
  }

  async #compareDay({ thread, isStale }: Comparison, day: number, options: CompareOptions): Promise<void> {
    const { database, usage } = this.#deps;
    const { gateway, skew } = options;
    const apply = { gateway, skew, findPrice: this.#findPrice, amend: this.#amend };
    let isLearning = true;
    let judged: VerdictTally = {};
    while (isLearning) {
      const summary = await thread.ask("day", day, options);
      if (isStale()) return;
      askOrFail(database, (db) => applySummary(db, summary, apply));
      isLearning = summary.learned !== null;
      judged = summary.judged;
    }
    let amended = 0;
    while (!isStale()) {
      const step = await thread.ask("step");
      if (step === null || isStale()) break;
      amended += askOrFail(database, (db) => applyStep(db, step, apply));
      // A thread's messages come before everything else, so requests get their turn here.
      await turn();
    }
    if (!isStale()) this.#deps.onJudged(judged);
    // Otherwise the next comparison would find records as they were, and amend them again.
    if (amended > 0) await catchUp(usage);
  }

  /** The limits follow as soon as the lines are in the journal: the next start counts from there. */
  readonly #amend = (lines: readonly Amendment[]): void => {
    if (!this.#deps.usage.amend(lines)) throw notCompared("the usage log cannot be written");
    for (const line of lines) {
      const correction = computeCorrection(line);
      if (correction !== null) this.#deps.onCorrected(correction);
    }
  };

  readonly #findPrice = (record: UsageRecord, tokens: Tokens): { list: number; cost: number } | null => {
    const names = { asked: record.model, answered: record.model_answered };
    const { prices } = this.#deps.snapshot().config;
    const price = this.#deps.prices.findPrice(names, tokens, record.started_at, prices);
    if (price === null) return null;
    return { list: toMicrodollars(price), cost: toMicrodollars(price, record.multiplier) };
  };
}

function notCompared(problem: string): ConsoleError {
  return new ConsoleError("failing", `could not be compared: ${problem}`);
}
