import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import type { Logger } from "../../logger.ts";
import { reason } from "../../reason.ts";
import type { Answer, Request, WorkerData } from "./index-worker.ts";
import { type IndexOptions, type Progress, stampOf } from "./usage-index.ts";

/** How far the index is behind the journal, for people. */
export interface IndexState {
  /** Everything that was appended before the question is in it. */
  readonly current: boolean;
  /** Of the journal, from 0 to 1. */
  readonly share: number;
  readonly rebuilding: boolean;
  /** Why it does not go on; null: it does. */
  readonly waitingFor: string | null;
  /** Lines of the journal that could not be read; null: not known yet. */
  readonly damagedLines: number | null;
}

export interface IndexerDeps extends IndexOptions {
  readonly log: Logger;
}

/** Lines that may wait before the thread is started for them, and for how long. */
const MAX_WAITING_LINES = 500;
const MAX_WAITING_MS = 60_000;
/** A thread without work ends after this, so that an idle daemon stays small. */
const IDLE_MS = 5000;
/** After the thread failed. */
const AFTER_FAILURE_MS = 10_000;

/** Has the index written by a thread of its own, which starts when there is something to write and ends when idle. */
export class Indexer {
  readonly #deps: IndexerDeps;
  readonly #library = loadedFiles();
  #worker: Worker | null = null;
  #exited: Promise<void> = Promise.resolve();
  #number = 0;
  /** Requests to the thread that it has not finished, with those that wait for them. */
  readonly #unfinished = new Map<number, (isDone: boolean) => void>();
  #progress: Progress | null = null;
  #stamp: string | null = null;
  #waitingFor: string | null = null;
  #failedAt = Number.NEGATIVE_INFINITY;
  /** Lines appended since the last request to catch up. */
  #appended = 0;
  #timer: NodeJS.Timeout | undefined;
  #idle: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(deps: IndexerDeps) {
    this.#deps = deps;
  }

  /** A line was appended to the journal. */
  noteAppend(): void {
    this.#appended += 1;
    if (this.#appended >= MAX_WAITING_LINES) this.#request("catch-up");
    else this.#timer ??= setTimeout(() => this.#request("catch-up"), MAX_WAITING_MS).unref();
  }

  /** Brings the index up to date, for at most so long. */
  async catchUp(patienceMs: number): Promise<IndexState> {
    const state = this.state();
    const isUntouched = this.#stamp !== null && stampOf(this.#deps.file) === this.#stamp;
    return state.current && isUntouched ? state : await this.#ask("catch-up", patienceMs);
  }

  async rebuild(patienceMs: number): Promise<IndexState> {
    return await this.#ask("rebuild", patienceMs);
  }

  state(): IndexState {
    return {
      current: this.#unfinished.size === 0 && this.#appended === 0 && this.#progress !== null,
      share: this.#progress?.share ?? 0,
      rebuilding: this.#unfinished.size > 0 && (this.#progress?.rebuilding ?? false),
      waitingFor: this.#waitingFor,
      damagedLines: this.#progress?.damagedLines ?? null,
    };
  }

  /** Whether everything of a day's file is in the index. */
  hasPassed(day: string): boolean {
    const position = this.#progress?.position ?? null;
    return position !== null && (position.day > day || (position.day === day && position.passed));
  }

  /** What is missing then, the next run adds. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    // A process that has nothing else to do must wait until the index is closed.
    this.#worker?.ref();
    await this.#endWorker();
  }

  async #ask(kind: "catch-up" | "rebuild", patienceMs: number): Promise<IndexState> {
    const number = this.#request(kind);
    if (number === null) return this.state();
    let timer: NodeJS.Timeout | undefined;
    const isDone = await new Promise<boolean>((resolve) => {
      this.#unfinished.set(number, resolve);
      timer = setTimeout(() => resolve(false), patienceMs);
    });
    clearTimeout(timer);
    // Whatever was appended or asked for meanwhile: this question is answered.
    return { ...this.state(), current: isDone };
  }

  /** Its number; null: no thread can be started now. */
  #request(kind: "catch-up" | "rebuild"): number | null {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const worker = this.#worker ?? this.#startWorker();
    if (worker === null) return null;
    clearTimeout(this.#idle);
    this.#appended = 0;
    this.#number += 1;
    this.#unfinished.set(this.#number, () => {});
    worker.postMessage({ kind, number: this.#number } satisfies Request);
    return this.#number;
  }

  #startWorker(): Worker | null {
    if (this.#stopped || performance.now() - this.#failedAt < AFTER_FAILURE_MS) return null;
    if (!isUnchanged(this.#library)) {
      this.#waitingFor = "keybearer was replaced on disk → restart it";
      return null;
    }
    const { file, folder, log } = this.#deps;
    const data: WorkerData = { file, folder, stamp: this.#stamp };
    const worker = new Worker(workerFile(), { workerData: data, execArgv: [], env: {} });
    worker.unref();
    worker.on("message", (answer: Answer) => this.#onAnswer(answer));
    worker.on("error", (error) => {
      this.#failedAt = performance.now();
      this.#waitingFor = reason(error);
      log.error({ err: error }, "the usage index failed; it is tried again");
    });
    this.#exited = new Promise((resolve) => {
      worker.once("exit", () => {
        if (this.#worker === worker) this.#worker = null;
        const waiting = [...this.#unfinished.values()];
        // What it had not finished is still to be done.
        if (waiting.length > 0) this.#appended += 1;
        this.#unfinished.clear();
        for (const resolveOne of waiting) resolveOne(false);
        resolve();
      });
    });
    this.#worker = worker;
    return worker;
  }

  #onAnswer(answer: Answer): void {
    if (answer.kind === "waiting") {
      if (this.#waitingFor !== answer.message)
        this.#deps.log.warn({ reason: answer.message }, "the usage index waits");
      this.#waitingFor = answer.message;
      this.#progress = answer.progress;
      return;
    }
    this.#waitingFor = null;
    this.#progress = answer.progress;
    if (answer.kind !== "done") return;
    this.#stamp = answer.stamp;
    const resolve = this.#unfinished.get(answer.number);
    this.#unfinished.delete(answer.number);
    resolve?.(true);
    if (this.#unfinished.size > 0) return;
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => void this.#endWorker(), IDLE_MS).unref();
  }

  async #endWorker(): Promise<void> {
    clearTimeout(this.#idle);
    const worker = this.#worker;
    this.#worker = null;
    worker?.postMessage({ kind: "stop" } satisfies Request);
    await this.#exited;
  }
}

/** Beside this file, before the build and after it. */
function workerFile(): URL {
  const ending = import.meta.url.endsWith(".ts") ? "ts" : "js";
  return new URL(`./index-worker.${ending}`, import.meta.url);
}

/**
 * The files a thread would load, as they were when this process loaded its own. Once they are replaced on disk, a thread would
 * bring a second SQLite into this process, and when one of the two closes a file, the locks of the other are gone (POSIX
 * keeps locks by process: SQLite's "How To Corrupt", 2.2.1).
 */
function loadedFiles(): ReadonlyMap<string, string> {
  const require = createRequire(import.meta.url);
  const native = Object.keys(require.cache).filter((path) => path.endsWith(".node"));
  const paths = [require.resolve("libsql"), fileURLToPath(workerFile()), ...native];
  return new Map(paths.map((path) => [path, stampOf(path) ?? ""]));
}

function isUnchanged(files: ReadonlyMap<string, string>): boolean {
  return [...files].every(([path, stamp]) => (stampOf(path) ?? "") === stamp);
}
