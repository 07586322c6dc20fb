import { basename } from "node:path";
import { nearest } from "../core/nearest.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../core/units.ts";
import { type Listen, PERIODS, type Rate } from "./schema.ts";
import { quoted, type Reader, type ValueResult } from "./section.ts";

/** Readers of single values: text in, value or problem out. */

const DURATION_UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: MINUTE_MS,
  h: HOUR_MS,
  d: DAY_MS,
};

export const parseDuration: Reader<number> = (text) => {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)$/.exec(text);
  if (match) return { value: Math.round(Number(match[1]) * (DURATION_UNITS[match[2] ?? ""] ?? 0)) };
  if (text === "0") return { value: 0 };
  return {
    problem: `${quoted(text)} is not a duration`,
    next: "write a number and a unit, such as 10s, 5m, 2h or 400d",
  };
};

export const flag: Reader<boolean> = (text) => {
  if (text === "true") return { value: true };
  if (text === "false") return { value: false };
  return { problem: `${quoted(text)} is neither true nor false`, next: "write true or false" };
};

export const plainText: Reader<string> = (text) => {
  if (text.trim() === "")
    return { problem: "nothing is written here", next: "write a value, or remove the line" };
  if (/\p{Cc}/u.test(text))
    return { problem: "the value contains a control character", next: "write it on one line" };
  if (text.length > 200) return { problem: "the value is longer than 200 characters", next: null };
  return { value: text };
};

export function oneOf<const T extends string>(...choices: readonly T[]): Reader<T> {
  return (text) => {
    const found = choices.find((choice) => choice === text);
    if (found !== undefined) return { value: found };
    return { problem: `${quoted(text)} is not one of ${choices.join(", ")}`, next: null };
  };
}

export const factor: Reader<number> = (text) => {
  if (/^\d{1,6}(?:\.\d{1,9})?$/.test(text)) return { value: Number(text) };
  return { problem: `${quoted(text)} is not a number`, next: "such as 1.5" };
};

export const parseCount: Reader<number> = (text) => {
  if (/^[1-9]\d{0,5}$/.test(text)) return { value: Number(text) };
  return { problem: `${quoted(text)} is not a whole number above zero`, next: null };
};

/** Money as it is typed: a shell reads $5 as one of its variables, so the sign may be left out. */
export function withDollarSign(text: string): string {
  const typed = text.trim();
  return /^\d/.test(typed) ? `$${typed}` : typed;
}

/** Dollars as whole micro-dollars, so that sums stay exact. */
export const parseDollars: Reader<number> = (text) => {
  const match = /^\$\s?(\d{1,9}(?:\.\d{1,6})?)$/.exec(text);
  if (match) return { value: Math.round(Number(match[1]) * 1_000_000) };
  return {
    problem: `${quoted(text)} is not an amount of money`,
    next: "write it with a dollar sign, such as $5 or $0.50",
  };
};

/** Dollars per million tokens. */
export const price: Reader<number> = (text) => {
  const match = /^\$?(\d{1,6}(?:\.\d{1,6})?)$/.exec(text);
  if (match) return { value: Math.round(Number(match[1]) * 1_000_000) };
  return { problem: `${quoted(text)} is not a price`, next: "dollars per million tokens, such as 1.25" };
};

function rate(readMax: Reader<number>, example: string): Reader<Rate> {
  return (text): ValueResult<Rate> => {
    const slash = text.indexOf("/");
    const per = PERIODS.find((period) => period === text.slice(slash + 1).trim());
    if (slash < 1 || per === undefined) {
      return {
        problem: `${quoted(text)} is not a limit`,
        next: `write it as ${example}; per ${PERIODS.join(", ")}`,
      };
    }
    const max = readMax(text.slice(0, slash).trim());
    return "value" in max ? { value: Object.freeze({ max: max.value, per }) } : max;
  };
}

const MULTIPLES: Readonly<Record<string, number>> = { "": 1, k: 1000, K: 1000, m: 1_000_000, M: 1_000_000 };

/** A number of requests or tokens. */
export const amount: Reader<number> = (text) => {
  const match = /^(\d{1,12}(?:\.\d{1,3})?)([kKmM]?)$/.exec(text);
  const value = match ? Math.round(Number(match[1]) * (MULTIPLES[match[2] ?? ""] ?? 1)) : 0;
  if (value > 0) return { value };
  return { problem: `${quoted(text)} is not an amount above zero`, next: "such as 60, 400k or 1.5M" };
};

export const requestRate = rate(amount, "60/minute");
export const tokenRate = rate(amount, "400k/minute");
export const spendRate = rate(parseDollars, "$5/day");

