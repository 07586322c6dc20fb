import type { Period } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import { type Refusal, type RefusalCode, refuse } from "../core/refusal.ts";
import { MINUTE_MS } from "../core/units.ts";
import { type Kind, type Level, remaining, type Shortage } from "./counters.ts";
import {
  amountInWords,
  amountToType,
  countInWords,
  durationInWords,
  limitFigures,
  momentInWords,
  printableModel,
} from "./format.ts";
import type { Calendar } from "./windows.ts";

/** A client that waits longer than this without a message is worse than one that shows the refusal. */
const MAX_RETRY_AFTER_MS = MINUTE_MS;
/** When a request in flight ends is unknown. Long enough that the two or three tries of an SDK do not fit in a second. */
const RETRY_AFTER_REQUEST_MS = 5_000;
/** In a window of a day or longer, a client that retries every few seconds would go on for hours. */
const RETRY_AFTER_REQUEST_LONG_MS = 30_000;

const RATE_CODES = {
  requests: "rate-limited",
  tokens: "tokens-limited",
  spend: "spend-limited",
} as const satisfies Readonly<Record<Kind, RefusalCode>>;

interface RefusalContext {
  readonly tool: string;
  /** The model asked for; null: unknown. */
  readonly model: string | null;
  /** The request should name a model, and does not. */
  readonly lacksModel: boolean;
  /** Milliseconds the request waited for capacity. */
  readonly waited: number;
  readonly now: number;
  readonly calendar: Calendar;
  /** The extra allowance with which the request would be admitted. */
  readonly neededAllowance: (kind: Kind) => number;
}

