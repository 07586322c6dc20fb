import { Worker } from "node:worker_threads";
import { background } from "../../core/background.ts";
import { errorMessage } from "../../core/errors.ts";
import type { Logger } from "../../core/log.ts";
import { withTimeout } from "../../core/timeout.ts";
import { MINUTE_MS } from "../../core/units.ts";
import type { QuestionName, Questions } from "../reports/questions.ts";
import { IndexError } from "./database.ts";
import type { Answer, WorkerData } from "./index-worker.ts";
import { LoadedPackage, REPLACED } from "./loaded-package.ts";
import type { Request, RunKind } from "./request-queue.ts";
import { type IndexOptions, type Progress, readStamp } from "./usage-index.ts";

/** How much of the journal is in the index. */
export interface IndexState {
  /** It has everything that was appended before it was asked. */
  readonly current: boolean;
  /** From 0 to 1, by bytes. */
  readonly share: number;
  readonly rebuilding: boolean;
  /** Why it does not continue; null: it does. */
  readonly waitingFor: string | null;
  /** Lines of the journal that could not be read; null: unknown yet. */
  readonly damagedLines: number | null;
}

interface IndexerDeps extends IndexOptions {
  readonly log: Logger;
}

/** The thread is started after this many writes, or when the first of them is this old. */
const MAX_WAITING_WRITES = 3000;
const MAX_WAITING_MS = MINUTE_MS;
/** A thread without work ends after this time, so that an idle daemon stays small. To start one takes 80 ms of CPU. */
const IDLE_MS = 5000;
/** An open page asks again every 15 s. */
const IDLE_AFTER_QUESTION_MS = 20_000;
/** How long after a failure no new thread is started. */
const AFTER_FAILURE_MS = 10_000;

/**
 * Asks a question about the index. Throws an IndexError if it cannot be read now, and the signal's reason once that is
 * aborted.
 */
export type Ask = <Name extends QuestionName>(
  name: Name,
  values: Parameters<Questions[Name]>,
  signal?: AbortSignal,
) => Promise<ReturnType<Questions[Name]>>;