export const listen: Reader<Listen> = (text) => {
  const match = /^(.*):(\d{1,5})$/.exec(text);
  const port = Number(match?.[2] ?? Number.NaN);
  if (!match || port > 65_535)
    return { problem: `${quoted(text)} is not host:port`, next: "such as localhost:5397" };
  const host = loopback((match[1] ?? "").toLowerCase());
  if (host === null) {
    return {
      problem: `${quoted(match[1] ?? "")} is not a loopback address of this machine`,
      next: "keybearer serves only this machine: write localhost, 127.0.0.1 or [::1]",
    };
  }
  return { value: Object.freeze({ host, port }) };
};

function loopback(host: string): Listen["host"] | null {
  if (host === "localhost" || host === "127.0.0.1") return host;
  return host === "[::1]" ? "::1" : null;
}

const INTERPRETER =
  /^(?:node|nodejs|bun|deno|python[\d.]*|ruby|perl|php|java|sh|bash|zsh|fish|dash|env|npx|npm)$/;

/** An interpreter runs any program, so it does not identify the caller. */
export const program: Reader<string> = (text) => {
  if (!text.startsWith("/") || text.includes("\0"))
    return {
      problem: `${quoted(text)} is not an absolute path`,
      next: "write the whole path, from the first /",
    };
  if (INTERPRETER.test(basename(text)))
    return {
      problem: "an interpreter runs any program, so it does not identify one",
      next: "use a token for this tool",
    };
  return { value: text };
};

export const origin: Reader<string> = (text) => {
  if (/^[a-z][a-z0-9+.-]*:\/\/[^/\s*?#@]+$/.test(text)) return { value: text };
  return {
    problem: `${quoted(text)} is not an origin`,
    next: "scheme and host exactly as sent, such as app://obsidian.md",
  };
};

/** A day, through its end in local time, or an ISO time. The value is the first moment that is too late. */
export const moment: Reader<number> = (text) => {
  const day = /^(\d{4})-(\d{2})-(\d{2})(?=T|$)/.exec(text);
  const year = Number(day?.[1]);
  const month = Number(day?.[2]);
  const date = Number(day?.[3]);
  // Date takes the 30th of February for the 2nd of March, and the year 27 for 1927.
  const asUtc = new Date(Date.UTC(year, month - 1, date));
  const isDay = year >= 1970 && asUtc.getUTCMonth() === month - 1 && asUtc.getUTCDate() === date;
  if (isDay && day?.[0] === text) return { value: new Date(year, month - 1, date + 1).getTime() };
  const full =
    isDay && /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})$/.test(text);
  const time = full ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(time)) return { value: time };
  return { problem: `${quoted(text)} is not a date`, next: "such as 2027-03-31, or 2027-03-31T18:00:00Z" };
};

/** The name of a zone such as Europe/Berlin, in the spelling of Intl. */
export const timezone: Reader<string> = (text) => {
  // Some versions of Node also take an offset such as +02:00, which knows no summer time.
  const isName = /^[A-Za-z]/.test(text);
  const resolved = isName ? findZone(text) : null;
  if (resolved !== null) return { value: resolved.toLowerCase() === text.toLowerCase() ? resolved : text };
  const near = nearest(text, Intl.supportedValuesOf("timeZone"));
  return {
    problem: `${quoted(text)} is not a time zone`,
    next: near === null ? "such as Europe/Berlin or UTC" : `did you mean ${near}?`,
  };
};

/** The name of a time zone as Intl has it; null: there is no such zone. */
export function findZone(text: string): string | null {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: text }).resolvedOptions().timeZone;
  } catch {
    // A RangeError: Intl knows no such zone.
    return null;
  }
}

// Addresses of gateways, consoles and proxies. Keys are sent to these, so nothing is guessed.

const ENDPOINTS =
  /\/(?:chat\/completions|completions|responses|messages|embeddings|models|images\/generations|audio\/\w+)\/?$/;
const VERSION = /\/v\d+[a-z0-9]*$/;

export const baseUrl: Reader<string> = (text) => {
  const address = plainAddress(text);
  if ("problem" in address) return address;
  const endpoint = ENDPOINTS.exec(address.value);
  if (endpoint) {
    const cut = address.value.slice(0, endpoint.index);
    const problem = `the base url ends in the endpoint path ${endpoint[0]}`;
    return { problem, next: `cut it off: ${cut}`, suggestion: VERSION.test(cut) ? cut : `${cut}/v1` };
  }
  if (!VERSION.test(address.value)) return versionMissing(address.value);
  return address;
};

/** What gateways put before the version. Any other path is most likely a page of the console. */
const BEFORE_VERSION =
  /^(?:\/(?:api|openai|anthropic|claude|gemini|proxy|gateway|llm|ai|inference|compatible-mode))*$/;

