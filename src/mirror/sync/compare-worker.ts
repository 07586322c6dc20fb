import { parentPort, workerData } from "node:worker_threads";
import { reason } from "../../reason.ts";
import { type Plan, planDays } from "../store/changed-days.ts";
import { type CompareOptions, compareDay, type DayChanges } from "../store/compare-day.ts";
import { type MirrorFiles, openMirrorForReading } from "../store/database.ts";

/** What the daemon asks the thread for. */
export type Request =
  | { readonly kind: "plan"; readonly gateway: string; readonly skew: number }
  | { readonly kind: "day"; readonly day: number; readonly options: CompareOptions };

export type Answer =
  | { readonly kind: "plan"; readonly plan: Plan }
  | { readonly kind: "day"; readonly changes: DayChanges }
  | { readonly kind: "failed"; readonly reason: string };

/** How long it waits for a lock. Nothing else waits for this thread. */
const PATIENCE_MS = 2000;

/** The thread that compares. It reads both databases and writes nothing. */
function serve(): void {
  const port = parentPort;
  if (port === null) return;
  port.on("message", (request: Request) => {
    port.postMessage(answerTo(request, workerData));
  });
}

function answerTo(request: Request, files: MirrorFiles): Answer {
  try {
    // Opened for each question: the index may have been rebuilt, and either file replaced.
    const connection = openMirrorForReading(files, PATIENCE_MS);
    try {
      const { db } = connection;
      if (request.kind === "plan") return { kind: "plan", plan: planDays(db, request.gateway, request.skew) };
      return { kind: "day", changes: compareDay(db, request.day, request.options) };
    } finally {
      connection.close();
    }
  } catch (error) {
    return { kind: "failed", reason: reason(error) };
  }
}

serve();
