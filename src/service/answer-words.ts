import type { Ran } from "./command-runner.ts";

/** The first line of what a program complained of. */
export function complaint(text: string): string {
  return text.trim().split("\n", 1)[0]?.trim() ?? "";
}

/** what: started, stopped. */
export function notDone(ran: Ran, what: string): string {
  const said = complaint(ran.stderr);
  const why = ran.missing ? "the system's program for it is not there" : said || "it took too long";
  return `the service could not be ${what}: ${why}`;
}

/** A file of that name that keybearer did not write may be somebody's work. */
export function inTheWay(file: string, why: string): { ok: false; why: string; next: string } {
  return {
    ok: false,
    why: `${file} is there already and is left alone: ${why}`,
    next: `move it away (mv ${file} ${file}.mine), then try again`,
  };
}

export function notWritten(file: string, why: string): { ok: false; why: string; next: string } {
  return {
    ok: false,
    why: `${file} cannot be written: ${why}`,
    next: "mend that, then keybearer service install",
  };
}
