import { setImmediate as turn } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { background } from "../../background.ts";
import type { Clock } from "../../clock.ts";
import type { Logger } from "../../logger.ts";
import { reason } from "../../reason.ts";
import type { AmendLine } from "../../usage/journal/lines.ts";
import type { ConsoleAdapter } from "../consoles/console.ts";
import { ConsoleFault } from "../consoles/console.ts";
import { finishPlan, hasChangedDays } from "../store/changed-days.ts";
import type { MirrorDatabase } from "../store/database.ts";
import type { CompareOptions } from "../store/load-day.ts";
import { pruneStep } from "../store/rows.ts";
import {
  applyStep,
  applySummary,
  type Correction,
  correctionOf,
  type DaySummary,
  nextDue,
  type PriceOf,
} from "../store/verdicts.ts";
import type { TruncationCheck } from "../truncation-check.ts";
import { askOrFail, catchUp, type LastRecord, type MirrorUsage } from "../usage.ts";
import type { Answer, Request } from "./compare-worker.ts";

export interface ComparerDeps {
  readonly gateway: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask" | "files">;
  readonly usage: Pick<MirrorUsage, "catchUp" | "amend" | "last">;
  readonly truncationCheck: Pick<TruncationCheck, "gaps">;
  readonly skew: () => number;
  readonly priceOf: PriceOf;
  /** A record took the console's numbers. */
  readonly onCorrected: (correction: Correction) => void;
  /** Everything has its verdict as of now. */
  readonly onCompared: () => void;
}

export type ComparedAdapter = Pick<ConsoleAdapter, "idNames" | "billsFailures" | "socketRowsHaveIds">;

/** Whatever is due, it is not compared more often. */
const SHORTEST_MS = 1000;
/** Timers hold no longer, and the clock on the wall may be set. */
const LONGEST_MS = 10 * 60_000;
/** What is learned in one round can change earlier days. It settles soon; a loop must end anyway. */
const MAX_ROUNDS = 5;

/** Gives rows and records their verdicts: a thread compares, day by day, and this stores what it finds in small steps. */
export class Comparer {
  readonly #deps: ComparerDeps;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #thread: CompareThread | null = null;
  #stopped = false;

  constructor(deps: ComparerDeps) {
    this.#deps = deps;
  }

