import { setImmediate as turn } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import type { Clock } from "../../core/clock.ts";
import { errorMessage } from "../../core/errors.ts";
import type { AmendLine } from "../../usage/journal/lines.ts";
import type { ConsoleAdapter } from "../consoles/console.ts";
import { ConsoleFault } from "../consoles/console.ts";
import { type Correction, correctionOf, type PriceOf } from "../store/amendments.ts";
import { finishPlan, hasChangedDays, type Plan } from "../store/changed-days.ts";
import type { MirrorDatabase } from "../store/database.ts";
import type { CompareOptions } from "../store/load-day.ts";
import { pruneStep } from "../store/rows.ts";
import { applyStep, applySummary, type DaySummary, nextDue, type Step } from "../store/verdicts.ts";
import type { TruncationCheck } from "../truncation-check.ts";
import { askOrFail, catchUp, type MirrorUsage } from "../usage.ts";
import type { Answer, Request } from "./compare-worker.ts";

export interface ComparerDeps {
  readonly gateway: string;
  readonly clock: Clock;
  readonly database: Pick<MirrorDatabase, "ask" | "files">;
  readonly usage: Pick<MirrorUsage, "catchUp" | "amend" | "last">;
  readonly truncationCheck: Pick<TruncationCheck, "gaps">;
  readonly priceOf: PriceOf;
  /** A record took the console's numbers. */
  readonly onCorrected: (correction: Correction) => void;
}

export type ComparedAdapter = Pick<ConsoleAdapter, "idNames" | "billsFailures" | "socketRowsHaveIds">;

/** What is learned in one round can change earlier days. It settles soon; a loop must end anyway. */
const MAX_ROUNDS = 5;
/** The thread reads a day of 20,000 rows within a second. */
const READ_LIMIT_MS = 8000;

/** Gives rows and records their verdicts: a thread compares, day by day, and this stores what it finds in small steps. */
export class Comparer {
  readonly #deps: ComparerDeps;
  #running: Promise<unknown> = Promise.resolve();
  #thread: CompareThread | null = null;
  #stopped = false;

  constructor(deps: ComparerDeps) {
    this.#deps = deps;
  }

  /**
   * Compares what changed, after the comparisons that were asked for before. Returns when time alone decides on the next
   * pending row; null: never. Throws a ConsoleFault where a database or the journal cannot be used.
   */
  compare(adapter: ComparedAdapter, skew: number): Promise<number | null> {
    const compared = this.#running.catch(() => {}).then(() => this.#compare(adapter, skew));
    this.#running = compared;
    return compared;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    // Whatever it works on is compared again at the next start.
    await this.#thread?.end();
    await this.#running.catch(() => {});
  }