function versionMissing(address: string): ValueResult<string> {
  const problem = "the base url does not end in its version segment";
  const { origin, pathname } = new URL(address);
  const isBase = BEFORE_VERSION.test(pathname.replace(/\/$/, ""));
  const suggestion = isBase ? `${address}/v1` : `${origin}/v1`;
  const source = isBase ? "" : 'copy the base url from the console\'s "use key" page; ';
  return { problem, next: `${source}probably: ${suggestion}`, suggestion };
}

export const messagesUrl: Reader<string> = (text) => {
  const address = plainAddress(text);
  if ("problem" in address) return address;
  const extra = /(?:\/v1)?(?:\/messages)?$/.exec(address.value)?.[0] ?? "";
  if (extra === "") return address;
  const cut = address.value.slice(0, -extra.length);
  return {
    problem: `the messages address ends in ${extra}, which keybearer adds to every request`,
    next: `cut it off: ${cut}`,
  };
};

export const consoleUrl: Reader<string> = plainAddress;

export const proxyUrl: Reader<string> = (text) => {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== "http:" || url.pathname !== "/" || /[?#@]/.test(text)) {
    return {
      problem: `${quoted(text)} is not an outbound proxy`,
      next: "write http://host:port, without a password",
    };
  }
  return { value: url.origin };
};

const DEFAULT_STORE_PORT = 6379;

/** The address of a Redis or Valkey server: rediss://host:port, and /1 to /15 for another database than 0. */
export const storeUrl: Reader<string> = (text) => {
  const example = "such as rediss://valkey.example.net:6379";
  const scheme = /^(rediss?):\/\//i.exec(text)?.[1]?.toLowerCase();
  if (scheme === undefined)
    return { problem: `${quoted(text)} is not the address of a store`, next: example };
  const rest = text.slice(scheme.length + "://".length);
  if (/^[^/]*@/.test(rest)) {
    return {
      problem: "the address contains a user name or password",
      next: "remove it: store: { url: …, username: …, password: keychain:keybearer/shared }",
    };
  }
  if (/[?#]/.test(rest))
    return { problem: "the address contains a query or fragment", next: "cut it off at the ? or #" };
  const match = /^(\[[\da-f:.]+\]|[\w.-]+)(?::(\d{1,5}))?(\/.*)?$/i.exec(rest);
  const host = parseHost(match?.[1] ?? "");
  const port = Number(match?.[2] ?? DEFAULT_STORE_PORT);
  if (host === null || port === 0 || port > 65_535)
    return { problem: `${quoted(text)} is not the address of a store`, next: example };
  if (host.endsWith(".")) return { problem: "the host name ends in a dot", next: "remove the dot" };
  const database = /^\/?(\d|1[0-5])?$/.exec(match?.[3] ?? "");
  if (database === null) {
    return {
      problem: "after the port only the number of a database may follow, 0 to 15",
      next: `${scheme}://${host}:${port}/1`,
    };
  }
  if (scheme === "redis" && !isLoopback(host)) {
    return {
      problem: "redis would send the password and the records unencrypted",
      next: `write rediss://${host}:${port}`,
    };
  }
  const number = database[1] ?? "0";
  return { value: `${scheme}://${host}:${port}${number === "0" ? "" : `/${number}`}` };
};

/** As URL writes it for the web: in lower case, each IP address in one form. URL leaves hosts of other schemes alone. */
function parseHost(text: string): string | null {
  const address = `https://${text}`;
  return URL.canParse(address) ? new URL(address).hostname : null;
}

/** base_url without its version segment, the default of messages_url. */
export function withoutVersion(address: string): string {
  return address.replace(VERSION, "");
}

function plainAddress(text: string): ValueResult<string> {
  const url = /^https?:\/\//i.test(text) && URL.canParse(text) ? new URL(text) : null;
  if (url === null)
    return { problem: `${quoted(text)} is not an address`, next: "such as https://gateway.example.com/v1" };
  // An @ before the path. An empty user name counts, too.
  if (/^https?:[\\/]*[^\\/?#]*@/i.test(text)) {
    return {
      problem: "the address contains a user name or password",
      next: "remove it: a key belongs in the tool's key setting",
    };
  }
  if (/[?#]/.test(text))
    return { problem: "the address contains a query or fragment", next: "cut it off at the ? or #" };
  if (/\\|%2e|%2f|%5c|\/\.\.?(?:\/|$)|[^\x21-\x7e]/i.test(text)) {
    return {
      problem: "the address contains a dot segment, a backslash or a hidden character",
      next: "write the address without it",
    };
  }
  if (url.hostname.endsWith(".")) return { problem: "the host name ends in a dot", next: "remove the dot" };
  if (url.protocol === "http:" && !isLoopback(url.hostname)) {
    return {
      problem: "http would send the key unencrypted",
      next: `write https://${url.host}${url.pathname}`,
    };
  }
  return { value: url.origin + url.pathname.replace(/\/+$/, "") };
}

/** For a host as URL.hostname writes it. */
export function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(hostname);
}
