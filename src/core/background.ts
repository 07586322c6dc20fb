import type { Logger } from "./log.ts";

/** Runs what nothing waits for. A failure is logged, because an unhandled rejection would end the process. */
export function background(work: Promise<unknown>, log: Pick<Logger, "error">, what: string): void {
  work.catch((error: unknown) => log.error({ err: error }, `${what} failed`));
}
