import { setTimeout as pause } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { errorMessage } from "../../core/errors.ts";
import { answerQuestion, type QuestionName } from "../reports/questions.ts";
import { IndexError, type IndexErrorKind, queryIndex } from "./database.ts";
import { type IndexOptions, type Progress, UsageIndex } from "./usage-index.ts";

export type RunKind = "catch-up" | "rebuild";

interface Asked {
  readonly kind: "ask";
  readonly number: number;
  readonly name: QuestionName;
  readonly values: readonly unknown[];
}

/** What the daemon sends to the thread. */
export type Request = { readonly kind: RunKind; readonly number: number } | Asked | { readonly kind: "stop" };

/**
 * What the thread sends back: its progress, what it waits for, that the run with this number is done, the answer to a
 * question, and that it ends.
 */
export type Answer =
  | { readonly kind: "answer"; readonly number: number; readonly value: unknown }
  | {
      readonly kind: "unreadable";
      readonly number: number;
      readonly error: { readonly kind: IndexErrorKind; readonly message: string };
    }
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
  const requests: Request[] = [];
  let wake = (): void => {};
  port.on("message", (request: Request) => {
    requests.push(request);
    wake();
  });
  const answer = (message: Answer): void => port.postMessage(message);
  for (;;) {
    const request = requests.shift();
    if (request === undefined) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
      continue;
    }
    if (request.kind === "stop") break;
    if (request.kind === "ask") {
      answer(answerTo(request));
      continue;
    }
    const isStopped = () => requests.some(({ kind }) => kind === "stop");
    const answerWaiting = () => {
      for (const asked of requests.filter(({ kind }) => kind === "ask") as Asked[]) {
        requests.splice(requests.indexOf(asked), 1);
        answer(answerTo(asked));
      }
    };
    await run(index, request.kind, isStopped, answerWaiting, answer);
    // The run may have ended early.
    if (isStopped()) break;
    answer({ kind: "done", number: request.number, progress: index.progress(), stamp: index.stamp });
  }
  index.close();
  answer({ kind: "closed", stamp: index.stamp });
  port.close();
}

async function run(
  index: UsageIndex,
  kind: RunKind,
  isStopped: () => boolean,
  answerWaiting: () => void,
  answer: (message: Answer) => void,
): Promise<void> {
  let reported = performance.now();
  let steps = kind === "rebuild" ? index.rebuild() : index.catchUp();
  while (!isStopped()) {
    try {
      for (const _ of steps) {
        if (performance.now() - reported < REPORT_MS) continue;
        reported = performance.now();
        answer({ kind: "progress", progress: index.progress() });
        // Lets requests arrive.
        await pause(0);
        if (isStopped()) return;
        answerWaiting();
      }
      return;
    } catch (error) {
      if (!(error instanceof IndexError)) throw error;
      // The next attempt rebuilds a damaged index.
      if (error.kind !== "corrupt")
        answer({ kind: "waiting", message: errorMessage(error), progress: index.progress() });
      await pause(RETRY_MS);
      answerWaiting();
      steps = index.catchUp();
    }
  }
}

/** From one state of the index. */
function answerTo({ number, name, values }: Asked): Answer {
  const { file } = workerData as WorkerData;
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
}

await serve();