  async #compare(adapter: ComparedAdapter, skew: number): Promise<number | null> {
    if (this.#stopped) return null;
    const { gateway, clock, database } = this.#deps;
    const thread = new CompareThread(database.files);
    this.#thread = thread;
    try {
      for (let round = 0; round < MAX_ROUNDS; round += 1) {
        await this.#compareChanged(thread, adapter, skew);
        if (this.#stopped) return null;
        if (!askOrFail(database, (db) => hasChangedDays(db, gateway))) break;
      }
    } finally {
      this.#thread = null;
      await thread.end();
    }
    while (!this.#stopped && database.ask(pruneStep) === true) await turn();
    return askOrFail(database, (db) => nextDue(db, gateway, clock.now(), skew));
  }

  async #compareChanged(thread: CompareThread, adapter: ComparedAdapter, skew: number): Promise<void> {
    const { gateway, clock, database, usage, truncationCheck } = this.#deps;
    const startedAt = clock.now();
    const newest = await catchUp(usage);
    const now = clock.now();
    // This opens mirror.db, or begins a new one, before the thread reads it.
    const logGaps = askOrFail(database, (db) => truncationCheck.gaps(db, newest));
    const { idNames, billsFailures, socketRowsHaveIds } = adapter;
    const options = { gateway, now, skew, logGaps, idNames, billsFailures, socketRowsHaveIds };
    const plan = await thread.plan(gateway, skew, now);
    for (const day of plan.days) {
      if (this.#stopped) return;
      await this.#compareDay(thread, day, options);
    }
    if (!this.#stopped) askOrFail(database, (db) => finishPlan(db, gateway, plan, startedAt));
  }

  async #compareDay(thread: CompareThread, day: number, options: CompareOptions): Promise<void> {
    const { gateway, database, usage, priceOf } = this.#deps;
    const apply = { gateway, skew: options.skew, priceOf, amend: this.#amend };
    let summary: DaySummary;
    do {
      summary = await thread.compareDay(day, options);
      const found = summary;
      askOrFail(database, (db) => applySummary(db, found, apply));
    } while (summary.learned !== null && !this.#stopped);
    let amended = 0;
    for (
      let step = await thread.nextStep();
      step !== null && !this.#stopped;
      step = await thread.nextStep()
    ) {
      const next = step;
      amended += askOrFail(database, (db) => applyStep(db, next, apply));
      // A thread's messages come before everything else, so requests get their turn here.
      await turn();
    }
    // Otherwise the next comparison would find records as they were, and amend them once more.
    if (amended > 0) await catchUp(usage);
  }

  /** The limits follow as soon as the lines are in the journal: the next start counts from there. */
  readonly #amend = (lines: readonly AmendLine[]): void => {
    if (!this.#deps.usage.amend(lines)) throw notCompared("the usage log cannot be written");
    for (const line of lines) {
      const correction = correctionOf(line);
      if (correction !== null) this.#deps.onCorrected(correction);
    }
  };
}

/** One worker thread for one comparison, asked one thing at a time. */
class CompareThread {
  readonly #worker: Worker;
  readonly #exited: Promise<void>;
  #waiting: { resolve: (answer: Answer) => void; reject: (fault: ConsoleFault) => void } | null = null;
  /** Why it ended; null: it runs. */
  #ended: ConsoleFault | null = null;

  constructor(files: MirrorDatabase["files"]) {
    this.#worker = new Worker(workerFile(), { workerData: files, execArgv: [], env: {} });
    this.#worker.unref();
    this.#worker.on("message", (answer: Answer) => this.#waiting?.resolve(answer));
    this.#worker.on("error", (error) => this.#onEnd(errorMessage(error)));
    this.#worker.on("messageerror", (error) => this.#onEnd(errorMessage(error)));
    this.#exited = new Promise((resolve) => {
      this.#worker.on("exit", () => {
        this.#onEnd("its thread ended");
        resolve();
      });
    });
  }

  async plan(gateway: string, skew: number, now: number): Promise<Plan> {
    return (await this.#ask({ kind: "plan", gateway, skew, now })) as Plan;
  }

  async compareDay(day: number, options: CompareOptions): Promise<DaySummary> {
    return (await this.#ask({ kind: "day", day, options })) as DaySummary;
  }

  /** null: there are no more of the last day. */
  async nextStep(): Promise<Step | null> {
    return (await this.#ask({ kind: "step" })) as Step | null;
  }

  /** Resolves once the thread has ended. Terminating a thread inside libsql aborts the whole process, so it is asked. */
  async end(): Promise<void> {
    this.#worker.ref();
    this.#worker.postMessage({ kind: "stop" } satisfies Request);
    // By then it has read everything, and what it still computes is safe to terminate.
    const timer = setTimeout(() => void this.#worker.terminate(), READ_LIMIT_MS);
    await this.#exited;
    clearTimeout(timer);
  }

  async #ask(request: Request): Promise<unknown> {
    if (this.#ended !== null) throw this.#ended;
    const answer = await new Promise<Answer>((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#worker.postMessage(request);
    });
    if ("error" in answer) throw notCompared(answer.error);
    return answer.result;
  }

  #onEnd(why: string): void {
    this.#ended ??= notCompared(why);
    this.#waiting?.reject(this.#ended);
  }
}

function notCompared(why: string): ConsoleFault {
  return new ConsoleFault("failing", `could not be compared: ${why}`);
}

/** Beside this file: in the package, where all is one file, and in the tests' build. */
function workerFile(): URL {
  const ending = import.meta.url.endsWith(".ts") ? "ts" : "js";
  return new URL(`./compare-worker.${ending}`, import.meta.url);
}
