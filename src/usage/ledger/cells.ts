import { type Closing, meteringOf, type Opening, type UsageRecord } from "../record.ts";
import { addTo, bucketOf, type FirstBytes, mergeFirstBytes } from "./first-bytes.ts";

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
  const cell = emptyCell(placeOf(record, record));
  addRecord(cell, record, record, record.billed_microdollars, 1);
  return cell;
}

type CellPlace = Lane & { readonly slot: number };

function placeOf(opening: Opening, closing: Closing): CellPlace {
  return {
    slot: slotOf(opening.started_at),
    tool: opening.tool ?? "",
    gateway: opening.gateway ?? "",
    group: opening.group ?? "",
    key: opening.key ?? "",
    model: modelIn(opening, closing),
  };
}

function modelIn(opening: Opening, closing: Closing): string {
  return closing.model ?? opening.model ?? closing.model_answered ?? "";
}

function emptyCell({ slot, tool, gateway, group, key, model }: CellPlace): Cell {
  return { slot, tool, gateway, group, key, model, sums: emptySums(), firstBytes: new Map() };
}

/** Adds what a record adds to its cell; `times` -1 takes it out again. The record's halves need not be put together. */
function addRecord(
  { sums, firstBytes }: Pick<Cell, "sums" | "firstBytes">,
  opening: Opening,
  closing: Closing,
  billed: number | null,
  times: number,
): void {
  const { end, status } = closing;
  const known = closing.input_tokens !== null && closing.output_tokens !== null;
  sums.requests += times;
  if (end === "refused") sums.refused += times;
  if (end === "gateway-failed" || (end === "complete" && status !== null && status >= 400))
    sums.failed += times;
  if (end === "client-left") sums.client_left += times;
  if (end === "interrupted") sums.interrupted += times;
  if (!known && mayCost(opening, closing)) sums.unmetered += times;
  if (known && closing.list_microdollars === null) sums.unpriced += times;
  sums.input_tokens += (closing.input_tokens ?? 0) * times;
  sums.cache_read_tokens += (closing.cache_read_tokens ?? 0) * times;
  sums.cache_write_tokens += (closing.cache_write_tokens ?? 0) * times;
  sums.output_tokens += (closing.output_tokens ?? 0) * times;
  sums.reasoning_tokens += (closing.reasoning_tokens ?? 0) * times;
  sums.list_microdollars += (closing.list_microdollars ?? 0) * times;
  sums.cost_microdollars += (closing.cost_microdollars ?? 0) * times;
  sums.billed_microdollars += (billed ?? 0) * times;
  if (billed !== null) sums.billed_requests += times;
  if (closing.counts !== false)
    // As spent.ts has it: the console's word counts before ours.
    sums.counted_microdollars +=
      (billed ?? closing.counted_microdollars ?? opening.held_microdollars ?? 0) * times;
  if (closing.first_byte_at !== null)
    addTo(firstBytes, bucketOf(closing.first_byte_at - opening.started_at), times);
}

/** What tells whether a request may have cost something. */
export type Costing = Pick<Opening, "method" | "endpoint"> & CostingEnd;
type CostingEnd = Pick<Closing, "status" | "end" | "refusal" | "bytes_in" | "first_byte_at">;

/** It asked for something that is billed, and reached a gateway, or may have. */
export function mayHaveArrived(record: Costing): boolean {
  return hasArrived(record, record);
}

function hasArrived(
  { method, endpoint }: Pick<Opening, "method" | "endpoint">,
  closing: CostingEnd,
): boolean {
  const { status, end, refusal } = closing;
  // What a WebSocket carries is not read.
  const billable = meteringOf(method, endpoint) !== null || status === 101;
  if (!billable || end === "refused" || refusal === "gateway-unreachable") return false;
  // It left before anything of it was sent.
  return end !== "client-left" || closing.bytes_in > 0 || closing.first_byte_at !== null;
}

/** The same, and the gateway did not refuse it. */
function mayCost(opening: Opening, closing: Closing): boolean {
  const { status, refusal } = closing;
  // A status beside a refusal of ours is ours: nobody knows what the gateway did.
  return hasArrived(opening, closing) && (refusal !== null || status === null || status < 400);
}

export function emptySums(): Sums {
  return {
    requests: 0,
    refused: 0,
    failed: 0,
    client_left: 0,
    interrupted: 0,
    unmetered: 0,
    unpriced: 0,
    input_tokens: 0,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    output_tokens: 0,
    reasoning_tokens: 0,
    list_microdollars: 0,
    cost_microdollars: 0,
    billed_microdollars: 0,
    billed_requests: 0,
    counted_microdollars: 0,
  };
}

/** Adds what the second cell holds to the first, which it changes; `times` -1 takes it out again. */
export function addCell(into: Pick<Cell, "sums" | "firstBytes">, from: Cell, times = 1): void {
  for (const name of SUMS) into.sums[name] += from.sums[name] * times;
  mergeFirstBytes(into.firstBytes, from.firstBytes, times);
}

/** Collects what records add to their cells, so that each cell is written once for many of them. */
export interface Tally {
  count(record: UsageRecord): void;
  /** A record that was not put together. */
  countHalves(opening: Opening, closing: Closing): void;
  /** Sums from elsewhere. */
  add(cell: Cell): void;
  /** A finished record was corrected: the old leaves its cell, the new enters its own. */
  change(before: UsageRecord, after: UsageRecord): void;
  /** What is to be added to each cell; may be negative after a change. */
  cells(): Iterable<Cell>;
}

/** Tells a cell from every other. */
export function cellName({ slot, tool, gateway, group, key, model }: CellPlace): string {
  return JSON.stringify([slot, tool, gateway, group, key, model]);
}

export function createTally(): Tally {
  const cells = new Map<string, Cell>();
  // Most flushes hold records of one cell: its name is not worked out again for each of them.
  let last: Cell | null = null;

  function sumAt(place: CellPlace): Cell {
    const name = cellName(place);
    const sum = cells.get(name) ?? emptyCell(place);
    cells.set(name, sum);
    last = sum;
    return sum;
  }

  function count(opening: Opening, closing: Closing, billed: number | null, times: number): void {
    const sum = last !== null && holds(last, opening, closing) ? last : sumAt(placeOf(opening, closing));
    addRecord(sum, opening, closing, billed, times);
  }

  return {
    count: (record) => count(record, record, record.billed_microdollars, 1),
    countHalves: (opening, closing) => count(opening, closing, null, 1),
    add: (cell) => addCell(sumAt(cell), cell),
    change(before, after) {
      count(before, before, before.billed_microdollars, -1);
      count(after, after, after.billed_microdollars, 1);
    },
    cells: () => cells.values(),
  };
}

function holds(cell: Cell, opening: Opening, closing: Closing): boolean {
  return (
    cell.slot === slotOf(opening.started_at) &&
    cell.tool === (opening.tool ?? "") &&
    cell.model === modelIn(opening, closing) &&
    cell.key === (opening.key ?? "") &&
    cell.group === (opening.group ?? "") &&
    cell.gateway === (opening.gateway ?? "")
  );
}
