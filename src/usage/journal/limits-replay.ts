import { countedSession } from "../../core/session-id.ts";
import type { Counters } from "../../limits/counters.ts";
import type { Limiter, ToolCarry } from "../../limits/limiter.ts";
import { type Counted, difference } from "../../limits/windows.ts";
import { reportedCall, usedBy } from "../counted.ts";
import type { OwnRecord } from "../record.ts";
import type {
  AmendedLimits,
  LiftLine,
  Line,
  OpenLine,
  RenameLine,
  SessionLiftLine,
  SessionStopLine,
} from "./lines.ts";

/**
 * Restores the counters and the usual sizes at start from the lines of the newest journal file. A line that is read twice
 * counts once.
 */
export class LimitsReplay {
  readonly #limiter: Limiter;
  /** The counters that hold something for a request in flight, by its id. Its tool may have another name when it ends. */
  readonly #holders = new Map<string, Counters>();
  /** The requests that were opened and closed, or refused because of their session, by id. */
  readonly #closed = new Set<string>();
  /** When tools got new names, by their old ones. */
  readonly #renamedAt = new Map<string, number>();
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
    this.#holders.clear();
    this.#closed.clear();
    this.#renamedAt.clear();
    this.#amended.clear();
    this.#allowances.clear();
  }

  /** Reads the next line. At start, all of them are read before any request is served. */
  read(line: Line): void {
    if (line.kind === "open") this.#open(line);
    else if (line.kind === "close") this.close(line);
    else if (line.kind === "lift") this.#allow(line);
    else if (line.kind === "amend" && line.limits !== null) this.#amend(line.id, line.limits);
    else if (line.kind === "session-stop") this.#stopSession(line);
    else if (line.kind === "session-lift") this.#liftSession(line);
    else if (line.kind === "rename") this.#rename(line);
    else if (line.kind === "carry" && "tool" in line) this.#restore(line);
  }

  #rename(line: RenameLine): void {
    this.#limiter.rename(line);
    this.#renamedAt.set(line.from, line.at);
  }

  /** A tool of this name is a new one, whatever other tool had the name before. */
  #forgetRename(tool: string): void {
    this.#limiter.forgetRename(tool);
    this.#renamedAt.delete(tool);
  }

  /** What is later than the renaming of a tool is about a new tool of its old name. */
  #forgetRenameBefore(tool: string, at: number): void {
    if (at > (this.#renamedAt.get(tool) ?? Infinity)) this.#forgetRename(tool);
  }

  /** A carry has the names that the tools had when it was written. It replaces everything that was known of its tool. */
  #restore(carry: ToolCarry): void {
    this.#forgetRename(carry.tool);
    const counters = this.#limiter.countersFor(carry.tool);
    for (const [id, holder] of this.#holders) if (holder === counters) this.#holders.delete(id);
    counters.restore(carry);
    for (const { id } of carry.open) this.#holders.set(id, counters);
  }

  #open(line: OpenLine): void {
    const { id, tool, started_at, admitted_at, counted_session } = line;
    if (tool === null || this.#holders.has(id)) return;
    // A request that began before its tool was renamed still has the old name.
    this.#forgetRenameBefore(tool, started_at);
    if (admitted_at === null || this.#closed.has(id)) return;
    const counters = this.#limiter.countersFor(tool);
    const held = { tokens: line.held_tokens ?? 0, spend: line.held_microdollars };
    const reservation = counters.hold(held, admitted_at, counted_session);
    counters.recorded(reservation, id);
    this.#holders.set(id, counters);
  }

  /** A request that is not in flight was refused, or is included in the carry. */
  close(record: OwnRecord): void {
    const { id, tool, counts } = record;
    const counters = this.#holders.get(id);
    const reservation = counters?.find(id) ?? null;
    if (tool !== null && record.refusal === "session-limited") this.#markFull(tool, record);
    if (tool === null || counters === undefined || reservation === null) return;
    this.#holders.delete(id);
    this.#closed.add(id);
    if (counts === false) {
      counters.cancel(reservation);
      return;
    }
    counters.settle(reservation, usedBy(record));
    const used = reportedCall(record);
    if (used !== null) this.#limiter.noteTokens(tool, used);
  }

  /** It stays known, however long it is idle. */
  #markFull(tool: string, { id, session, token, started_at }: OwnRecord): void {
    if (this.#closed.has(id)) return;
    this.#closed.add(id);
    const found = this.#limiter
      .countersFor(tool)
      .sessions.get(countedSession({ session, token }, started_at));
    if (found !== null) found.isFull = true;
  }

  #amend(id: string, { tool, admitted_at, session, before, after }: AmendedLimits): void {
    const counted = this.#amended.get(id) ?? before;
    this.#amended.set(id, after);
    const change = difference(counted, after);
    this.#limiter.countersFor(tool).correct({ at: admitted_at, session, ...change });
  }

  #stopSession(line: SessionStopLine): void {
    this.#forgetRenameBefore(line.tool, line.at);
    this.#limiter.stopSession(line.tool, line.session, line);
  }

  #liftSession(line: SessionLiftLine): void {
    const { tool, session, limit, amount, given_at } = line;
    this.#forgetRenameBefore(tool, given_at);
    const key = JSON.stringify([tool, session, limit, amount, given_at]);
    if (this.#allowances.has(key)) return;
    this.#allowances.add(key);
    this.#limiter.liftSession(tool, session, line);
  }

  #allow(line: LiftLine): void {
    const { tool, limit, amount, given_at, until } = line;
    this.#forgetRenameBefore(tool, given_at);
    const key = JSON.stringify([tool, limit, amount, given_at, until]);
    if (this.#allowances.has(key)) return;
    this.#allowances.add(key);
    this.#limiter.countersFor(tool).allow(line);
  }
}
