import { setTimeout as pause } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { errorMessage } from "../../core/errors.ts";
import { answerQuestion } from "../reports/questions.ts";
import { IndexError, type IndexErrorKind, queryIndex } from "./database.ts";
import { type Asked, RequestQueue, type RunKind } from "./request-queue.ts";
import { type IndexOptions, type Progress, UsageIndex } from "./usage-index.ts";

/**
 * What the thread sends back: its progress, what it waits for, that the run with this number is done, the answer to a
 * question, that there is none because of a bug, and that it ends.
 */
export type Answer =
  | { readonly kind: "answer"; readonly number: number; readonly value: unknown }
  | {
      readonly kind: "unreadable";
      readonly number: number;
      readonly error: { readonly kind: IndexErrorKind; readonly message: string };
    }
  | { readonly kind: "failed"; readonly number: number; readonly error: Error }
  | { readonly kind: "progress"; readonly progress: Progress }
  | {
      readonly kind: "done";
      readonly number: number;
      readonly progress: Progress;
      readonly stamp: string | null;
    }
  | { readonly kind: "waiting"; readonly message: string; readonly progress: Progress }
  | { readonly kind: "closed"; readonly stamp: string | null };

export interface WorkerData extends IndexOptions {
  readonly stamp: string | null;
}

/** While another program has locked the index, or the disk is full, the thread tries again this often. */
const RETRY_MS = 200;
const REPORT_MS = 200;
/** A question waits this long for a lock. */
const LOCK_WAIT_MS = 1000;

/** The thread that writes the index, and reads it for pages. */
async function serve(): Promise<void> {
  const port = parentPort;
  if (port === null) return;
  const index = new UsageIndex(workerData, workerData.stamp);
  const requests = new RequestQueue(port);
  const answer = (message: Answer): void => port.postMessage(message);
  while (requests.receive()) {
    const run = requests.takeRun();
    if (run !== null) {
      await runToEnd(index, run.kind, requests, answer);
      // The run may have ended early.
      if (!requests.receive()) break;
      for (const number of run.numbers)
        answer({ kind: "done", number, progress: index.progress(), stamp: index.stamp });
      continue;
    }
    const asked = requests.takeQuestion();
    if (asked === null) await requests.arrival();
    else answer(answerTo(asked));
  }
  index.close();
  answer({ kind: "closed", stamp: index.stamp });
  port.close();
}

/** Or to the stop. A question is answered now and then, because a run can take minutes. */
async function runToEnd(
  index: UsageIndex,
  kind: RunKind,
  requests: RequestQueue,
  answer: (message: Answer) => void,
): Promise<void> {
  let reported = performance.now();
  let steps = kind === "rebuild" ? index.rebuild() : index.catchUp();
  while (requests.receive()) {
    try {
      for (const _ of steps) {
        if (performance.now() - reported < REPORT_MS) continue;
        answer({ kind: "progress", progress: index.progress() });
        if (!requests.receive()) return;
        const asked = requests.takeQuestion();
        if (asked !== null) answer(answerTo(asked));
        reported = performance.now();
      }
      return;
    } catch (error) {
      if (!(error instanceof IndexError)) throw error;
      // The next attempt rebuilds a damaged index.
      if (error.kind !== "corrupt")
        answer({ kind: "waiting", message: errorMessage(error), progress: index.progress() });
      const asked = requests.takeQuestion();
      if (asked === null) await pause(RETRY_MS);
      else answer(answerTo(asked));
      steps = index.catchUp();
    }
  }
}

/** From one state of the index. */
function answerTo({ number, name, values }: Asked): Answer {
  const { file } = workerData as WorkerData;
  try {
    const value = queryIndex(
      file,
      (db) => {
        // Closing the connection rolls back.
        db.exec("BEGIN");
        return answerQuestion(db, name, values);
      },
      LOCK_WAIT_MS,
    );
    if (!(value instanceof IndexError)) return { kind: "answer", number, value };
    return { kind: "unreadable", number, error: { kind: value.kind, message: value.message } };
  } catch (error) {
    // Some errors cannot be sent as they are.
    const sent = new Error(errorMessage(error));
    if (error instanceof Error) sent.stack = error.stack ?? "";
    return { kind: "failed", number, error: sent };
  }
}

await serve();