/** With retryAfter it becomes a 429. Without, capacity returns too late for a silent retry, so it becomes a 400. */
export function limitRefusal(shortage: Shortage, context: RefusalContext): Refusal {
  const { limit, used, held, max } = shortage;
  const { tool } = context;
  switch (limit.kind) {
    case "price":
      return priceRefusal(context);
    case "quota":
      return refuse(
        "quota-exhausted",
        `the quota of tool ${tool} is used up: ${usedInWords("spend", shortage)}. ` +
          `the owner can raise tools.${tool}.quota in config.yaml`,
      );
    case "session":
      return sessionRefusal(limit.of, limit.session, shortage, context);
    case "session-stopped":
      return refuse(
        "session-stopped",
        `session ${limit.session} of tool ${tool} was stopped by its owner. begin a new session, or the owner can type: ` +
          advice.allowSession(limit.session, tool),
      );
    case "concurrent":
      return refuse(
        "too-many-at-once",
        `tool ${tool} is at its limit of ${max} at once: ${used + held} of ${max} requests in flight` +
          `${elsewhereInWords("requests", shortage)}. ` +
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

function sessionRefusal(kind: Kind, session: string, shortage: Shortage, { tool }: RefusalContext): Refusal {
  const { used, held, max, extra, need } = shortage;
  // As much as a session gets from the start, and at least what this request lacks.
  const more = amountToType(kind, Math.max(max - extra, used + held + need - max));
  const state =
    `session ${session} of tool ${tool} is at its limit of ${amountInWords(kind, max, extra)}: ` +
    `${usedInWords(kind, shortage)}. `;
  const give = `the owner can give this one more: ${advice.liftSession(session, kind, more, tool)}`;
  // An agent that works with several requests at once goes on when some of them have ended.
  if (used + need <= max)
    return refuse(
      "session-limited",
      `${state}try again when one of its requests in flight has ended, or ${give}`,
      RETRY_AFTER_REQUEST_MS / 1000,
    );
  return refuse("session-limited", `${state}begin a new session, or ${give}`);
}

function rateRefusal(kind: Kind, per: Period, shortage: Shortage, context: RefusalContext): Refusal {
  const { tool, now } = context;
  const retryIn = retryAfterMs(shortage, per, now);
  const isSoon = retryIn !== null && retryIn <= MAX_RETRY_AFTER_MS;
  const message =
    `tool ${tool} is at its limit of ${amountInWords(kind, shortage.max, shortage.extra)} per ${per}: ` +
    `${usedInWords(kind, shortage)}. ${waitedInWords(context)}${capacityInWords(shortage, context)}` +
    (isSoon ? "" : `. ${whatToType(kind, shortage, context)}`);
  return refuse(RATE_CODES[kind], message, isSoon ? Math.max(1, Math.ceil(retryIn / 1000)) : undefined);
}

/** How long until a retry may succeed; null: it never will. */
function retryAfterMs({ capacityAt, mayEndSooner }: Shortage, per: Period, now: number): number | null {
  const untilReset = capacityAt === null ? null : Math.max(0, capacityAt - now);
  if (!mayEndSooner) return untilReset;
  const isLong = per === "day" || per === "month";
  const untilEnd = isLong ? RETRY_AFTER_REQUEST_LONG_MS : RETRY_AFTER_REQUEST_MS;
  return Math.min(untilEnd, untilReset ?? untilEnd);
}

function usedInWords(kind: Kind, shortage: Shortage): string {
  const { elsewhere } = shortage;
  const { used, estimated, held, max, need } = limitFigures(kind, shortage);
  const parts = [`${used} of ${max} used`];
  if (estimated !== null) parts.push(`incl. ${estimated} estimated`);
  // Another machine may also hold some for its next requests.
  const holders = elsewhere > 0 ? "requests in flight and other machines" : "requests in flight";
  if (held !== null) parts.push(`${held} reserved for ${holders}`);
  if (kind !== "requests" && need !== null) parts.push(`this request may use ${need}`);
  return parts.join(", ") + elsewhereInWords(kind, shortage);
}

function elsewhereInWords(kind: Kind, { elsewhere }: Shortage): string {
  return elsewhere > 0 ? ` (${countInWords(kind, elsewhere)} on other machines)` : "";
}

function waitedInWords({ waited }: RefusalContext): string {
  return waited > 0 ? `it waited ${durationInWords(waited)} for capacity. ` : "";
}

function capacityInWords({ capacityAt, mayEndSooner }: Shortage, { now, calendar }: RefusalContext): string {
  const when =
    capacityAt === null
      ? null
      : `in ${durationInWords(capacityAt - now)}, ${momentInWords(capacityAt, now, calendar)}`;
  if (mayEndSooner)
    return `capacity may return when one of them ends${when === null ? "" : `, at the latest ${when}`}`;
  return when === null ? "capacity never returns by itself" : `capacity returns ${when}`;
}

function whatToType(kind: Kind, { capacityAt }: Shortage, { tool, neededAllowance }: RefusalContext): string {
  const raise = `the owner can raise tools.${tool}.limits.${kind} in config.yaml`;
  if (capacityAt === null) return raise;
  const lift = advice.lift(tool, kind, amountToType(kind, neededAllowance(kind)));
  return `${raise}, or give one more allowance: ${lift}`;
}

function priceRefusal({ tool, model, lacksModel }: RefusalContext): Refusal {
  const which = model === null ? "this request" : `model ${printableModel(model)}`;
  const next = lacksModel
    ? "the request names no model: name one"
    : "the owner can add it under prices: in config.yaml";
  return refuse(
    "price-unknown",
    `tool ${tool} has a limit on money, and the price of ${which} is not known. ${next}`,
  );
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
  headers.push(`x-ratelimit-reset-${kind}`, goDuration((level.window?.end ?? now) - now));
}

/** As Go writes durations: 120ms, 6s, 6m0s, 24h0m0s. */
export function goDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.ceil(ms))}ms`;
  const seconds = Math.ceil(ms / 1000);
  const h = Math.floor(seconds / 3600);
  const m = Math.floor(seconds / 60) % 60;
  const s = seconds % 60;
  if (h > 0) return `${h}h${m}m${s}s`;
  return m > 0 ? `${m}m${s}s` : `${s}s`;
}
