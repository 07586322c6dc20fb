import type { Logger } from "./logger.ts";

/** Closes what was opened, the newest first. Every step runs, whatever an earlier one throws. */
export class Shutdown {
  readonly #log: Pick<Logger, "error">;
  readonly #steps: { readonly what: string; readonly close: () => unknown }[] = [];

  constructor(log: Pick<Logger, "error">) {
    this.#log = log;
  }

  /** @param what completes the sentence "could not …". */
  add(what: string, close: () => unknown): void {
    this.#steps.push({ what, close });
  }

  async run(): Promise<void> {
    for (let step = this.#steps.pop(); step !== undefined; step = this.#steps.pop()) {
      try {
        await step.close();
      } catch (error) {
        this.#log.error({ err: error }, `could not ${step.what}`);
      }
    }
  }
}
