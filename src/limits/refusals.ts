import type { Period } from "../config/shape.ts";
import { type Refusal, type RefusalCode, refuse } from "../core/refusal.ts";
import { type Kind, type Level, remaining, type Shortage } from "./shortage.ts";
import type { Calendar } from "./windows.ts";
import { amountInWords, durationInWords, goDuration, momentInWords } from "./words.ts";

/** A client that waits longer than this without a word is worse than one that shows the refusal. */
const MAX_RETRY_AFTER_MS = 60_000;
/** When a request in flight ends is unknown. Long enough that the two or three tries of an SDK do not fit in a second. */
const RETRY_AFTER_REQUEST_MS = 5_000;
/** In a window of a day or longer, a client that retries every few seconds would go on for hours. */
const RETRY_AFTER_REQUEST_LONG_MS = 30_000;

const CODES = {
  requests: "rate-limited",
  tokens: "tokens-limited",
  spend: "spend-limited",
  concurrent: "too-many-at-once",
  quota: "quota-exhausted",
  price: "price-unknown",
} as const satisfies Readonly<Record<Shortage["limit"]["kind"], RefusalCode>>;

export interface RefusalContext {
  readonly tool: string;
  /** The model asked for; null: unknown. */
  readonly model: string | null;
  /** The request should name a model, and does not. */
  readonly lacksModel?: boolean;
  /** Milliseconds the request waited for capacity. */
  readonly waited: number;
  readonly now: number;
  readonly calendar: Calendar;
}

/** With retryAfter it becomes a 429. Without, capacity returns too late for a silent retry, so it becomes a 400. */
export function limitRefusal(shortage: Shortage, context: RefusalContext): Refusal {
  const { limit } = shortage;
  const { tool } = context;
  switch (limit.kind) {
    case "price":
      return priceRefusal(context);
    case "quota":
      return refuse(
        CODES.quota,
        `the quota of tool ${tool} is used up: ${usedInWords("spend", shortage)}. ` +
          `the owner can raise tools.${tool}.quota in config.yaml`,
      );
    case "concurrent":
      return refuse(
        CODES.concurrent,
        `tool ${tool} is at its limit of ${shortage.max} at once: ${shortage.used} of ${shortage.max} calls under way. ` +
          waitedInWords(context) +
          `try again when one of them has ended, or let it wait longer: tools.${tool}.limits.wait in config.yaml`,
        RETRY_AFTER_REQUEST_MS / 1000,
      );
    case "requests":
    case "tokens":
    case "spend":
      return rateRefusal(limit.kind, limit.per, shortage, context);
  }
}

function rateRefusal(kind: Kind, per: Period, shortage: Shortage, context: RefusalContext): Refusal {
  const { tool, now } = context;
  const inMs = roomIn(shortage, per, now);
  const soon = inMs !== null && inMs <= MAX_RETRY_AFTER_MS;
  const message =
    `tool ${tool} is at its limit of ${amountInWords(kind, shortage.max)} per ${per}: ` +
    `${usedInWords(kind, shortage)}. ${waitedInWords(context)}${roomInWords(shortage, context)}` +
    (soon ? "" : `. ${whatToType(kind, shortage, tool)}`);
  return refuse(CODES[kind], message, soon ? Math.max(1, Math.ceil(inMs / 1000)) : undefined);
}

/** How long until a retry may succeed; null: it never will. */
function roomIn({ roomAt, mayEndSooner }: Shortage, per: Period, now: number): number | null {
  const byTime = roomAt === null ? null : Math.max(0, roomAt - now);
  if (!mayEndSooner) return byTime;
  const long = per === "day" || per === "month";
  const byCall = long ? RETRY_AFTER_REQUEST_LONG_MS : RETRY_AFTER_REQUEST_MS;
  return Math.min(byCall, byTime ?? byCall);
}

function usedInWords(kind: Kind, { used, held, max, need }: Shortage): string {
  const parts = [`${amountInWords(kind, used, false)} of ${amountInWords(kind, max, false)} used`];
  if (held > 0) parts.push(`${amountInWords(kind, held, false)} held for calls under way`);
  if (kind !== "requests") parts.push(`this request may use ${amountInWords(kind, need, false)}`);
  return parts.join(", ");
}

function waitedInWords({ waited }: RefusalContext): string {
  return waited > 0 ? `it waited ${durationInWords(waited)} in vain. ` : "";
}

function roomInWords({ roomAt, mayEndSooner }: Shortage, { now, calendar }: RefusalContext): string {
  const when =
    roomAt === null ? null : `in ${durationInWords(roomAt - now)}, ${momentInWords(roomAt, now, calendar)}`;
  if (mayEndSooner)
    return `room may return when one of them ends${when === null ? "" : `, at the latest ${when}`}`;
  return when === null ? "room never returns by itself" : `room returns ${when}`;
}

function whatToType(kind: Kind, { max, roomAt }: Shortage, tool: string): string {
  const raise = `the owner can raise tools.${tool}.limits.${kind} in config.yaml`;
  if (roomAt === null) return raise;
  const amount = kind === "spend" ? max / 1_000_000 : max;
  return `${raise}, or give one more allowance: keybearer tools lift ${tool} --${kind} ${amount}`;
}

function priceRefusal({ tool, model, lacksModel = false }: RefusalContext): Refusal {
  const which = model === null ? "this request" : `model ${printable(model)}`;
  const advice = lacksModel
    ? "the request names no model: name one"
    : "the owner can write it under prices: in config.yaml";
  return refuse(
    CODES.price,
    `tool ${tool} has a limit on money, and the price of ${which} is not known. ${advice}`,
  );
}

export function modelRefusal(tool: string, group: string, model: string, models: readonly string[]): Refusal {
  const has = models.length === 0 ? "no model at all" : models.join(", ");
  return refuse(
    "model-not-in-group",
    `model ${printable(model)} is not in group ${group} of tool ${tool}, which has ${has}. ` +
      `choose one of these, or the owner can change the group's models in config.yaml`,
  );
}

/** Anything may have been sent as a name, and a terminal may show it. */
function printable(model: string): string {
  const plain = model.replace(/[^\x20-\x7e]/g, "?");
  return plain.length > 100 ? `${plain.slice(0, 100)}…` : plain;
}

/** The conventional headers. Times are written as OpenAI writes them (6m0s, 120ms), which is what clients parse. */
export function addRateHeaders(
  headers: string[],
  kind: "requests" | "tokens",
  level: Level,
  now: number,
): void {
  headers.push(`x-ratelimit-limit-${kind}`, String(level.max));
  headers.push(`x-ratelimit-remaining-${kind}`, String(remaining(level)));
  headers.push(`x-ratelimit-reset-${kind}`, goDuration((level.resetsAt ?? now) - now));
}
