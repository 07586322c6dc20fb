import type { Period } from "../../config/shape.ts";
import type { Allowance, CarriedRequest } from "../../limits/counters.ts";
import type { AmendedLimits, Counted, ToolCarry } from "../../limits/replay.ts";
import { type CountedWindow, PERIODS } from "../../limits/windows.ts";
import { openingOfFields, recordOfFields, textsOf, wholeNumber } from "../columns.ts";
import type { Opening, UsageRecord } from "../record.ts";

/*
 * The lines of the journal. Each is one JSON object on one line; docs/usage-log.md describes them for other programs.
 * Every line that tells of a record names its id and says how things are, not how they changed. So the same line read twice
 * changes nothing.
 */

/** Written before the request's first byte goes to the gateway. */
export interface OpenLine extends Opening {
  readonly kind: "open";
}

/** Written when the head of the gateway's response arrives: after a crash, the ids still name the request. */
export interface HeadLine {
  readonly kind: "head";
  readonly id: string;
  readonly status: number;
  readonly first_byte_at: number | null;
  readonly gateway_ids: Readonly<Record<string, string>>;
}

/** The whole record. A request that was refused here has no other line. */
export interface CloseLine extends UsageRecord {
  readonly kind: "close";
}

/** Later corrections: the fields a console knows better, and what that changes for the limits of the tool. */
export interface AmendLine extends AmendedFields {
  readonly kind: "amend";
  readonly id: string;
  /** null: the record counts under no limit. */
  readonly limits: AmendedLimits | null;
}

export const AMENDED = [
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "reasoning_tokens",
  "tokens_from",
  "list_microdollars",
  "cost_microdollars",
  "billed_microdollars",
  "counted_tokens",
  "counted_microdollars",
] as const satisfies readonly (keyof UsageRecord)[];

export type AmendedFields = Pick<UsageRecord, (typeof AMENDED)[number]>;

export interface LiftLine extends Allowance {
  readonly kind: "lift";
  readonly tool: string;
  readonly given_by: string;
}

/** The owner acknowledged the alarm for a console row. */
export interface AckLine {
  readonly kind: "ack";
  readonly gateway: string;
  readonly row: string;
  /** Whether it was a certain alarm. One for a suspicion does not end a certain alarm for the same row. */
  readonly certain: boolean;
  readonly at: number;
}

/** From when to when a tool held a key, by its fingerprint; `until` null: it still does. */
export interface KeyHeldLine {
  readonly kind: "key-held";
  readonly gateway: string;
  readonly key: string;
  readonly tool: string;
  readonly since: number;
  readonly until: number | null;
}

/** Opens a group of carry lines: so many tools follow. A group that is cut off does not count. */
export interface CarryLine {
  readonly kind: "carry";
  readonly tools: number;
}

/** Everything the limits know of one tool, so that a start reads the newest file only. */
export interface ToolCarryLine extends ToolCarry {
  readonly kind: "carry";
  /** When it last sent a request. */
  readonly last_use: number | null;
}

export type Line =
  | OpenLine
  | HeadLine
  | CloseLine
  | AmendLine
  | LiftLine
  | AckLine
  | KeyHeldLine
  | CarryLine
  | ToolCarryLine;

/** null: it is none of ours, or damaged. */
export function parseLine(text: string): Line | null {
  let fields: Record<string, unknown>;
  try {
    fields = JSON.parse(text);
  } catch {
    return null;
  }
  if (fields === null || typeof fields !== "object") return null;
  switch (fields.kind) {
    case "open":
    case "close":
      return recordLine(fields.kind, fields);
    case "head":
      return headLine(fields);
    case "amend":
      return amendLine(fields);
    case "lift":
      return liftLine(fields);
    case "ack":
      return typeof fields.gateway === "string" && typeof fields.row === "string"
        ? {
            kind: "ack",
            gateway: fields.gateway,
            row: fields.row,
            certain: fields.certain !== false,
            at: wholeNumber(fields.at) ?? 0,
          }
        : null;
    case "key-held":
      return keyHeldLine(fields);
    case "carry":
      return carryLine(fields);
    default:
      return null;
  }
}

