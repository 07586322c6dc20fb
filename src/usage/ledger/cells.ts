import { meteringOf, type UsageRecord } from "../record.ts";
import { bucketOf, type FirstBytes, mergeFirstBytes } from "./first-bytes.ts";

/** A quarter of an hour: every time zone is a multiple of that away from UTC. */
export const SLOT_MS = 900_000;

/** Where what lies before the oldest record kept is summed up. */
export const FOLDED_SLOT = 0;

/** What is summed up, in the order of the columns. */
export const SUMS = [
  "requests",
  "refused",
  "failed",
  "client_left",
  "interrupted",
  "unmetered",
  "unpriced",
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "reasoning_tokens",
  "list_microdollars",
  "cost_microdollars",
  "billed_microdollars",
  "billed_requests",
  /** What the tool's total quota counts. */
  "counted_microdollars",
] as const;

export type Sums = Record<(typeof SUMS)[number], number>;

/** Whose sums they are. An empty text stands for null: a primary key has no nulls. */
export interface Lane {
  readonly tool: string;
  readonly gateway: string;
  readonly group: string;
  readonly key: string;
  readonly model: string;
}

export interface Cell extends Lane {
  readonly slot: number;
  readonly sums: Sums;
  readonly firstBytes: FirstBytes;
}

export function slotOf(time: number): number {
  return Math.floor(time / SLOT_MS);
}

/** The cell a finished record belongs to, holding what this one record adds to it. */
export function cellOf(record: UsageRecord): Cell {
  const { end, status } = record;
  const failed = end === "gateway-failed" || (end === "complete" && status !== null && status >= 400);
  const known = record.input_tokens !== null && record.output_tokens !== null;
  const firstBytes: FirstBytes = new Map();
  if (record.first_byte_at !== null) firstBytes.set(bucketOf(record.first_byte_at - record.started_at), 1);
  return {
    slot: slotOf(record.started_at),
    tool: record.tool ?? "",
    gateway: record.gateway ?? "",
    group: record.group ?? "",
    key: record.key ?? "",
    model: record.model ?? record.model_answered ?? "",
    sums: {
      requests: 1,
      refused: one(end === "refused"),
      failed: one(failed),
      client_left: one(end === "client-left"),
      interrupted: one(end === "interrupted"),
      unmetered: one(mayCost(record) && !known),
      unpriced: one(known && record.list_microdollars === null),
      input_tokens: record.input_tokens ?? 0,
      cache_read_tokens: record.cache_read_tokens ?? 0,
      cache_write_tokens: record.cache_write_tokens ?? 0,
      output_tokens: record.output_tokens ?? 0,
      reasoning_tokens: record.reasoning_tokens ?? 0,
      list_microdollars: record.list_microdollars ?? 0,
      cost_microdollars: record.cost_microdollars ?? 0,
      billed_microdollars: record.billed_microdollars ?? 0,
      billed_requests: one(record.billed_microdollars !== null),
      counted_microdollars:
        record.counts === false
          ? 0
          : // As spent.ts has it: the console's word counts before ours.
            (record.billed_microdollars ?? record.counted_microdollars ?? record.held_microdollars ?? 0),
    },
    firstBytes,
  };
}

/** What tells whether a request may have cost something. */
export type Costing = Pick<
  UsageRecord,
  "method" | "endpoint" | "status" | "end" | "refusal" | "bytes_in" | "first_byte_at"
>;

/** It asked for something that is billed, and reached a gateway, or may have. */
export function mayHaveArrived(record: Costing): boolean {
  const { method, endpoint, status, end, refusal } = record;
  // What a WebSocket carries is not read.
  const billable = meteringOf(method, endpoint) !== null || status === 101;
  if (!billable || end === "refused" || refusal === "gateway-unreachable") return false;
  // It left before anything of it was sent.
  return end !== "client-left" || record.bytes_in > 0 || record.first_byte_at !== null;
}

/** The same, and the gateway did not refuse it. */
function mayCost(record: Costing): boolean {
  const { status, refusal } = record;
  // A status beside a refusal of ours is ours: nobody knows what the gateway did.
  return mayHaveArrived(record) && (refusal !== null || status === null || status < 400);
}

export function emptySums(): Sums {
  return Object.fromEntries(SUMS.map((name) => [name, 0])) as Sums;
}

/** Adds what the second cell holds to the first, which it changes; `times` -1 takes it out again. */
export function addCell(into: Pick<Cell, "sums" | "firstBytes">, from: Cell, times = 1): void {
  for (const name of SUMS) into.sums[name] += from.sums[name] * times;
  mergeFirstBytes(into.firstBytes, from.firstBytes, times);
}

/** Collects what records add to their cells, so that each cell is written once for many of them. */
export interface Tally {
  count(record: UsageRecord): void;
  /** Sums from elsewhere. */
  add(cell: Cell): void;
  /** A finished record was corrected: the old leaves its cell, the new enters its own. */
  change(before: UsageRecord, after: UsageRecord): void;
  /** What is to be added to each cell; may be negative after a change. */
  cells(): Iterable<Cell>;
}

export function createTally(): Tally {
  const cells = new Map<string, Cell>();

  function add(cell: Cell, times: number): void {
    const { slot, tool, gateway, group, key, model } = cell;
    const name = JSON.stringify([slot, tool, gateway, group, key, model]);
    let sum = cells.get(name);
    if (sum === undefined) {
      sum = { ...cell, sums: emptySums(), firstBytes: new Map() };
      cells.set(name, sum);
    }
    addCell(sum, cell, times);
  }

  return {
    count: (record) => add(cellOf(record), 1),
    add: (cell) => add(cell, 1),
    change(before, after) {
      add(cellOf(before), -1);
      add(cellOf(after), 1);
    },
    cells: () => cells.values(),
  };
}

function one(holds: boolean): number {
  return holds ? 1 : 0;
}
