import { type Allowance, type Carry, type Counters, countUsed, type Used } from "./counters.ts";
import type { CallTokens } from "./estimate.ts";
import type { Counted } from "./windows.ts";

/** Everything the limits know of one tool. A new journal file begins with these, so that a start reads only that file. */
export interface ToolCarry extends Carry {
  readonly tool: string;
}

/** How much more `after` is than `before`. */
export function difference(before: Counted, after: Counted): Counted {
  return {
    tokens: after.tokens - before.tokens,
    spend: after.spend - before.spend,
    estimated_tokens: after.estimated_tokens - before.estimated_tokens,
    estimated_spend: after.estimated_spend - before.estimated_spend,
  };
}

/** What a correction of a finished request changes. */
export interface AmendedLimits {
  readonly tool: string;
  /** When the request was admitted, which decides the windows it counts in. */
  readonly admitted_at: number;
  readonly before: Counted;
  readonly after: Counted;
}

/** What was reserved for a request; null: nothing. */
interface HeldFields {
  readonly held_tokens: number | null;
  readonly held_microdollars: number | null;
}

interface OpenLine extends HeldFields {
  readonly kind: "open";
  readonly id: string;
  readonly tool: string | null;
  readonly admitted_at: number | null;
}

/** The fields of a finished request's record that say what it takes from its tool's limits. */
interface CountedFields {
  readonly tokens_from: string;
  readonly output_tokens: number | null;
  readonly cost_microdollars: number | null;
  /** null: what was held. */
  readonly counted_tokens: number | null;
  readonly counted_microdollars: number | null;
  /** What the console charged; null: not known. A record that was just closed has none. */
  readonly billed_microdollars?: number | null;
}

/** The fields of a finished request's record that say what it used. */
interface ReportedFields extends Pick<CountedFields, "tokens_from" | "output_tokens"> {
  readonly input_tokens: number | null;
  readonly cache_read_tokens: number | null;
  readonly cache_write_tokens: number | null;
}

interface CloseLine extends CountedFields, ReportedFields {
  readonly kind: "close";
  readonly id: string;
  readonly tool: string | null;
  /** false: nothing of the request reached the gateway. */
  readonly counts: boolean | null;
}

interface LiftLine extends Allowance {
  readonly kind: "lift";
  readonly tool: string;
}

/**
 * The lines of the usage journal, as far as the limits read them. usage/journal/lines.ts defines them in full; this folder
 * does not import usage/, so the compiler compares the two where the journal calls Limiter.replay().
 */
export type JournalLine =
  | OpenLine
  | CloseLine
  | LiftLine
  | { readonly kind: "amend"; readonly id: string; readonly limits: AmendedLimits | null }
  | ({ readonly kind: "carry" } & ToolCarry)
  | { readonly kind: "carry"; readonly tools: number }
  | { readonly kind: "rename"; readonly from: string; readonly to: string }
  | { readonly kind: "sent" | "head" | "refusals" | "ack" | "key-held" | "sibling" | "sibling-amend" };

/** A record without its output has no complete report, so what it counts is an estimate. */
export function usedOf(record: CountedFields): Used {
  const { tokens_from, output_tokens, cost_microdollars } = record;
  const billed = record.billed_microdollars ?? null;
  const isText = tokens_from === "estimated";
  return {
    tokens: record.counted_tokens,
    spend: billed ?? record.counted_microdollars,
    areTokensEstimated: isText || output_tokens === null,
    isSpendEstimated: billed === null && (isText || cost_microdollars === null),
  };
}

/** What a record takes from its tool's limits: the console's numbers, else ours, else what was reserved. */
export function countedOf(record: CountedFields & HeldFields): Counted {
  const held = { tokens: record.held_tokens ?? 0, spend: record.held_microdollars };
  return countUsed(usedOf(record), held);
}

/** What a call used, as reported; null: not all of it is known. */
export function reportedCall(record: ReportedFields): CallTokens | null {
  const { tokens_from, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens } = record;
  if (tokens_from !== "reported" || input_tokens === null || output_tokens === null) return null;
  const input = input_tokens + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0);
  return { input, output: output_tokens };
}

/**
 * Restores the counters and the usual sizes at start from the lines of the newest journal file. A line that is read twice
 * counts once.
 */
export class Replay {
  readonly #countersOf: (tool: string) => Counters;
  readonly #noteTokens: (tool: string, call: CallTokens) => void;
  /** The requests that were opened and closed, by id. */
  readonly #closed = new Set<string>();
  /** What counts of the requests that were amended, by id. */
  readonly #amended = new Map<string, Counted>();
  /** The allowances that were given, as JSON. The counters forget them some time after they have ended. */
  readonly #allowances = new Set<string>();

  constructor(countersOf: (tool: string) => Counters, noteTokens: (tool: string, call: CallTokens) => void) {
    this.#countersOf = countersOf;
    this.#noteTokens = noteTokens;
  }

  read(line: JournalLine): void {
    if (line.kind === "open") this.#open(line);
    else if (line.kind === "close") this.#close(line);
    else if (line.kind === "lift") this.#allow(line);
    else if (line.kind === "amend" && line.limits !== null) this.#amend(line.id, line.limits);
    else if (line.kind === "carry" && "tool" in line) this.#countersOf(line.tool).restore(line);
  }

  #open({ id, tool, admitted_at, held_tokens, held_microdollars }: OpenLine): void {
    if (tool === null || admitted_at === null || this.#closed.has(id)) return;
    const counters = this.#countersOf(tool);
    if (counters.find(id) !== null) return;
    const reservation = counters.hold(held_tokens ?? 0, held_microdollars, admitted_at);
    counters.recorded(reservation, id);
  }

  /** A request that is not in flight was refused, or is included in the carry. */
  #close(line: CloseLine): void {
    if (line.tool === null) return;
    const counters = this.#countersOf(line.tool);
    const reservation = counters.find(line.id);
    if (reservation === null) return;
    this.#closed.add(line.id);
    if (line.counts === false) {
      counters.cancel(reservation);
      return;
    }
    counters.settle(reservation, usedOf(line));
    const used = reportedCall(line);
    if (used !== null) this.#noteTokens(line.tool, used);
  }

  #amend(id: string, limits: AmendedLimits): void {
    const { tool, admitted_at, after } = limits;
    const before = this.#amended.get(id) ?? limits.before;
    this.#amended.set(id, after);
    this.#countersOf(tool).correct({ at: admitted_at, ...difference(before, after) });
  }

  #allow(line: LiftLine): void {
    const { tool, limit, amount, given_at, until } = line;
    const key = JSON.stringify([tool, limit, amount, given_at, until]);
    if (this.#allowances.has(key)) return;
    this.#allowances.add(key);
    this.#countersOf(tool).allow(line);
  }
}
