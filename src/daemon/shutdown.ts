import type { Logger } from "../core/log.ts";
import { withTimeout } from "../core/timeout.ts";

interface Step {
  readonly what: string;
  readonly close: () => unknown;
  readonly limitMs: number;
}

/** A step that takes longer is given up, so that those after it still run. */
const STEP_LIMIT_MS = 15_000;

/** Closes what was opened, the newest first. Every step runs, whatever an earlier one does. */
export class Shutdown {
  readonly #log: Pick<Logger, "error">;
  readonly #steps: Step[] = [];

  constructor(log: Pick<Logger, "error">) {
    this.#log = log;
  }

  /** @param what completes the sentence "could not …". */
  add(what: string, close: () => unknown, limitMs: number = STEP_LIMIT_MS): void {
    this.#steps.push({ what, close, limitMs });
  }

  async run(): Promise<void> {
    for (let step = this.#steps.pop(); step !== undefined; step = this.#steps.pop()) {
      const { what, limitMs } = step;
      try {
        const closing = Promise.resolve(step.close()).then(() => true);
        const ended = await withTimeout(closing, limitMs, false);
        if (!ended) this.#log.error(`could not ${what} within ${limitMs / 1000} s`);
      } catch (error) {
        this.#log.error({ err: error }, `could not ${what}`);
      }
    }
  }
}
