import { type Clock, systemClock } from "../core/clock.ts";
import { createAccount } from "./account.ts";
import { createBook } from "./book.ts";
import { createConsole } from "./console/console.ts";
import { createSessions } from "./console/sessions.ts";
import { type Exchange, readBody, sendJson, sendText } from "./exchange.ts";
import { createFaults } from "./faults.ts";
import { serveGateway } from "./gateway.ts";
import { createGroups, DEFAULT_GROUPS, type GroupSettings } from "./groups.ts";
import { createKeys } from "./keys.ts";
import { indexPage } from "./page.ts";
import { createPrefixCache } from "./prefix-cache.ts";
import type { Ask } from "./protocols/protocol.ts";
import { routeOf } from "./routes.ts";
import { createUsageLog } from "./usage-log.ts";
import { friendlyAnswer } from "./words.ts";
import { createZone, type Zone } from "./zone.ts";

export interface SandboxOptions {
  /** Default the system's. Waits are real ones, whatever it says. */
  readonly clock?: Clock;
  /** Milliseconds before each word of a stream. Default 15. */
  readonly wordDelay?: number;
  /** What to answer. Default a friendly text that says the question back. */
  readonly answer?: (ask: Ask) => string;
  /** Default: default, coding, and retired, which is disabled. */
  readonly groups?: readonly GroupSettings[];
  /** Dollars on the account. Default 100. */
  readonly balance?: number;
  /** Where the server stands, for dates without a time zone and the offset of times. Default UTC. */
  readonly timezone?: string;
  /** How many requests are remembered, and how many bytes of each body. Default 1000 and 8 KiB. */
  readonly book?: { readonly requests?: number; readonly bodyBytes?: number };
  /** Calls of the console's usage log that one minute allows; sub2api allows 60. Default any number. */
  readonly consoleUsagePerMinute?: number;
  /** Told of a failure inside the sandbox itself; the client gets a 500. Default nobody. */
  readonly onError?: (error: unknown) => void;
}

const DEFAULT_BALANCE = 100;
const DEFAULT_WORD_DELAY = 15;
const DEFAULT_BOOK = { requests: 1000, bodyBytes: 8 * 1024 };

export type Rooms = ReturnType<typeof createRooms>;

/** Everything that the sandbox is made of, put together once. */
export function createRooms(options: SandboxOptions) {
  const clock = options.clock ?? systemClock;
  const zone = zoneOf(options.timezone ?? "UTC");
  const account = createAccount(options.balance ?? DEFAULT_BALANCE);
  const groups = createGroups(options.groups ?? DEFAULT_GROUPS);
  const keys = createKeys(clock, groups);
  const usage = createUsageLog();
  const faults = createFaults();
  const sessions = createSessions(clock, account);
  const bounds = { ...DEFAULT_BOOK, ...options.book };
  const book = createBook(bounds.requests, bounds.bodyBytes);
  const shared = { clock, zone, account, keys, groups, usage, book };
  return {
    ...shared,
    faults,
    sessions,
    prefixes: createPrefixCache(),
    wordDelay: options.wordDelay ?? DEFAULT_WORD_DELAY,
    textFor: options.answer ?? friendlyAnswer,
    console: createConsole({
      ...shared,
      sessions,
      usagePerMinute: options.consoleUsagePerMinute ?? null,
    }),
  };
}

export async function serve(exchange: Exchange, rooms: Rooms): Promise<void> {
  const route = routeOf(exchange.method, exchange.path);
  switch (route.kind) {
    case "console":
      return rooms.console.serve(exchange);
    case "not-found":
      await readBody(exchange, rooms.book, 0);
      return sendText(exchange, 404, "text/plain", "404 page not found");
    case "page":
      await readBody(exchange, rooms.book, 0);
      return sendText(exchange, 200, "text/html; charset=utf-8", indexPage);
    default:
      return serveGateway(exchange, route, rooms);
  }
}

/** Only a bug gets here. The client must not wait for ever because of it. */
export function fail(exchange: Exchange): void {
  if (exchange.response.headersSent) exchange.response.destroy();
  else sendJson(exchange, 500, { code: 500, message: "the sandbox failed to answer; this is a bug in it" });
}

function zoneOf(name: string): Zone {
  const zone = createZone(name);
  if (zone === null) throw new Error(`there is no time zone ${name}`);
  return zone;
}
