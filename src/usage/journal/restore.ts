import type { Opening } from "../record.ts";
import { type JournalFile, journalFiles, readLines } from "./files.ts";
import { type HeadLine, type Line, parseLine } from "./lines.ts";

export interface Restored {
  /** Records that were opened and never closed. */
  readonly inFlight: readonly { readonly opening: Opening; readonly head: HeadLine | null }[];
  /** False: the newest file has no whole group of carry lines, so the next start would have to read older files, too. */
  readonly carryIsWhole: boolean;
}

/**
 * Reads the newest file of the journal and hands its lines to `onLine`. A file begins with carry lines, which hold what is
 * needed from the files before it. If they are damaged or incomplete, reading begins with an older file.
 */
export function restoreFrom(folder: string, onLine: (line: Line) => void): Restored {
  const files = journalFiles(folder);
  const whole = files.findLastIndex((file, at) => at === 0 || hasWholeCarry(file));
  const inFlight = new Map<string, { opening: Opening; head: HeadLine | null }>();
  for (const file of files.slice(Math.max(0, whole))) {
    for (const line of withWholeCarries(linesIn(file))) {
      onLine(line);
      if (line.kind === "open") inFlight.set(line.id, { opening: line, head: null });
      if (line.kind === "close") inFlight.delete(line.id);
      if (line.kind !== "head" && line.kind !== "sent") continue;
      const request = inFlight.get(line.id);
      if (request === undefined) continue;
      if (line.kind === "head") request.head = line;
      else request.opening = { ...request.opening, sent_at: line.sent_at };
    }
  }
  return { inFlight: [...inFlight.values()], carryIsWhole: whole >= files.length - 1 };
}

function* linesIn(file: JournalFile): Generator<Line> {
  for (const { texts } of readLines(file, 0, true)) {
    for (const text of texts) {
      const line = parseLine(text);
      if (line !== null) yield line;
    }
  }
}

function hasWholeCarry(file: JournalFile): boolean {
  for (const line of withWholeCarries(linesIn(file))) if (line.kind === "carry") return true;
  return false;
}

/** Leaves out incomplete groups of carry lines. */
function* withWholeCarries(lines: Iterable<Line>): Generator<Line> {
  let group: Line[] = [];
  let missing = 0;
  for (const line of lines) {
    if (line.kind !== "carry") {
      group = [];
      missing = 0;
      yield line;
    } else if ("tools" in line) {
      group = [line];
      missing = line.tools;
    } else if (missing > 0) {
      group.push(line);
      missing -= 1;
    }
    if (group.length > 0 && missing === 0) {
      yield* group;
      group = [];
    }
  }
}
