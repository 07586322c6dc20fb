import type { Period } from "../config/shape.ts";
import { type Refusal, type RefusalCode, refuse } from "../refusal.ts";
import type { Nearest } from "./gauges.ts";
import type { Kind, Shortage } from "./shortage.ts";
import type { Calendar } from "./windows.ts";
import { amountInWords, durationInWords, goDuration, momentInWords } from "./words.ts";

/** Beyond this a client that waits in silence is worse than one that shows why. */
const WORTH_A_RETRY = 60_000;
/** Nobody knows when a call ends. Long enough that the two or three tries of an SDK are not over in a second. */
const UNTIL_A_CALL_ENDS = 5_000;
/** Where the window is a day or longer, a loop that comes back every few seconds would go on for hours. */
const UNTIL_A_CALL_ENDS_IN_A_LONG_WINDOW = 30_000;

const CODES = {
  requests: "rate-limited",
  tokens: "tokens-limited",
  spend: "spend-limited",
  concurrent: "too-many-at-once",
  quota: "quota-exhausted",
  price: "price-unknown",
} as const satisfies Readonly<Record<Shortage["limit"]["kind"], RefusalCode>>;

/** Why a body does not tell its model: it cannot be read, names it too far back, or not at all. */
export type Unseen = "unreadable" | "later" | "none";

export interface RefusalContext {
  readonly tool: string;
  /** The model asked for; null: not known. */
  readonly model: string | null;
  /** Why it is not known, where the body is the reason. */
  readonly unseen?: Unseen | null;
  /** Milliseconds it waited for room already. */
  readonly waited: number;
  readonly now: number;
  readonly calendar: Calendar;
}

/**
 * Says no for a limit. With retryAfter: come back then (429). Without: room does not return soon enough to wait for it
 * in silence, so it must be answered as one that is not to be tried again (400).
 */
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
        `tool ${tool} is at its limit of ${shortage.most} at once: ${shortage.used} of ${shortage.most} calls under way. ` +
          waitedInWords(context) +
          `try again when one of them has ended, or let it wait longer: tools.${tool}.limits.wait in config.yaml`,
        UNTIL_A_CALL_ENDS / 1000,
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
  const soon = inMs !== null && inMs <= WORTH_A_RETRY;
  const message =
    `tool ${tool} is at its limit of ${amountInWords(kind, shortage.most)} per ${per}: ` +
    `${usedInWords(kind, shortage)}. ${waitedInWords(context)}${roomInWords(shortage, context)}` +
    (soon ? "" : `. ${whatToType(kind, shortage, tool)}`);
  return refuse(CODES[kind], message, soon ? Math.max(1, Math.ceil(inMs / 1000)) : undefined);
}

/** How long until it is worth trying again; null: it never is. */
function roomIn({ roomAt, mayEndSooner }: Shortage, per: Period, now: number): number | null {
  const byTime = roomAt === null ? null : Math.max(0, roomAt - now);
  if (!mayEndSooner) return byTime;
  const long = per === "day" || per === "month";
  const byCall = long ? UNTIL_A_CALL_ENDS_IN_A_LONG_WINDOW : UNTIL_A_CALL_ENDS;
  return Math.min(byCall, byTime ?? byCall);
}

function usedInWords(kind: Kind, { used, held, most, need }: Shortage): string {
  const parts = [`${amountInWords(kind, used, false)} of ${amountInWords(kind, most, false)} used`];
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

function whatToType(kind: Kind, { most, roomAt }: Shortage, tool: string): string {
  const raise = `the owner can raise tools.${tool}.limits.${kind} in config.yaml`;
  if (roomAt === null) return raise;
  const amount = kind === "spend" ? most / 1_000_000 : most;
  return `${raise}, or give one more allowance: keybearer tools lift ${tool} --${kind} ${amount}`;
}

/** What no price in the file can mend. */
const UNSEEN: Readonly<Record<Unseen, string>> = {
  unreadable: "the body is compressed, or a form without a boundary: send it plain",
  later: "the model does not stand within the first megabyte of the body: put it before the messages",
  none: "the request names no model: name one",
};

function priceRefusal({ tool, model, unseen = null }: RefusalContext): Refusal {
  const which = model === null ? "this request" : `model ${shown(model)}`;
  const mend =
    model === null && unseen !== null
      ? UNSEEN[unseen]
      : "the owner can write it under prices: in config.yaml";
  return refuse(
    CODES.price,
    `tool ${tool} has a limit on money, and the price of ${which} is not known. ${mend}`,
  );
}

export function modelRefusal(tool: string, group: string, model: string, models: readonly string[]): Refusal {
  const has = models.length === 0 ? "no model at all" : models.join(", ");
  return refuse(
    "model-not-in-group",
    `model ${shown(model)} is not in group ${group} of tool ${tool}, which has ${has}. ` +
      `choose one of these, or the owner can change the group's models in config.yaml`,
  );
}

/** A name that anybody may have sent, into a terminal. */
function shown(model: string): string {
  const plain = model.replace(/[^\x20-\x7e]/g, "?");
  return plain.length > 100 ? `${plain.slice(0, 100)}…` : plain;
}

export const TOLD_IN_HEADERS = ["requests", "tokens"] as const;

/**
 * The headers that clients and gateways agree on, for the limit that is nearest to being reached. Times are
 * written as OpenAI writes them (6m0s, 120ms), which is what clients parse.
 */
export function addRateHeaders(
  headers: string[],
  kind: (typeof TOLD_IN_HEADERS)[number],
  { most, left, resetsAt }: Nearest,
  now: number,
): void {
  const reset = goDuration(resetsAt - now);
  // Written out: names that are put together anew are looked up anew by whoever gets them.
  if (kind === "requests") {
    headers.push("x-ratelimit-limit-requests", String(most));
    headers.push("x-ratelimit-remaining-requests", String(left));
    headers.push("x-ratelimit-reset-requests", reset);
  } else {
    headers.push("x-ratelimit-limit-tokens", String(most));
    headers.push("x-ratelimit-remaining-tokens", String(left));
    headers.push("x-ratelimit-reset-tokens", reset);
  }
}

/** The disk is tried every second. */
export function unknownSpent(tool: string): Refusal {
  const message = `the usage log cannot be read yet, so that nobody knows what tool ${tool} has used. see: keybearer status`;
  return refuse("log-unavailable", message, 2);
}
