import { Worker } from "node:worker_threads";
import type Database from "libsql";
import { background } from "../../core/background.ts";
import { errorMessage } from "../../core/errors.ts";
import type { Logger } from "../../core/log.ts";
import { withTimeout } from "../../core/timeout.ts";
import type { IndexErrorKind } from "../../usage/index/database.ts";
import { LoadedPackage, REPLACED } from "../../usage/index/loaded-package.ts";
import type { MirrorDatabase, MirrorFiles } from "../store/database.ts";
import type { Answer, Question, Questions } from "./mirror-worker.ts";

type Kind = keyof Questions;
type Args<K extends Kind> = Questions[K] extends (db: Database.Database, ...args: infer Rest) => unknown
  ? Rest
  : [];

/** Why the thread has no answer. `kind` null: the thread ended, or it has a bug. */
export class ThreadError extends Error {
  readonly kind: IndexErrorKind | null;

  constructor(message: string, kind: IndexErrorKind | null) {
    super(message);
    this.kind = kind;
  }
}

interface Waiting {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: ThreadError) => void;
}

/** The thread reads a day of 20,000 rows within a second. */
const READ_LIMIT_MS = 8000;

/** A thread that reads the databases, see mirror-worker.ts. */
export class MirrorThread {
  readonly #worker: Worker;
  readonly #exited: Promise<true>;
  readonly #waiting = new Map<number, Waiting>();
  #number = 0;
  /** Why it ended; null: it runs. */
  #ended: ThreadError | null = null;

  constructor(files: MirrorFiles) {
    this.#worker = new Worker(workerFile(), { workerData: files, execArgv: [], env: {} });
    this.#worker.unref();
    this.#worker.on("message", (answer: Answer) => this.#onAnswer(answer));
    this.#worker.on("error", (error) => this.#onEnd(errorMessage(error)));
    this.#worker.on("messageerror", (error) => this.#onEnd(errorMessage(error)));
    this.#exited = new Promise((resolve) => {
      this.#worker.on("exit", () => {
        this.#onEnd("its thread ended");
        resolve(true);
      });
    });
  }

  get hasEnded(): boolean {
    return this.#ended !== null;
  }

  /** Throws a ThreadError. */
  async ask<K extends Kind>(kind: K, ...args: Args<K>): Promise<ReturnType<Questions[K]>> {
    if (this.#ended !== null) throw this.#ended;
    this.#number += 1;
    const number = this.#number;
    const result = await new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.#worker.postMessage({ number, kind, args } satisfies Question);
    });
    return result as ReturnType<Questions[K]>;
  }

  /** Resolves once the thread has ended. It is asked to, because terminating it inside libsql aborts the whole process. */
  async end(): Promise<void> {
    this.#worker.ref();
    this.#worker.postMessage("stop");
    const hasEnded = await withTimeout(this.#exited, READ_LIMIT_MS, false);
    // By now it has read everything, and what it still computes is safe to terminate.
    if (!hasEnded) await this.#worker.terminate();
  }

  #onAnswer(answer: Answer): void {
    const waiting = this.#waiting.get(answer.number);
    this.#waiting.delete(answer.number);
    if ("error" in answer) waiting?.reject(new ThreadError(answer.error, answer.kind));
    else waiting?.resolve(answer.result);
  }

  #onEnd(problem: string): void {
    this.#ended ??= new ThreadError(problem, null);
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
  }
}

/** It is beside this file, both in the tests' build and in dist. */
function workerFile(): URL {
  return new URL("./mirror-worker.js", import.meta.url);
}

/** A thread that nothing uses ends after this, to free its memory. */
const IDLE_MS = 10_000;

/** Starts a thread when there is work for it, and keeps it as long as there is more. */
export class ThreadOnDemand {
  readonly #start: () => MirrorThread;
  readonly #log: Logger;
  #thread: MirrorThread | null = null;
  /** Calls of `use` in flight. */
  #users = 0;
  #idleTimer: NodeJS.Timeout | undefined;
  /** The end of the last thread. */
  #ended: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(start: () => MirrorThread, log: Logger) {
    this.#start = start;
    this.#log = log;
  }

  /** Throws what `start` and `work` throw, and a ThreadError after `stop`. */
  async use<T>(work: (thread: MirrorThread) => Promise<T>): Promise<T> {
    if (this.#stopped) throw new ThreadError("its thread ended", null);
    if (this.#thread === null || this.#thread.hasEnded) this.#thread = this.#start();
    const thread = this.#thread;
    clearTimeout(this.#idleTimer);
    this.#users += 1;
    try {
      return await work(thread);
    } finally {
      this.#users -= 1;
      if (this.#users === 0 && !this.#stopped)
        this.#idleTimer = setTimeout(() => this.#endThread(), IDLE_MS).unref();
    }
  }

  /** Resolves once the thread has ended. It answers what it was asked before. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#idleTimer);
    this.#endThread();
    await this.#ended;
  }

  #endThread(): void {
    if (this.#thread === null) return;
    this.#ended = this.#thread.end();
    this.#thread = null;
    background(this.#ended, this.#log, "ending the mirror's thread");
  }
}

/** Reads reports on a thread of its own: with a million rows a report takes longer than a request may wait. */
export class MirrorReader {
  readonly #database: Pick<MirrorDatabase, "ask" | "files" | "noteDamage">;
  readonly #log: Logger;
  readonly #package = new LoadedPackage(workerFile());
  readonly #thread: ThreadOnDemand;
  #stopped = false;

  constructor(database: Pick<MirrorDatabase, "ask" | "files" | "noteDamage">, log: Logger) {
    this.#database = database;
    this.#log = log;
    this.#thread = this.createThread();
  }

  /** For work that no report waits for. It throws a ThreadError if an update has replaced what the thread would load. */
  createThread(): ThreadOnDemand {
    const start = () => {
      if (this.#package.isReplaced()) throw new ThreadError(REPLACED, "busy");
      return new MirrorThread(this.#database.files);
    };
    return new ThreadOnDemand(start, this.#log);
  }

  /** null: the databases cannot be read now. Throws what is a bug. */
  async ask<K extends Kind>(kind: K, ...args: Args<K>): Promise<ReturnType<Questions[K]> | null> {
    // This opens mirror.db, or begins a new one, before the thread reads it.
    const isOpen = this.#database.ask(() => true) === true;
    if (this.#stopped || !isOpen) return null;
    try {
      return await this.#thread.use((thread) => thread.ask(kind, ...args));
    } catch (error) {
      if (!(error instanceof ThreadError)) throw error;
      if (error.kind === "corrupt") this.#database.noteDamage();
      if (error.kind !== null || this.#stopped) return null;
      throw error;
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#thread.stop();
  }
}
