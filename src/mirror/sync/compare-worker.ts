import { parentPort, workerData } from "node:worker_threads";
import { reason } from "../../reason.ts";
import { type Plan, planDays } from "../store/changed-days.ts";
import { compareDay } from "../store/compare-day.ts";
import { type MirrorFiles, openMirrorForReading } from "../store/database.ts";
import type { CompareOptions } from "../store/load-day.ts";
import { type DaySummary, type Step, stepsOf } from "../store/verdicts.ts";

/** What the daemon asks the thread for. */
export type Request =
  | { readonly kind: "plan"; readonly gateway: string; readonly skew: number; readonly now: number }
  | { readonly kind: "day"; readonly day: number; readonly options: CompareOptions }
  /** The next step of the day that was asked for last: all at once would hold up the thread that serves requests. */
  | { readonly kind: "step" };

export type Answer =
  | { readonly kind: "plan"; readonly plan: Plan }
  | { readonly kind: "day"; readonly summary: DaySummary }
  | { readonly kind: "step"; readonly step: Step | null }
  | { readonly kind: "failed"; readonly reason: string };

/** How long it waits for a lock. Nothing else waits for this thread. */
const PATIENCE_MS = 2000;

/** The thread that compares. It reads both databases and writes nothing. */
function serve(): void {
  const port = parentPort;
  if (port === null) return;
  const comparison = new Comparison(workerData);
  port.on("message", (request: Request) => {
    port.postMessage(comparison.answerTo(request));
  });
}

class Comparison {
  readonly #files: MirrorFiles;
  #steps: Iterator<Step> = [].values();

  constructor(files: MirrorFiles) {
    this.#files = files;
  }

  answerTo(request: Request): Answer {
    try {
      return request.kind === "step" ? this.#nextStep() : this.#read(request);
    } catch (error) {
      return { kind: "failed", reason: reason(error) };
    }
  }

  #nextStep(): Answer {
    const next = this.#steps.next();
    return { kind: "step", step: next.done === true ? null : next.value };
  }

  #read(request: Exclude<Request, { kind: "step" }>): Answer {
    // Opened for each question: the index may have been rebuilt, and either file replaced.
    const connection = openMirrorForReading(this.#files, PATIENCE_MS);
    try {
      const { db } = connection;
      // One snapshot for the whole question. Closing ends it.
      db.exec("BEGIN");
      if (request.kind === "plan") return { kind: "plan", plan: planDays(db, request.gateway, request) };
      const { records, rows, ...summary } = compareDay(db, request.day, request.options);
      this.#steps = stepsOf({ records, rows });
      return { kind: "day", summary };
    } finally {
      connection.close();
    }
  }
}

serve();
