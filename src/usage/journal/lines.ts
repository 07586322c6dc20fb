import { PERIODS } from "../../config/schema.ts";
import { asFields, asList, type JsonObject, parseObject, textsIn } from "../../core/json.ts";
import { pick } from "../../core/pick.ts";
import type { Allowance, CarriedRequest } from "../../limits/counters.ts";
import type { ToolCarry } from "../../limits/limiter.ts";
import type { CarriedSession, SessionLift, SessionStop } from "../../limits/sessions.ts";
import type { Counted, CountedWindow } from "../../limits/windows.ts";
import {
  type Opening,
  openingOfFields,
  recordFromLine,
  recordOfFields,
  type UsageRecord,
  wholeNumber,
} from "../record.ts";

/*
 * The lines of the journal. Each is one JSON object; docs/usage-log.md describes them for other programs. A line about a
 * record names its id and says how things are, not how they changed. So reading a line twice changes nothing.
 */

/** Written before the request's first byte goes to the gateway. */
export interface OpenLine extends Opening {
  readonly kind: "open";
}

/** Only of a request that had to wait for its gateway: whether something of it may have been sent. See Journal.markSending(). */
interface SentLine extends Pick<Opening, "id" | "sent_at"> {
  readonly kind: "sent";
}

/** Written when the head of the gateway's response arrives. So after a crash, the gateway's ids are known. */
export interface HeadLine {
  readonly kind: "head";
  readonly id: string;
  readonly status: number;
  readonly first_byte_at: number | null;
  readonly gateway_ids: Readonly<Record<string, string>>;
}

/** The whole record. A request that was refused here has no other line. */
interface CloseLine extends UsageRecord {
  readonly kind: "close";
}

/** The record of a request that another machine sent. Limits and everything else that is about this machine ignore it. */
export interface SiblingLine extends UsageRecord {
  readonly kind: "sibling";
  readonly machine: string;
  readonly machine_id: string;
  /** Its signature was checked. Without one, the store may have invented it. */
  readonly verified: boolean;
}

/**
 * Requests of one kind in one minute that have no record of their own, because twenty others do. None of them reached a
 * gateway. A run may have several lines: they have the same first id, and the largest count is right.
 */
export interface RefusalsLine {
  readonly kind: "refusals";
  /** null: unknown callers. */
  readonly tool: string | null;
  /** That of the first of them. */
  readonly gateway: string | null;
  /** Of the refusal, or CLIENT_LEFT. */
  readonly code: string;
  /** When the minute began. */
  readonly minute: number;
  readonly count: number;
  readonly first_id: string;
  readonly last_id: string;
}

/** Instead of a refusal's code: the clients left before anything was sent. */
export const CLIENT_LEFT = "client-left";

/** What a correction of a finished request changes for its tool's limits. */
export interface AmendedLimits {
  readonly tool: string;
  /** When the request was admitted, which decides the windows it counts in. */
  readonly admitted_at: number;
  /** The session that it counts in; null: none. */
  readonly session: string | null;
  readonly before: Counted;
  readonly after: Counted;
}

/** A later correction: the fields that a console knows better, and what that changes for the tool's limits. */
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

/** A later correction of another machine's record, by that machine or by what this machine read at the console. */
export interface SiblingAmendLine extends AmendedFields {
  readonly kind: "sibling-amend";
  readonly id: string;
  readonly machine: string;
  readonly machine_id: string;
  /** As in SiblingLine. What this machine read at the console is verified. */
  readonly verified: boolean;
}

export interface LiftLine extends Allowance {
  readonly kind: "lift";
  readonly tool: string;
  readonly given_by: string;
}

/** The owner stopped a session, or allowed it again. */
export interface SessionStopLine extends SessionStop {
  readonly kind: "session-stop";
  readonly tool: string;
  readonly session: string;
  readonly given_by: string;
}