/** Runs the thread that writes the index, and reads it for pages. It starts when there is something to write, and ends when it is idle. */
export class Indexer {
  readonly #deps: IndexerDeps;
  readonly #package = new LoadedPackage(workerFile());
  #thread: IndexThread | null = null;
  /** Resolves when the last thread has closed the index. */
  #ended: Promise<void> = Promise.resolve();
  /** How many runs are not finished, and how many questions are not answered. */
  #runs = 0;
  #questions = 0;
  #progress: Progress | null = null;
  #stamp: string | null = null;
  #waitingFor: string | null = null;
  /** Why the last question could not be answered. A page asks it again and again. */
  #failure: string | null = null;
  #failedAt = Number.NEGATIVE_INFINITY;
  /** How many writes there were since the last run began. */
  #appended = 0;
  #timer: NodeJS.Timeout | undefined;
  #idle: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(deps: IndexerDeps) {
    this.#deps = deps;
  }

  /** Lines were appended to the journal. */
  noteAppend(): void {
    this.#appended += 1;
    if (this.#appended === MAX_WAITING_WRITES) this.#catchUpLater();
    else this.#timer ??= setTimeout(() => this.#catchUpLater(), MAX_WAITING_MS).unref();
  }

  /** Brings the index up to date, and waits for it no longer than this. */
  async catchUp(timeoutMs: number, signal?: AbortSignal): Promise<IndexState> {
    const state = this.state();
    const isUntouched = this.#stamp !== null && readStamp(this.#deps.file) === this.#stamp;
    return state.current && isUntouched ? state : await this.#runFor("catch-up", timeoutMs, signal);
  }

  async rebuild(timeoutMs: number): Promise<IndexState> {
    return await this.#runFor("rebuild", timeoutMs);
  }

  state(): IndexState {
    return {
      current: this.#runs === 0 && this.#appended === 0 && this.#progress !== null,
      share: this.#progress?.share ?? 0,
      rebuilding: this.#runs > 0 && (this.#progress?.rebuilding ?? false),
      waitingFor: this.#waitingFor,
      damagedLines: this.#progress?.damagedLines ?? null,
    };
  }

  /** Whether everything of a day's file is in the index. */
  hasPassed(day: string): boolean {
    const position = this.#progress?.position ?? null;
    return position !== null && (position.day > day || (position.day === day && position.passed));
  }

  /** The next start adds what is missing then. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#endThread();
    await this.#ended;
  }

  /** In the thread, because a long reading must not delay a request. */
  readonly ask: Ask = async (name, values, signal) => {
    this.#questions += 1;
    try {
      // Not beside the last thread, which still has the index open.
      await this.#ended;
      clearTimeout(this.#idle);
      this.#thread ??= this.#startThread();
      signal?.throwIfAborted();
      const answer = await this.#thread?.request({ kind: "ask", name, values }, signal);
      signal?.throwIfAborted();
      if (answer?.kind === "answer") return answer.value as ReturnType<Questions[typeof name]>;
      if (answer?.kind === "failed") throw this.#failed(name, answer.error);
      if (answer?.kind === "unreadable") throw new IndexError(answer.error.kind, answer.error.message);
      throw new IndexError("busy", this.#waitingFor ?? "keybearer is stopping");
    } finally {
      this.#questions -= 1;
      this.#endThreadWhenIdle(IDLE_AFTER_QUESTION_MS);
    }
  };

  #failed(question: QuestionName, error: Error): IndexError {
    if (this.#failure !== error.message)
      this.#deps.log.error({ err: error, question }, "the usage index could not answer a question");
    this.#failure = error.message;
    return new IndexError("bug", error.message);
  }

  #catchUpLater(): void {
    background(this.#run("catch-up"), this.#deps.log, "catching up with the usage log");
  }

  async #runFor(kind: RunKind, timeoutMs: number, signal?: AbortSignal): Promise<IndexState> {
    const isDone = await withTimeout(this.#run(kind), timeoutMs, false, signal);
    // What was appended during the run does not matter to this caller.
    return { ...this.state(), current: isDone };
  }

  /** False: it was not finished, or could not be started. */
  async #run(kind: RunKind): Promise<boolean> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#runs += 1;
    try {
      // Not beside the last thread, which still has the index open.
      await this.#ended;
      clearTimeout(this.#idle);
      this.#thread ??= this.#startThread();
      this.#appended = 0;
      const answer = await this.#thread?.request({ kind });
      const isDone = answer?.kind === "done";
      // So that the index does not count as current.
      if (!isDone) this.#appended += 1;
      return isDone;
    } finally {
      this.#runs -= 1;
      this.#endThreadWhenIdle(IDLE_MS);
    }
  }

  /** null: no thread can be started now. */
  #startThread(): IndexThread | null {
    const { file, folder, log } = this.#deps;
    if (this.#stopped || performance.now() - this.#failedAt < AFTER_FAILURE_MS) return null;
    if (this.#package.isReplaced()) {
      this.#waitingFor = REPLACED;
      return null;
    }
    const onFailed = (error: unknown): void => {
      this.#failedAt = performance.now();
      this.#waitingFor = errorMessage(error);
      log.error({ err: error }, "the usage index failed; it will be tried again");
    };
    try {
      const thread = new IndexThread(
        { file, folder, stamp: this.#stamp },
        (answer) => this.#onAnswer(answer),
        onFailed,
      );
      const forget = async () => {
        await thread.exited;
        if (this.#thread === thread) this.#thread = null;
      };
      background(forget(), log, "waiting for the index's thread");
      return thread;
    } catch (error) {
      // The system has no more threads.
      onFailed(error);
      return null;
    }
  }

  #onAnswer(answer: Answer): void {
    if (answer.kind === "closed") {
      this.#stamp = answer.stamp;
      return;
    }
    if (answer.kind === "answer" || answer.kind === "unreadable" || answer.kind === "failed") return;
    this.#progress = answer.progress;
    if (answer.kind === "done") this.#stamp = answer.stamp;
    const waitingFor = answer.kind === "waiting" ? answer.message : null;
    if (waitingFor !== null && waitingFor !== this.#waitingFor)
      this.#deps.log.warn({ problem: waitingFor }, "the usage index waits");
    this.#waitingFor = waitingFor;
  }

  /** Not while lines wait for it: a tool is in use, and the next run comes within a minute. */
  #endThreadWhenIdle(idleMs: number): void {
    if (this.#runs + this.#questions > 0) return;
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => {
      if (this.#timer === undefined) this.#endThread();
      else this.#endThreadWhenIdle(idleMs);
    }, idleMs).unref();
  }

  #endThread(): void {
    clearTimeout(this.#idle);
    if (this.#thread === null) return;
    this.#ended = this.#thread.end();
    this.#thread = null;
  }
}

/** One thread, from its start to its exit. */
class IndexThread {
  readonly exited: Promise<void>;
  readonly #worker: Worker;
  /** Who waits for the end of a run, or for an answer, by the number of the request. */
  readonly #waiting = new Map<number, (answer: Answer | null) => void>();
  #number = 0;

  /** Throws if the system has no more threads. */
  constructor(data: WorkerData, onAnswer: (answer: Answer) => void, onFailed: (error: unknown) => void) {
    this.#worker = new Worker(workerFile(), { workerData: data, execArgv: [], env: {} });
    this.#worker.unref();
    this.#worker.on("message", (answer: Answer) => {
      onAnswer(answer);
      if ("number" in answer) this.#finish(answer.number, answer);
    });
    this.#worker.on("error", onFailed);
    this.exited = new Promise((resolve) => {
      this.#worker.once("exit", () => {
        for (const number of [...this.#waiting.keys()]) this.#finish(number, null);
        resolve();
      });
    });
  }

  /** Resolves to null if the thread ended before, or the question was canceled. */
  request(
    asked:
      | { readonly kind: RunKind }
      | { readonly kind: "ask"; readonly name: QuestionName; readonly values: readonly unknown[] },
    signal?: AbortSignal,
  ): Promise<Answer | null> {
    this.#number += 1;
    const number = this.#number;
    const cancel = () => {
      this.#worker.postMessage({ kind: "cancel", number } satisfies Request);
      this.#finish(number, null);
    };
    return new Promise((resolve) => {
      this.#waiting.set(number, (answer) => {
        signal?.removeEventListener("abort", cancel);
        resolve(answer);
      });
      signal?.addEventListener("abort", cancel);
      this.#worker.postMessage({ ...asked, number } satisfies Request);
    });
  }

  /** The thread ends after its current step. */
  end(): Promise<void> {
    // The process must not exit before the index is closed.
    this.#worker.ref();
    this.#worker.postMessage({ kind: "stop" } satisfies Request);
    return this.exited;
  }

  #finish(number: number, answer: Answer | null): void {
    this.#waiting.get(number)?.(answer);
    this.#waiting.delete(number);
  }
}

/** It is beside this file, both in the tests' build and in dist. */
function workerFile(): URL {
  return new URL("./index-worker.js", import.meta.url);
}
