import type { RefusalCode } from "../../core/refusal.ts";
import { exact } from "../../core/units.ts";

/* How shares, refusals, JSON and CSV are shown. */

/** 0.00813, for a spreadsheet. */
export function plainDollars(microdollars: number | null): number | null {
  return microdollars === null ? null : microdollars / 1_000_000;
}

/** 1 request, 2,000 requests */
export function count(number: number, noun: string): string {
  return `${exact(number)} ${noun}${number === 1 ? "" : "s"}`;
}

const UNITS: readonly (readonly [number, string])[] = [
  [1e12, "T"],
  [1e9, "B"],
  [1e6, "M"],
  [1e3, "k"],
];

/** 999, 1.2k, 45k, 3.4M */
export function short(number: number): string {
  if (number < 1000) return String(Math.round(number));
  for (const [size, unit] of UNITS) {
    // 999,500 is 1.0M, not 1000k.
    if (number < size * 0.9995) continue;
    const value = number / size;
    return `${value < 9.95 ? value.toFixed(1) : Math.round(value)}${unit}`;
  }
  return String(Math.round(number));
}

/** 0.4%, 87% */
export function percent(share: number): string {
  return share > 0 && share < 0.0095 ? `${(share * 100).toFixed(1)}%` : `${Math.round(share * 100)}%`;
}

/** Short descriptions. What to do about a refusal was in its own message. */
const REFUSALS: Readonly<Record<RefusalCode, string>> = {
  "token-missing": "it sent no token",
  "token-incomplete": "its token is incomplete",
  "token-unknown": "no tool has the token it sent",
  "foreign-key": "it sent a real key, or a second credential beside the token",
  "tool-disabled": "the tool is disabled in config.yaml",
  "tool-expired": "the tool has expired",
  "key-unavailable": "the tool's key was not available, or the gateway kept refusing it",
  "needs-trust": "config.yaml changed where the key comes from or goes, and needs your confirmation",
  "group-disabled": "the tool's group is disabled",
  "model-not-in-group": "the tool's group does not have this model",
  "price-unknown": "the tool has a money limit, and the price of this model is not known",
  "quota-exhausted": "the tool's quota is used up",
  "session-limited": "the session reached its limit",
  "session-stopped": "the session was stopped",
  "rate-limited": "the tool reached its limit of requests",
  "tokens-limited": "the tool reached its limit of tokens",
  "spend-limited": "the tool reached its limit of money",
  "too-many-at-once": "the tool reached its limit of requests at once",
  "wrong-base-url": "the tool's base URL is wrong",
  "host-not-allowed": "it named a host other than localhost",
  "browser-request": "it came from a web page",
  "other-user": "it came from another user of this machine",
  "bad-request": "it was not a valid request",
  "headers-too-large": "its headers were too large",
  "body-too-large": "its body was too large",
  loop: "it had passed through keybearer before",
  "websockets-off": "it asked for a WebSocket, and WebSockets are off for this gateway",
  "gateway-unreachable": "the gateway could not be reached",
  "gateway-timeout": "the gateway did not answer in time",
  "gateway-broken": "the gateway's answer was broken",
  "log-unavailable": "the usage log could not be written",
  "store-unavailable": "the store that machines share could not be used",
  overloaded: "too many requests at once: memory or file descriptors were used up",
  "shutting-down": "keybearer was stopping",
};

export function refusalInWords(code: string | null): string {
  return REFUSALS[code as RefusalCode] ?? code ?? "unknown reason";
}

/** Control characters, line separators and changes of text direction that JSON allows as they are. */
const TERMINAL_CONTROLS = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** JSON that is safe to print on a terminal. */
export function jsonText(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent).replace(
    TERMINAL_CONTROLS,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** RFC 4180: CRLF and doubled quotes. Control characters become "?". */
export function csvLine(cells: readonly unknown[]): string {
  return `${cells.map(csvCell).join(",")}\r\n`;
}

/**
 * A spreadsheet runs a cell that begins like a formula, so an apostrophe makes it text. Excel in East Asian settings also
 * reads the fullwidth forms of these signs. In a spreadsheet that separates cells by `;` or `|`, a cell also begins after
 * those, and quotes do not prevent that.
 */
function csvCell(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const isNumber = /^-?\d+(?:\.\d+)?$/.test(text);
  const isFormula = /^\s*[=+\-@\t\r\n＝＋－＠]/u.test(text) && !isNumber;
  const escaped = (isFormula ? `'${text}` : text).replace(/[;|](?=[\s"]*[=+\-@＝＋－＠])/gu, "$&'");
  const shown = escaped.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, "?");
  return /[",;|]|^\s|\s$/.test(shown) ? `"${shown.replaceAll('"', '""')}"` : shown;
}
