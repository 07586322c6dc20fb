import { type Problem, withNext } from "./display.ts";
/** The message of whatever was thrown, without its stack. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The code of an error of Node, the system or a library, such as ENOENT; "unknown" without one. */
export function errorCode(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "unknown";
}

export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return codes.includes(errorCode(error));
}

/** A refused request on the control socket: the caller's mistake, or something that cannot be done now. */
export class HttpError extends Error {
  readonly status: number;
  /** The two parts of the message. */
  readonly parts: Problem;
  /** By which the dashboard's page finds a text of its own; null: it shows the message. */
  readonly code: string | null;

  constructor(status: number, problem: string | Problem, code: string | null = null) {
    const parts = typeof problem === "string" ? { problem, next: null } : problem;
    super(withNext(parts));
    this.status = status;
    this.parts = parts;
    this.code = code;
  }
}

/** Exit codes of the command line, after sysexits.h where it has one. */
export const EXIT = { ok: 0, failed: 1, usage: 2, portTaken: 69, alreadyRunning: 75, badConfig: 78 } as const;

/** The daemon or a command cannot start. The message explains it, so no stack trace is printed. */
export class StartError extends Error {
  readonly exitCode: number;
  readonly problems: readonly Problem[];

  constructor(exitCode: number, ...problems: readonly Problem[]) {
    super(problems.map(withNext).join("\n"));
    this.exitCode = exitCode;
    this.problems = problems;
  }
}
