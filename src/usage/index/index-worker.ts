import { setTimeout as pause } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { errorMessage } from "../../core/errors.ts";
import { IndexFault } from "./database.ts";
import { type IndexOptions, type Progress, UsageIndex } from "./usage-index.ts";

export type RunKind = "catch-up" | "rebuild";

/** What the daemon asks the thread for. */
export type Request = { readonly kind: RunKind; readonly number: number } | { readonly kind: "stop" };

/** What it answers: how far it is, then that the run with this number is done, or what it waits for; closed, at its end. */
export type Answer =
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

/** While another program has the index locked, or the disk is full, it tries again this often. */
const RETRY_MS = 200;
const REPORT_MS = 200;

/** The thread that writes the index. It has nothing else to do, so it works in long steps. */
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
    const isStopped = () => requests.some(({ kind }) => kind === "stop");
    await run(index, request.kind, isStopped, answer);
    // It may have ended early.
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
        // Lets messages in.
        await pause(0);
        if (isStopped()) return;
      }
      return;
    } catch (error) {
      if (!(error instanceof IndexFault)) throw error;
      // What is damaged is rebuilt by the next attempt.
      if (error.kind !== "corrupt")
        answer({ kind: "waiting", message: errorMessage(error), progress: index.progress() });
      await pause(RETRY_MS);
      steps = index.catchUp();
    }
  }
}

await serve();