  /** One after the other, so that the last one has seen everything. Throws a ConsoleFault where the log says no. */
  async compare(adapter: ComparedAdapter): Promise<void> {
    const before = this.#running.catch(() => {});
    const mine = before.then(() => this.#compare(adapter));
    this.#running = mine;
    await mine;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    // What it works on is compared again at the next start.
    await this.#thread?.end();
    await this.#running.catch(() => {});
  }

  async #compare(adapter: ComparedAdapter): Promise<void> {
    if (this.#stopped) return;
    const { gateway, clock, database } = this.#deps;
    const thread = new CompareThread(database.files);
    this.#thread = thread;
    try {
      for (let round = 0; round < MAX_ROUNDS; round += 1) {
        await this.#compareChanged(thread, adapter);
        if (this.#stopped) return;
        if (!askOrFail(this.#deps.database, (db) => hasChangedDays(db, gateway))) break;
      }
    } finally {
      this.#thread = null;
      await thread.end();
    }
    const due = askOrFail(this.#deps.database, (db) => nextDue(db, gateway, clock.now(), this.#deps.skew()));
    this.#compareAgainAt(due, adapter);
    this.#deps.onCompared();
    while (!this.#stopped && database.ask(pruneStep) === true) await turn();
  }

  async #compareChanged(thread: CompareThread, adapter: ComparedAdapter): Promise<void> {
    const { gateway, clock } = this.#deps;
    const startedAt = clock.now();
    const newest = await catchUp(this.#deps.usage);
    // It opens the file, or begins a new one, before the thread reads it.
    const options = this.#options(adapter, newest);
    const plan = await thread.plan({ kind: "plan", gateway, skew: options.skew, now: options.now });
    for (const day of plan.days) {
      if (this.#stopped) return;
      await this.#compareDay(thread, day, options);
    }
    if (!this.#stopped) askOrFail(this.#deps.database, (db) => finishPlan(db, gateway, plan, startedAt));
  }

  async #compareDay(thread: CompareThread, day: number, options: CompareOptions): Promise<void> {
    const { gateway, priceOf } = this.#deps;
    const apply = { gateway, skew: options.skew, priceOf, amend: this.#amend };
    let summary: DaySummary;
    do {
      summary = await thread.day(day, options);
      const found = summary;
      askOrFail(this.#deps.database, (db) => applySummary(db, found, apply));
    } while (summary.learned !== null && !this.#stopped);
    let amended = 0;
    for (let step = await thread.step(); step !== null && !this.#stopped; step = await thread.step()) {
      const next = step;
      amended += askOrFail(this.#deps.database, (db) => applyStep(db, next, apply));
      // Messages of a thread go before everything else: requests get their turn here.
      await turn();
    }
    // Else the next comparison would find records as they were, and amend them once more.
    if (amended > 0) await catchUp(this.#deps.usage);
  }

  #options(adapter: ComparedAdapter, newest: LastRecord | null): CompareOptions {
    const { gateway, clock, truncationCheck } = this.#deps;
    const { idNames, billsFailures, socketRowsHaveIds } = adapter;
    const logGaps = askOrFail(this.#deps.database, (db) => truncationCheck.gaps(db, newest));
    const shared = { gateway, now: clock.now(), skew: this.#deps.skew(), logGaps };
    return { ...shared, idNames, billsFailures, socketRowsHaveIds };
  }

  /** Limits follow as soon as the lines are in the journal: at the next start they are counted from there. */
  readonly #amend = (lines: readonly AmendLine[]): void => {
    if (!this.#deps.usage.amend(lines))
      throw new ConsoleFault("failing", "could not be compared: the usage log cannot be written");
    for (const line of lines) {
      const correction = correctionOf(line);
      if (correction !== null) this.#deps.onCorrected(correction);
    }
  };

  #compareAgainAt(due: number | null, adapter: ComparedAdapter): void {
    clearTimeout(this.#timer);
    if (due === null || this.#stopped) return;
    const wait = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, due - this.#deps.clock.now()));
    this.#timer = setTimeout(() => {
      // Should it fail, the next sync says so.
      background(
        this.compare(adapter).catch(() => {}),
        this.#deps.log,
        "comparing again",
      );
    }, wait).unref();
  }
}

/** One thread for one comparison. */
class CompareThread {
  readonly #worker: Worker;
  #answer: { resolve: (answer: Answer) => void; reject: (error: unknown) => void } | null = null;
  /** Why it ended; null: it runs. */
  #ended: ConsoleFault | null = null;

  constructor(files: MirrorDatabase["files"]) {
    this.#worker = new Worker(workerFile(), { workerData: files, execArgv: [], env: {} });
    this.#worker.unref();
    this.#worker.on("message", (answer: Answer) => this.#answer?.resolve(answer));
    this.#worker.on("error", (error) => this.#onEnd(reason(error)));
    this.#worker.on("messageerror", (error) => this.#onEnd(reason(error)));
    this.#worker.on("exit", () => this.#onEnd("its thread ended"));
  }

  #onEnd(why: string): void {
    this.#ended ??= new ConsoleFault("failing", `could not be compared: ${why}`);
    this.#answer?.reject(this.#ended);
  }

  async plan(request: Extract<Request, { kind: "plan" }>) {
    const answer = await this.#ask(request);
    if (answer.kind !== "plan") throw unexpected(answer);
    return answer.plan;
  }

  async day(day: number, options: CompareOptions) {
    const answer = await this.#ask({ kind: "day", day, options });
    if (answer.kind !== "day") throw unexpected(answer);
    return answer.summary;
  }

  /** null: there is no more. */
  async step() {
    const answer = await this.#ask({ kind: "step" });
    if (answer.kind !== "step") throw unexpected(answer);
    return answer.step;
  }

  async end(): Promise<void> {
    await this.#worker.terminate();
  }

  #ask(request: Request): Promise<Answer> {
    if (this.#ended !== null) return Promise.reject(this.#ended);
    return new Promise((resolve, reject) => {
      this.#answer = { resolve, reject };
      this.#worker.postMessage(request);
    });
  }
}

function unexpected(answer: Answer): ConsoleFault {
  const why = answer.kind === "failed" ? answer.reason : `the thread answered ${answer.kind}`;
  return new ConsoleFault("failing", `could not be compared: ${why}`);
}

/** Beside this file: in the package, where all is one file, and in the tests' build. */
function workerFile(): URL {
  const ending = import.meta.url.endsWith(".ts") ? "ts" : "js";
  return new URL(`./compare-worker.${ending}`, import.meta.url);
}
