/** Exit codes of the command line, after sysexits.h where it has one. */
export const EXIT = { ok: 0, failed: 1, usage: 2, portTaken: 69, alreadyRunning: 75, badConfig: 78 } as const;

/** The daemon cannot start, and this is why; the person needs no stack trace. */
export class StartFailure extends Error {
  readonly exitCode: number;
  constructor(exitCode: number, message: string) {
    super(message);
    this.exitCode = exitCode;
  }
}
