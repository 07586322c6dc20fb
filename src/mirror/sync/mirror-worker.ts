import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import type Database from "libsql";
import { errorMessage } from "../../core/errors.ts";
import { IndexError, type IndexErrorKind, toIndexError } from "../../usage/index/database.ts";
import { readAlarms } from "../alarms.ts";
import { blindSpots, findBlindness } from "../report/blind-spots.ts";
import { readDiff } from "../report/compared.ts";
import { explainLines } from "../report/price-differences.ts";
import { readDays, readReport } from "../report/report.ts";
import { planDays } from "../store/changed-days.ts";
import { compareDay } from "../store/compare-day.ts";
import { type MirrorFiles, openMirrorForReading } from "../store/database.ts";
import type { CompareOptions } from "../store/load-day.ts";
import { readOpenRows, readWaitingRows } from "../store/rows.ts";
import { type DaySummary, type Step, stepsOf } from "../store/verdicts.ts";

/** How long this thread waits for a lock. No request waits for it. */
const LOCK_WAIT_MS = 2000;

/** Reads both databases for the daemon, and writes nothing. */
class MirrorWorker {
  readonly #files: MirrorFiles;
  /** What the last day's comparison found. Receiving it all at once would hold up the thread that serves requests. */
  #steps: Iterator<Step> = [].values();

  /** What the thread can be asked. Each question sees the databases at one moment. */
  readonly questions = {
    plan: planDays,
    day: (db: Database.Database, day: number, options: CompareOptions): DaySummary => {
      const { records, rows, ...summary } = compareDay(db, day, options);
      this.#steps = stepsOf({ records, rows });
      return summary;
    },
    /** null: there are no more steps of the last day. */
    step: (): Step | null => {
      const next = this.#steps.next();
      return next.done === true ? null : next.value;
    },
    alarms: readAlarms,
    openRows: readOpenRows,
    waitingRows: readWaitingRows,
    report: readReport,
    explainLines,
    blindSpots,
    findBlindness,
    diff: readDiff,
    days: readDays,
  };

  constructor(files: MirrorFiles) {
    this.#files = files;
  }

  answer({ kind, args }: Question): unknown {
    if (kind === "step") return this.questions.step();
    // Opened for each question: the index may have been rebuilt, and either file replaced.
    const connection = openMirrorForReading(this.#files, LOCK_WAIT_MS);
    try {
      const { db } = connection;
      // Closing the connection ends the transaction.
      db.exec("BEGIN");
      const ask = this.questions[kind] as (db: Database.Database, ...args: unknown[]) => unknown;
      return ask(db, ...args);
    } finally {
      connection.close();
    }
  }
}

export type Questions = MirrorWorker["questions"];

export interface Question {
  readonly number: number;
  readonly kind: keyof Questions;
  readonly args: readonly unknown[];
}

/** `kind`: why the databases cannot be read. null with an error: the error is a bug. */
export type Answer =
  | { readonly number: number; readonly result: unknown }
  | { readonly number: number; readonly error: string; readonly kind: IndexErrorKind | null };

function serve(port: MessagePort, files: MirrorFiles): void {
  const worker = new MirrorWorker(files);
  port.on("message", (question: Question | "stop") => {
    if (question === "stop") {
      port.close();
      return;
    }
    const { number } = question;
    try {
      port.postMessage({ number, result: worker.answer(question) } satisfies Answer);
    } catch (error) {
      const found = toIndexError(error);
      const kind = found instanceof IndexError ? found.kind : null;
      port.postMessage({ number, error: errorMessage(error), kind } satisfies Answer);
    }
  });
}

if (parentPort !== null) serve(parentPort, workerData);
