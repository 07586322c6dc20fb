import { parse as parsePath } from "node:path";
import type { Listen, Period, Rate } from "../shape.ts";
import { quoted, type Read, type Reading } from "../text/section.ts";

/** How single settings are written: text in, value or fault out. Nothing here knows which setting it reads. */

const DURATION_UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

export const duration: Read<number> = (text) => {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)$/.exec(text);
  if (match) return { value: Math.round(Number(match[1]) * (DURATION_UNITS[match[2] ?? ""] ?? 0)) };
  if (text === "0") return { value: 0 };
  return {
    fault: `${quoted(text)} is not a duration`,
    hint: "write a number and a unit, such as 10s, 5m, 2h or 400d",
  };
};

export const flag: Read<boolean> = (text) => {
  if (text === "true") return { value: true };
  if (text === "false") return { value: false };
  return { fault: `${quoted(text)} is neither true nor false` };
};

export const words: Read<string> = (text) => {
  if (text.trim() === "")
    return { fault: "nothing is written here", hint: "write a value, or take the line out" };
  if (/\p{Cc}/u.test(text)) return { fault: "there is a control character in it" };
  if (text.length > 200) return { fault: "it is longer than 200 characters" };
  return { value: text };
};

export function oneOf<const T extends string>(...choices: readonly T[]): Read<T> {
  return (text) => {
    const found = choices.find((choice) => choice === text);
    if (found !== undefined) return { value: found };
    return { fault: `${quoted(text)} is not one of ${choices.join(", ")}` };
  };
}

export const factor: Read<number> = (text) => {
  if (/^\d{1,6}(?:\.\d{1,9})?$/.test(text)) return { value: Number(text) };
  return { fault: `${quoted(text)} is not a number`, hint: "such as 1.5" };
};

export const count: Read<number> = (text) => {
  if (/^[1-9]\d{0,5}$/.test(text)) return { value: Number(text) };
  return { fault: `${quoted(text)} is not a whole number above zero` };
};

/** Dollars, kept in whole micro-dollars so that sums stay exact. */
export const dollars: Read<number> = (text) => {
  const match = /^\$\s?(\d{1,9}(?:\.\d{1,6})?)$/.exec(text);
  if (match) return { value: Math.round(Number(match[1]) * 1_000_000) };
  return {
    fault: `${quoted(text)} is not an amount of money`,
    hint: "write it with a dollar sign, such as $5 or $0.50",
  };
};

/** $ per million tokens as a bare number. */
export const price: Read<number> = (text) => {
  const match = /^\$?(\d{1,6}(?:\.\d{1,6})?)$/.exec(text);
  if (match) return { value: Math.round(Number(match[1]) * 1_000_000) };
  return { fault: `${quoted(text)} is not a price`, hint: "dollars per million tokens, such as 1.25" };
};

const PERIODS: readonly Period[] = ["second", "minute", "hour", "day", "month"];

function rate(readMost: Read<number>, example: string): Read<Rate> {
  return (text): Reading<Rate> => {
    const slash = text.indexOf("/");
    const per = PERIODS.find((period) => period === text.slice(slash + 1).trim());
    if (slash < 1 || per === undefined) {
      return {
        fault: `${quoted(text)} is not a limit`,
        hint: `write it as ${example}; per ${PERIODS.join(", ")}`,
      };
    }
    const most = readMost(text.slice(0, slash).trim());
    return "value" in most ? { value: Object.freeze({ most: most.value, per }) } : most;
  };
}

const MULTIPLES: Readonly<Record<string, number>> = { "": 1, k: 1000, K: 1000, m: 1_000_000, M: 1_000_000 };

/** How many requests or tokens. */
export const amount: Read<number> = (text) => {
  const match = /^(\d{1,12}(?:\.\d{1,3})?)([kKmM]?)$/.exec(text);
  const value = match ? Math.round(Number(match[1]) * (MULTIPLES[match[2] ?? ""] ?? 1)) : 0;
  if (value > 0) return { value };
  return { fault: `${quoted(text)} is not an amount above zero`, hint: "such as 60, 400k or 1.5M" };
};

export const requestRate = rate(amount, "60/minute");
export const tokenRate = rate(amount, "400k/minute");
export const spendRate = rate(dollars, "$5/day");

export const listen: Read<Listen> = (text) => {
  const match = /^(.*):(\d{1,5})$/.exec(text);
  const port = Number(match?.[2] ?? Number.NaN);
  if (!match || port > 65_535)
    return { fault: `${quoted(text)} is not host:port`, hint: "such as localhost:5397" };
  const host = loopback((match[1] ?? "").toLowerCase());
  if (host === null) {
    return {
      fault: `${quoted(match[1] ?? "")} is not this machine's own loopback address`,
      hint: "keybearer serves this machine only: write localhost, 127.0.0.1 or [::1]",
    };
  }
  return { value: Object.freeze({ host, port }) };
};

function loopback(host: string): Listen["host"] | null {
  if (host === "localhost" || host === "127.0.0.1") return host;
  return host === "[::1]" ? "::1" : null;
}

export const absolutePath: Read<string> = (text) => {
  if (text.startsWith("/") && !text.includes("\0")) return { value: text };
  return { fault: `${quoted(text)} is not an absolute path`, hint: "write the whole path, from the first /" };
};

const INTERPRETER =
  /^(?:node|nodejs|bun|deno|python[\d.]*|ruby|perl|php|java|sh|bash|zsh|fish|dash|env|npx|npm)$/;

/** A program that runs other people's programs says nothing about who is calling. */
export const program: Read<string> = (text) => {
  const path = absolutePath(text);
  if ("value" in path && INTERPRETER.test(parsePath(text).base)) {
    return {
      fault: "an interpreter runs any program, so it cannot stand for one",
      hint: "use a token for this tool",
    };
  }
  return path;
};

export const origin: Read<string> = (text) => {
  if (/^[a-z][a-z0-9+.-]*:\/\/[^/\s*?#@]+$/.test(text)) return { value: text };
  return {
    fault: `${quoted(text)} is not an origin`,
    hint: "scheme and host exactly as sent, such as app://obsidian.md",
  };
};

/** A day holds through its end, local time; a full ISO time is that moment. The answer is the first moment after. */
export const moment: Read<number> = (text) => {
  const day = /^(\d{4})-(\d{2})-(\d{2})(?=T|$)/.exec(text);
  const [year, month, date] = [Number(day?.[1]), Number(day?.[2]), Number(day?.[3])];
  // Date takes the 30th of February for the 2nd of March, and the year 27 for 1927.
  const check = new Date(Date.UTC(year, month - 1, date));
  const isDay = year >= 1970 && check.getUTCMonth() === month - 1 && check.getUTCDate() === date;
  if (isDay && day?.[0] === text) return { value: new Date(year, month - 1, date + 1).getTime() };
  const full =
    isDay && /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})$/.test(text);
  const time = full ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(time)) return { value: time };
  return { fault: `${quoted(text)} is not a date`, hint: "such as 2027-03-31, or 2027-03-31T18:00:00Z" };
};
