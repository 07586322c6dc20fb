import { type Clock, systemClock } from "../clock.ts";
import { Secret } from "../secret.ts";
import { createAccount } from "./account.ts";
import { type BookEntry, createBook } from "./book.ts";
import { createConsole } from "./console/console.ts";
import { createSessions } from "./console/sessions.ts";
import { type Exchange, openExchange, readBody, sendJson, sendText } from "./exchange.ts";
import { createFaults, type Fault } from "./faults.ts";
import { serveGateway } from "./gateway.ts";
import { createGroups, DEFAULT_GROUPS, type Group, type GroupSettings } from "./groups.ts";
import { createKeys, type KeyRecord, type KeyRequest, type KeyState } from "./keys.ts";
import { createListener } from "./listener.ts";
import { indexPage } from "./page.ts";
import { createPrefixCache } from "./prefix-cache.ts";
import type { Ask } from "./protocols/protocol.ts";
import { routeOf } from "./routes.ts";
import { createUsageLog, type UsageRow } from "./usage-log.ts";
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

export interface CreatedKey {
  readonly id: number;
  /** The whole string, this once. */
  readonly key: Secret;
}

export interface KeyView {
  readonly id: number;
  readonly name: string;
  readonly group: string;
  readonly state: KeyState;
  /** sk-abcd…wxyz */
  readonly mask: string;
  readonly quota: number | null;
  readonly quotaUsed: number;
  readonly expiresAt: number | null;
  /** Requests under way. */
  readonly running: number;
}

/** A gateway as SPEC.md describes it, with a console like sub2api's, on a loopback port of its own. */
export interface Sandbox {
  /** Port 0, the default, picks a free one. */
  start(options?: { readonly port?: number }): Promise<void>;
  /** Ends at once, streams too. Keys and usage stay; it may be started again. */
  stop(): Promise<void>;
  readonly running: boolean;
  /** The addresses throw while it does not run. */
  readonly origin: string;
  readonly baseUrl: string;
  readonly messagesUrl: string;
  readonly consoleUrl: string;
  readonly login: { readonly email: string; readonly password: Secret };

  createKey(request: KeyRequest): CreatedKey;
  disableKey(id: number): void;
  enableKey(id: number): void;
  deleteKey(id: number): void;
  /** Deleted ones too. */
  keys(): readonly KeyView[];

  groups(): readonly Group[];
  setGroupEnabled(name: string, enabled: boolean): void;
  readonly balance: number;
  setBalance(dollars: number): void;

  /** The usage log, oldest first. */
  usage(): readonly UsageRow[];
  /** The last requests that came, oldest first. An entry goes on filling up while its request lasts. */
  requests(): readonly BookEntry[];
  clearRequests(): void;
  readonly openSockets: number;

  /** Makes the key's next requests go wrong: so many, or until cleared. Orders are served in turn. */
  order(keyId: number, fault: Fault, times?: number): void;
  clearFaults(keyId: number): void;
  /** Logs everybody out of the console. */
  endSessions(): void;
}

const DEFAULT_BALANCE = 100;
const DEFAULT_WORD_DELAY = 15;
const DEFAULT_BOOK = { requests: 1000, bodyBytes: 8 * 1024 };

type Rooms = ReturnType<typeof createRooms>;

export function createSandbox(options: SandboxOptions = {}): Sandbox {
  const rooms = createRooms(options);
  const { account, keys, groups, book, usage, faults, sessions, clock } = rooms;
  const underWay = new Set<Promise<void>>();
  const listener = createListener((request, response, socket) => {
    const exchange = openExchange(request, response, socket, book, clock);
    const served = serve(exchange, rooms)
      .catch((error: unknown) => {
        options.onError?.(error);
        fail(exchange);
      })
      .finally(() => underWay.delete(served));
    underWay.add(served);
  });

  const origin = (): string => {
    if (listener.port === null) throw new Error("the sandbox is not running; start it first");
    return `http://127.0.0.1:${listener.port}`;
  };
  const key = (id: number): KeyRecord => {
    const record = keys.withId(id);
    if (record === null) throw new Error(`the sandbox has no key ${id}`);
    return record;
  };

  return {
    async start({ port = 0 } = {}) {
      await listener.start(port);
    },
    async stop() {
      await listener.stop();
      // So that what was cut off is billed, too, when this returns.
      await Promise.all(underWay);
    },
    get running() {
      return listener.port !== null;
    },
    get origin() {
      return origin();
    },
    get baseUrl() {
      return `${origin()}/v1`;
    },
    get messagesUrl() {
      return origin();
    },
    get consoleUrl() {
      return origin();
    },
    login: { email: account.email, password: account.password },

    createKey(request) {
      const issued = keys.issue(request);
      if (!issued.ok) throw new Error(`the sandbox cannot make this key: ${issued.problem.message}`);
      return { id: issued.record.id, key: new Secret(issued.text) };
    },
    disableKey: (id) => keys.setDisabled(key(id), true),
    enableKey: (id) => keys.setDisabled(key(id), false),
    deleteKey: (id) => keys.remove(key(id)),
    keys: () => keys.all().map((record) => viewOf(record, rooms)),

    groups: () => groups.list(),
    setGroupEnabled: (name, enabled) => groups.setEnabled(name, enabled),
    get balance() {
      return account.balance;
    },
    setBalance: (dollars) => account.setBalance(dollars),

    usage: () => usage.list().slice(),
    requests: () => book.list(),
    clearRequests: () => book.clear(),
    get openSockets() {
      return listener.openSockets;
    },

    order: (id, fault, times = Number.POSITIVE_INFINITY) => faults.order(key(id).id, fault, times),
    clearFaults: (id) => faults.clear(id),
    endSessions: () => sessions.end(),
  };
}

/** Everything that the sandbox is made of, put together once. */
function createRooms(options: SandboxOptions) {
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

async function serve(exchange: Exchange, rooms: Rooms): Promise<void> {
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
function fail(exchange: Exchange): void {
  if (exchange.response.headersSent) exchange.response.destroy();
  else sendJson(exchange, 500, { code: 500, message: "the sandbox failed to answer; this is a bug in it" });
}

function viewOf(record: KeyRecord, { keys, groups }: Rooms): KeyView {
  const { id, name, mask, quota, quotaUsed, expiresAt, running } = record;
  const group = groups.withId(record.groupId)?.name ?? "";
  return { id, name, group, state: keys.stateOf(record), mask, quota, quotaUsed, expiresAt, running };
}

function zoneOf(name: string): Zone {
  const zone = createZone(name);
  if (zone === null) throw new Error(`there is no time zone ${name}`);
  return zone;
}
