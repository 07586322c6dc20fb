import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { errorMessage } from "../../core/errors.ts";
import { type Plan, planDays } from "../store/changed-days.ts";
import { compareDay } from "../store/compare-day.ts";
import { type MirrorFiles, openMirrorForReading } from "../store/database.ts";
import type { CompareOptions } from "../store/load-day.ts";
import { type DaySummary, type Step, stepsOf } from "../store/verdicts.ts";

/** plan: which days changed. day: compares one. step: the next part of what that day's comparison found. stop: the thread ends. */
export type Request =
  | { readonly kind: "plan"; readonly gateway: string; readonly skew: number; readonly now: number }
  | { readonly kind: "day"; readonly day: number; readonly options: CompareOptions }
  | { readonly kind: "step" }
  | { readonly kind: "stop" };

/** A Plan, a DaySummary, or a Step; null: the day has no more steps. */
export type Answer = { readonly result: Plan | DaySummary | Step | null } | { readonly error: string };

/** How long this thread waits for a lock. Nothing else waits for it. */
const LOCK_PATIENCE_MS = 2000;

/** The thread that compares. It reads both databases and writes nothing. */
function serve(port: MessagePort, files: MirrorFiles): void {
  // Sent in steps: receiving a whole day at once would hold up the thread that serves requests.
  let steps: Iterator<Step> = [].values();

  function answer(request: Exclude<Request, { kind: "stop" }>): Plan | DaySummary | Step | null {
    if (request.kind === "step") {
      const next = steps.next();
      return next.done === true ? null : next.value;
    }
    // Opened for each request: the index may have been rebuilt, and either file replaced.
    const connection = openMirrorForReading(files, LOCK_PATIENCE_MS);
    try {
      const { db } = connection;
      // One snapshot for the whole answer. Closing the connection ends it.
      db.exec("BEGIN");
      if (request.kind === "plan") return planDays(db, request.gateway, request);
      const { records, rows, ...summary } = compareDay(db, request.day, request.options);
      steps = stepsOf({ records, rows });
      return summary;
    } finally {
      connection.close();
    }
  }

  port.on("message", (request: Request) => {
    if (request.kind === "stop") {
      port.close();
      return;
    }
    try {
      port.postMessage({ result: answer(request) } satisfies Answer);
    } catch (error) {
      port.postMessage({ error: errorMessage(error) } satisfies Answer);
    }
  });
}

if (parentPort !== null) serve(parentPort, workerData);