/** The owner gave a session more than its limit. */
export interface SessionLiftLine extends SessionLift {
  readonly kind: "session-lift";
  readonly tool: string;
  readonly session: string;
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

/** From when to when a tool held a key. */
export interface KeyHeldLine {
  readonly kind: "key-held";
  readonly gateway: string;
  /** Fingerprint. */
  readonly key: string;
  readonly tool: string;
  readonly since: number;
  /** null: it still does. */
  readonly until: number | null;
}

/** A tool has another name from now on. Records before this line keep the old one. */
export interface RenameLine {
  readonly kind: "rename";
  readonly from: string;
  readonly to: string;
  readonly at: number;
}

/** Begins a group of carry lines, one for each of this many tools. An incomplete group does not count. */
interface CarryLine {
  readonly kind: "carry";
  readonly tools: number;
}

/** Everything the limits know of one tool. So a start reads only the newest file. */
interface ToolCarryLine extends ToolCarry {
  readonly kind: "carry";
  /** When it last sent a request. */
  readonly last_use: number | null;
}

export type Line =
  | OpenLine
  | SentLine
  | HeadLine
  | CloseLine
  | RefusalsLine
  | SiblingLine
  | AmendLine
  | SiblingAmendLine
  | LiftLine
  | SessionStopLine
  | SessionLiftLine
  | AckLine
  | KeyHeldLine
  | RenameLine
  | CarryLine
  | ToolCarryLine;

/** null: the line is damaged, or of an unknown kind. */
export function parseLine(text: string): Line | null {
  const fields = parseObject(text);
  if (fields === null) return null;
  switch (fields.kind) {
    case "open":
      return hasRecord(fields) ? Object.assign(openingOfFields(fields), { kind: "open" as const }) : null;
    case "close": {
      if (!hasRecord(fields)) return null;
      const record = recordFromLine(fields);
      return record.end === null ? null : Object.assign(record, { kind: "close" as const });
    }
    case "refusals":
      return refusalsLine(fields);
    case "sibling":
      return siblingLine(fields);
    case "sent":
      return sentLine(fields);
    case "head":
      return headLine(fields);
    case "amend":
      return amendLine(fields);
    case "sibling-amend":
      return siblingAmendLine(fields);
    case "lift":
      return liftLine(fields);
    case "session-stop":
      return sessionStopLine(fields);
    case "session-lift":
      return sessionLiftLine(fields);
    case "ack":
      return ackLine(fields);
    case "key-held":
      return keyHeldLine(fields);
    case "rename":
      return renameLine(fields);
    case "carry":
      return carryLine(fields);
    default:
      return null;
  }
}

function hasRecord({ id, started_at }: JsonObject): boolean {
  return typeof id === "string" && id !== "" && typeof started_at === "number";
}

function refusalsLine(fields: JsonObject): RefusalsLine | null {
  const { first_id, last_id, code } = fields;
  const minute = wholeNumber(fields.minute);
  const count = wholeNumber(fields.count);
  if (typeof first_id !== "string" || first_id === "" || typeof last_id !== "string") return null;
  if (typeof code !== "string" || minute === null || count === null || count === 0) return null;
  const { tool, gateway } = recordOfFields(fields);
  return { kind: "refusals", tool, gateway, code, minute, count, first_id, last_id };
}

/** The one record that stands for all of them. */
export function recordOfRefusals(line: RefusalsLine): UsageRecord {
  const { tool, gateway, code, minute, count, first_id, last_id } = line;
  const how = code === CLIENT_LEFT ? { end: CLIENT_LEFT } : { end: "refused", refusal: code };
  const fields = { id: first_id, started_at: minute, tool, gateway, counts: false, ...how };
  return { ...recordOfFields(fields), requests: count, last_id };
}

function siblingLine(fields: JsonObject): SiblingLine | null {
  const machine = parseMachine(fields);
  if (machine === null || !hasRecord(fields)) return null;
  const record = recordOfFields(fields);
  return record.end === null ? null : Object.assign(record, machine, { kind: "sibling" as const });
}

/** Without control characters. */
const MACHINE_NAME = /^[^\p{Cc}\p{Cs}]{1,64}$/u;

function parseMachine(fields: JsonObject): Pick<SiblingLine, "machine" | "machine_id" | "verified"> | null {
  const { machine, machine_id, verified } = fields;
  if (!isMachineName(machine) || !isMachineName(machine_id)) return null;
  return { machine, machine_id, verified: verified === true };
}

/** Of a machine's name, and of its id. */
export function isMachineName(value: unknown): value is string {
  return typeof value === "string" && MACHINE_NAME.test(value);
}

function sentLine({ id, sent_at }: JsonObject): SentLine | null {
  if (typeof id !== "string" || id === "") return null;
  return { kind: "sent", id, sent_at: wholeNumber(sent_at) };
}

function headLine(fields: JsonObject): HeadLine | null {
  const { id } = fields;
  const status = wholeNumber(fields.status);
  if (typeof id !== "string" || id === "" || status === null) return null;
  const first_byte_at = wholeNumber(fields.first_byte_at);
  return { kind: "head", id, status, first_byte_at, gateway_ids: textsIn(fields.gateway_ids) };
}

function amendLine(fields: JsonObject): AmendLine | null {
  const amended = amendedFields(fields);
  return amended && { kind: "amend", ...amended, limits: parseLimits(asFields(fields.limits)) };
}

function siblingAmendLine(fields: JsonObject): SiblingAmendLine | null {
  const machine = parseMachine(fields);
  const amended = amendedFields(fields);
  return machine && amended && { kind: "sibling-amend", ...machine, ...amended };
}

function amendedFields(fields: JsonObject): (AmendedFields & Pick<AmendLine, "id">) | null {
  if (typeof fields.id !== "string" || fields.id === "") return null;
  const record = recordOfFields(fields);
  return { id: record.id, ...pick(record, AMENDED) };
}

function parseLimits(fields: JsonObject): AmendedLimits | null {
  const { tool, admitted_at, session } = fields;
  if (typeof tool !== "string" || typeof admitted_at !== "number") return null;
  return {
    tool,
    admitted_at,
    session: textOrNull(session),
    before: parseCounted(asFields(fields.before)),
    after: parseCounted(asFields(fields.after)),
  };
}

function parseCounted({ tokens, spend, estimated_tokens, estimated_spend }: JsonObject): Counted {
  return {
    tokens: parseAmount(tokens),
    spend: parseAmount(spend),
    estimated_tokens: parseAmount(estimated_tokens),
    estimated_spend: parseAmount(estimated_spend),
  };
}

function liftLine(fields: JsonObject): LiftLine | null {
  const [allowance] = parseAllowance(fields);
  if (allowance === undefined || typeof fields.tool !== "string") return null;
  return { kind: "lift", tool: fields.tool, ...allowance, given_by: String(fields.given_by ?? "") };
}

function sessionStopLine({ tool, session, stopped, at, given_by }: JsonObject): SessionStopLine | null {
  if (typeof tool !== "string" || typeof session !== "string" || typeof stopped !== "boolean") return null;
  const by = String(given_by ?? "");
  return { kind: "session-stop", tool, session, stopped, at: parseAmount(at), given_by: by };
}

function sessionLiftLine({ tool, session, given_by, ...fields }: JsonObject): SessionLiftLine | null {
  const [lift] = parseAllowance({ ...fields, until: null });
  if (lift === undefined || typeof tool !== "string" || typeof session !== "string") return null;
  const { limit, amount, given_at } = lift;
  const by = String(given_by ?? "");
  return { kind: "session-lift", tool, session, limit, amount, given_at, given_by: by };
}

function ackLine({ gateway, row, certain, at }: JsonObject): AckLine | null {
  if (typeof gateway !== "string" || typeof row !== "string") return null;
  return { kind: "ack", gateway, row, certain: certain !== false, at: parseAmount(at) };
}

function keyHeldLine({ gateway, key, tool, since, until }: JsonObject): KeyHeldLine | null {
  if (typeof gateway !== "string" || typeof key !== "string" || typeof tool !== "string") return null;
  return { kind: "key-held", gateway, key, tool, since: parseAmount(since), until: wholeNumber(until) };
}

function renameLine({ from, to, at }: JsonObject): RenameLine | null {
  if (typeof from !== "string" || typeof to !== "string") return null;
  return { kind: "rename", from, to, at: parseAmount(at) };
}

function carryLine(fields: JsonObject): CarryLine | ToolCarryLine | null {
  const { tools, tool } = fields;
  if (typeof tools === "number") return { kind: "carry", tools: parseAmount(tools) };
  if (typeof tool !== "string") return null;
  return {
    kind: "carry",
    tool,
    total: parseAmount(fields.total),
    estimated_total: parseAmount(fields.estimated_total),
    windows: asList(fields.windows).map(asFields).flatMap(parseWindow),
    allowances: asList(fields.allowances).map(asFields).flatMap(parseAllowance),
    sessions: asList(fields.sessions).map(asFields).flatMap(parseSession),
    open: asList(fields.open).map(asFields).flatMap(parseRequest),
    last_use: wholeNumber(fields.last_use),
  };
}

/* The items of a carry line; empty: the item is damaged. */

function parseWindow(fields: JsonObject): CountedWindow[] {
  const { start, end, last } = fields;
  const per = PERIODS.find((one) => one === fields.per);
  if (per === undefined || typeof start !== "number" || typeof end !== "number") return [];
  const counts = { requests: parseAmount(fields.requests), ...parseCounted(fields) };
  const isInside = typeof last === "number" && last >= start && last < end;
  return [{ per, start, end, ...counts, last: isInside ? last : (start + end) / 2 }];
}

function parseAllowance({ limit, amount, given_at, until }: JsonObject): Allowance[] {
  if (limit !== "requests" && limit !== "tokens" && limit !== "spend") return [];
  const whole = wholeNumber(amount);
  // 0 takes allowances back, so a damaged amount must not pass for it.
  if (whole === null) return [];
  return [{ limit, amount: whole, given_at: parseAmount(given_at), until: wholeNumber(until) }];
}

function parseRequest({ id, admitted_at, tokens, spend, session }: JsonObject): CarriedRequest[] {
  if (typeof id !== "string" || typeof admitted_at !== "number") return [];
  const amounts = { tokens: parseAmount(tokens), spend: parseAmount(spend) };
  return [{ id, admitted_at, ...amounts, session: textOrNull(session) }];
}

function parseSession(fields: JsonObject): CarriedSession[] {
  const { id, extra, stopped, full } = fields;
  if (typeof id !== "string" || id === "") return [];
  const known = {
    id,
    ...parseAmounts(fields),
    begun: parseAmount(fields.begun),
    last: parseAmount(fields.last),
  };
  const given = extra === undefined ? {} : { extra: parseAmounts(asFields(extra)) };
  const marks = { ...(stopped === true ? { stopped } : {}), ...(full === true ? { full } : {}) };
  return [{ ...known, ...given, ...marks }];
}

function parseAmounts({
  requests,
  tokens,
  spend,
}: JsonObject): Pick<CarriedSession, "requests" | "tokens" | "spend"> {
  return { requests: parseAmount(requests), tokens: parseAmount(tokens), spend: parseAmount(spend) };
}

function textOrNull(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function parseAmount(value: unknown): number {
  return wholeNumber(value) ?? 0;
}
