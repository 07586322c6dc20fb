import { MINUTE_MS } from "../../core/units.ts";
import type { RefusalsLine } from "./lines.ts";

/** This many requests of one kind in a minute have a record and a log line each. The others are only counted. */
export const OWN_RECORDS = 20;

/** A request that ended before anything was sent to a gateway. */
export interface Unsent extends Pick<RefusalsLine, "tool" | "gateway" | "code"> {
  readonly id: string;
}

/** Requests of one kind in one minute that have no record of their own. */
export interface RefusalRun {
  line: RefusalsLine;
  /** The count that is in the journal. */
  written: number;
}

/**
 * Counts the refusals of the current minute. A program that asks in a loop must not fill the disk, and must not hide how
 * often it asked. There is one run for each tool and code, so the configuration bounds them; unknown callers are one tool.
 */
export class RefusalRuns {
  /** When it began. */
  #minute = 0;
  /** How many requests of each kind came in it. */
  readonly #requests = new Map<string, number>();
  readonly #runs = new Map<string, RefusalRun>();

  isOver(now: number): boolean {
    return minuteOf(now) !== this.#minute;
  }

  /** Begins a new minute. Returns the runs of the last one. */
  next(now: number): RefusalRun[] {
    const ended = [...this.#runs.values()];
    this.#requests.clear();
    this.#runs.clear();
    this.#minute = minuteOf(now);
    return ended;
  }

  /** False: it gets a record of its own. */
  count({ id, tool, gateway, code }: Unsent): boolean {
    const kind = JSON.stringify([tool, code]);
    const requests = (this.#requests.get(kind) ?? 0) + 1;
    this.#requests.set(kind, requests);
    if (requests <= OWN_RECORDS) return false;
    const run = this.#runs.get(kind);
    const count = requests - OWN_RECORDS;
    if (run !== undefined) {
      run.line = { ...run.line, count, last_id: id };
    } else {
      const minute = this.#minute;
      const line = {
        kind: "refusals",
        tool,
        gateway,
        code,
        minute,
        count,
        first_id: id,
        last_id: id,
      } as const;
      this.#runs.set(kind, { line, written: 0 });
    }
    return true;
  }

  /** The runs that are longer than their last line says. */
  unwritten(): RefusalRun[] {
    return [...this.#runs.values()].filter(isUnwritten);
  }

  /** Those that are twice as long. So a minute has few lines, and a crash loses at most half of what it counted. */
  doubled(): RefusalRun[] {
    return this.unwritten().filter(({ line, written }) => line.count >= written * 2);
  }
}

export function isUnwritten({ line, written }: RefusalRun): boolean {
  return line.count > written;
}

/** When the minute of this time began. */
export function minuteOf(now: number): number {
  return Math.floor(now / MINUTE_MS) * MINUTE_MS;
}