function recordLine(kind: "open" | "close", fields: Record<string, unknown>): Line | null {
  if (typeof fields.id !== "string" || fields.id === "" || typeof fields.started_at !== "number") return null;
  if (kind === "open") return Object.assign(openingOfFields(fields), { kind });
  const record = recordOfFields(fields);
  return record.end === null ? null : Object.assign(record, { kind });
}

function headLine(fields: Record<string, unknown>): HeadLine | null {
  const { id } = fields;
  const status = wholeNumber(fields.status);
  if (typeof id !== "string" || id === "" || status === null) return null;
  const first_byte_at = wholeNumber(fields.first_byte_at);
  return { kind: "head", id, status, first_byte_at, gateway_ids: textsOf(fields.gateway_ids) };
}

function amendLine(fields: Record<string, unknown>): AmendLine | null {
  if (typeof fields.id !== "string" || fields.id === "") return null;
  const record = recordOfFields(fields);
  const amended = Object.fromEntries(AMENDED.map((name) => [name, record[name]])) as unknown as AmendedFields;
  return { kind: "amend", id: record.id, ...amended, limits: limitsOf(fields.limits) };
}

function limitsOf(value: unknown): AmendedLimits | null {
  const { tool, admitted_at, before, after } = objectOf(value);
  if (typeof tool !== "string" || typeof admitted_at !== "number") return null;
  return { tool, admitted_at, before: countedOf(before), after: countedOf(after) };
}

function countedOf(value: unknown): Counted {
  const { tokens, spend } = objectOf(value);
  return { tokens: wholeNumber(tokens) ?? 0, spend: wholeNumber(spend) ?? 0 };
}

function allowanceOf(fields: Record<string, unknown>): Allowance | null {
  const { limit } = fields;
  if (limit !== "requests" && limit !== "tokens" && limit !== "spend") return null;
  return {
    limit,
    amount: wholeNumber(fields.amount) ?? 0,
    given_at: wholeNumber(fields.given_at) ?? 0,
    until: wholeNumber(fields.until),
  };
}

function liftLine(fields: Record<string, unknown>): LiftLine | null {
  const allowance = allowanceOf(fields);
  if (allowance === null || typeof fields.tool !== "string") return null;
  return { kind: "lift", tool: fields.tool, ...allowance, given_by: String(fields.given_by ?? "") };
}

function keyHeldLine(fields: Record<string, unknown>): KeyHeldLine | null {
  const { gateway, key, tool } = fields;
  if (typeof gateway !== "string" || typeof key !== "string" || typeof tool !== "string") return null;
  return {
    kind: "key-held",
    gateway,
    key,
    tool,
    since: wholeNumber(fields.since) ?? 0,
    until: wholeNumber(fields.until),
  };
}

function carryLine(fields: Record<string, unknown>): CarryLine | ToolCarryLine | null {
  if (typeof fields.tools === "number") return { kind: "carry", tools: wholeNumber(fields.tools) ?? 0 };
  if (typeof fields.tool !== "string") return null;
  return {
    kind: "carry",
    tool: fields.tool,
    total: wholeNumber(fields.total) ?? 0,
    windows: objectsIn(fields.windows).flatMap(windowOf),
    allowances: objectsIn(fields.allowances).flatMap((one) => allowanceOf(one) ?? []),
    open: objectsIn(fields.open).flatMap(carriedRequest),
    last_use: wholeNumber(fields.last_use),
  };
}

function windowOf(fields: Record<string, unknown>): CountedWindow[] {
  const { per, start, end } = fields;
  if (!isPeriod(per) || typeof start !== "number" || typeof end !== "number") return [];
  return [
    {
      per,
      start,
      end,
      requests: wholeNumber(fields.requests) ?? 0,
      tokens: wholeNumber(fields.tokens) ?? 0,
      spend: wholeNumber(fields.spend) ?? 0,
    },
  ];
}

function isPeriod(value: unknown): value is Period {
  return PERIODS.includes(value as Period);
}

function carriedRequest(fields: Record<string, unknown>): CarriedRequest[] {
  const { id, admitted_at } = fields;
  if (typeof id !== "string" || typeof admitted_at !== "number") return [];
  return [
    { id, admitted_at, tokens: wholeNumber(fields.tokens) ?? 0, spend: wholeNumber(fields.spend) ?? 0 },
  ];
}

function objectOf(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === "object" ? (value as Record<string, unknown>) : {};
}

function objectsIn(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.map(objectOf) : [];
}
