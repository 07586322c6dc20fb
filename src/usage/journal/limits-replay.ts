import type { Limiter } from "../../limits/limiter.ts";
import { type Counted, difference } from "../../limits/windows.ts";
import { reportedCall, usedBy } from "../counted.ts";
import type { OwnRecord } from "../record.ts";
import type { AmendedLimits, LiftLine, Line, OpenLine } from "./lines.ts";

/**
 * Restores the counters and the usual sizes at start from the lines of the newest journal file. A line that is read twice
 * counts once.
 */
export class LimitsReplay {
  readonly #limiter: Limiter;
  /** The requests that were opened and closed, by id. */
  readonly #closed = new Set<string>();
  /** What counts of the requests that were amended, by id. */
  readonly #amended = new Map<string, Counted>();
  /** The allowances that were given, as JSON. The counters forget them some time after they have ended. */
  readonly #allowances = new Set<string>();

  constructor(limiter: Limiter) {
    this.#limiter = limiter;
  }

  /** Forgets everything, because the journal is read from the beginning. */
  start(): void {
    this.#forget();
    this.#limiter.forgetAll();
  }

  /** All lines were read. A request that is still in flight has lost its lines: what was held for it counts. */
  end(): void {
    this.#forget();
    this.#limiter.settleAll();
  }

  #forget(): void {
    this.#closed.clear();
    this.#amended.clear();
    this.#allowances.clear();
  }

  /** Reads the next line. At start, all of them are read before any request is served. */
  read(line: Line): void {
    if (line.kind === "open") this.#open(line);
    else if (line.kind === "close") this.close(line);
    else if (line.kind === "lift") this.#allow(line);
    else if (line.kind === "amend" && line.limits !== null) this.#amend(line.id, line.limits);
    else if (line.kind === "rename") this.#limiter.rename(line);
    else if (line.kind === "carry" && "tool" in line) this.#limiter.countersFor(line.tool).restore(line);
  }

  #open({ id, tool, admitted_at, held_tokens, held_microdollars }: OpenLine): void {
    if (tool === null) return;
    // A new request under an old name is one of a new tool. One that the carry names is older than the rename.
    if (this.#limiter.countersFor(tool).find(id) === null) this.#limiter.forgetRename(tool);
    const counters = this.#limiter.countersFor(tool);
    if (admitted_at === null || this.#closed.has(id) || counters.find(id) !== null) return;
    const reservation = counters.hold(held_tokens ?? 0, held_microdollars, admitted_at);
    counters.recorded(reservation, id);
  }

  /** A request that is not in flight was refused, or is included in the carry. */
  close(record: OwnRecord): void {
    const { id, tool, counts } = record;
    if (tool === null) return;
    const counters = this.#limiter.countersFor(tool);
    const reservation = counters.find(id);
    if (reservation === null) return;
    this.#closed.add(id);
    if (counts === false) {
      counters.cancel(reservation);
      return;
    }
    counters.settle(reservation, usedBy(record));
    const used = reportedCall(record);
    if (used !== null) this.#limiter.noteTokens(tool, used);
  }

  #amend(id: string, { tool, admitted_at, before, after }: AmendedLimits): void {
    const counted = this.#amended.get(id) ?? before;
    this.#amended.set(id, after);
    this.#limiter.countersFor(tool).correct({ at: admitted_at, ...difference(counted, after) });
  }

  #allow(line: LiftLine): void {
    const { tool, limit, amount, given_at, until } = line;
    const key = JSON.stringify([tool, limit, amount, given_at, until]);
    if (this.#allowances.has(key)) return;
    this.#allowances.add(key);
    this.#limiter.countersFor(tool).allow(line);
  }
}
