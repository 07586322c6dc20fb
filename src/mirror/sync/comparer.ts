import { setImmediate as turn } from "node:timers/promises";
import type { Clock } from "../../core/clock.ts";
import type { ConsoleAdapter } from "../consoles/console.ts";
import { ConsoleError } from "../consoles/console.ts";
import type { LostRecords } from "../lost-records.ts";
import type { Sibling } from "../reconcile/siblings.ts";
import { type Amendment, type Correction, computeCorrection, type FindPrice } from "../store/amendments.ts";
import { finishPlan, hasChangedDays } from "../store/changed-days.ts";
import type { MirrorDatabase } from "../store/database.ts";
import type { CompareOptions } from "../store/load-day.ts";
import { pruneStep } from "../store/rows.ts";
import { applyStep, applySummary, type DaySummary, nextDue } from "../store/verdicts.ts";
import { askOrFail, catchUp, type MirrorUsage } from "../usage.ts";
import { type MirrorReader, type MirrorThread, ThreadError, type ThreadOnDemand } from "./mirror-thread.ts";

export interface ComparerDeps {
  readonly gateway: string;
  readonly clock: Clock;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly reader: Pick<MirrorReader, "createThread">;
  readonly usage: Pick<MirrorUsage, "catchUp" | "amend" | "last">;
  readonly lostRecords: Pick<LostRecords, "gaps">;
  readonly siblings: () => readonly Sibling[];
  readonly findPrice: FindPrice;
  /** A record took the console's numbers. */
  readonly onCorrected: (correction: Correction) => void;
}

type ComparedAdapter = Pick<ConsoleAdapter, "idNames" | "billsFailures" | "socketRowsHaveIds">;

/** What is learned in one round can change earlier days. It settles soon; a loop must end anyway. */
const MAX_ROUNDS = 5;

/** Gives rows and records their verdicts: a thread compares them day by day, and this stores the results in small steps. */
export class Comparer {
  readonly #deps: ComparerDeps;
  /** A report must not wait for a comparison, so this is not the reader's. */
  readonly #thread: ThreadOnDemand;
  #inFlight: Promise<unknown> = Promise.resolve();
  #stopped = false;

  constructor(deps: ComparerDeps) {
    this.#deps = deps;
    this.#thread = deps.reader.createThread();
  }

  /**
   * Compares what changed, after the comparisons that were requested before. Returns when time alone decides the next
   * pending row; null: never. Throws a ConsoleError if a database or the journal cannot be used.
   */
  compare(adapter: ComparedAdapter, skew: number): Promise<number | null> {
    const compared = this.#inFlight.then(() => this.#compare(adapter, skew));
    // Its caller gets the failure. It must not end the next comparison.
    this.#inFlight = compared.catch(() => null);
    return compared;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    // Whatever it works on is compared again at the next start.
    await this.#thread.stop();
    await this.#inFlight;
  }

  async #compare(adapter: ComparedAdapter, skew: number): Promise<number | null> {
    if (this.#stopped) return null;
    const { gateway, clock, database } = this.#deps;
    try {
      await this.#thread.use((thread) => this.#compareRounds(thread, adapter, skew));
    } catch (error) {
      throw error instanceof ThreadError ? notCompared(error.message) : error;
    }
    while (!this.#stopped && database.ask(pruneStep) === true) await turn();
    if (this.#stopped) return null;
    return askOrFail(database, (db) => nextDue(db, gateway, clock.now(), skew));
  }

  async #compareRounds(thread: MirrorThread, adapter: ComparedAdapter, skew: number): Promise<void> {
    const { gateway, database } = this.#deps;
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      await this.#compareChanged(thread, adapter, skew);
      if (this.#stopped) return;
      if (!askOrFail(database, (db) => hasChangedDays(db, gateway))) return;
    }
  }

  async #compareChanged(thread: MirrorThread, adapter: ComparedAdapter, skew: number): Promise<void> {
    const { gateway, clock, database, usage, lostRecords } = this.#deps;
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
      if (this.#stopped) return;
      await this.#compareDay(thread, day, options);
    }
    if (!this.#stopped) askOrFail(database, (db) => finishPlan(db, gateway, plan, startedAt));
  }

  async #compareDay(thread: MirrorThread, day: number, options: CompareOptions): Promise<void> {
    const { gateway, database, usage, findPrice } = this.#deps;
    const apply = { gateway, skew: options.skew, findPrice, amend: this.#amend };
    let summary: DaySummary;
    do {
      summary = await thread.ask("day", day, options);
      const found = summary;
      askOrFail(database, (db) => applySummary(db, found, apply));
    } while (summary.learned !== null && !this.#stopped);
    let amended = 0;
    while (!this.#stopped) {
      const step = await thread.ask("step");
      if (step === null) break;
      amended += askOrFail(database, (db) => applyStep(db, step, apply));
      // A thread's messages come before everything else, so requests get their turn here.
      await turn();
    }
    // Otherwise the next comparison would find records as they were, and amend them once more.
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
}

function notCompared(problem: string): ConsoleError {
  return new ConsoleError("failing", `could not be compared: ${problem}`);
}
