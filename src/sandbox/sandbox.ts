import { Secret } from "../core/secret.ts";
import type { BookEntry } from "./book.ts";
import { openExchange } from "./exchange.ts";
import type { Fault } from "./faults.ts";
import type { Group } from "./groups.ts";
import type { KeyRequest, KeyState, SandboxKey } from "./keys.ts";
import { createListener } from "./listener.ts";
import { createRooms, fail, type Rooms, type SandboxOptions, serve } from "./rooms.ts";
import type { UsageRow } from "./usage-log.ts";

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
  /** Keeps new rows back from the log, as a gateway does that writes them late. They are billed all the same. */
  holdUsage(): void;
  releaseUsage(): void;
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

export function createSandbox(options: SandboxOptions = {}): Sandbox {
  const rooms = createRooms(options);
  const { account, keys, groups, book, usage, faults, sessions, clock } = rooms;
  const inFlight = new Set<Promise<void>>();
  const listener = createListener((request, response, socket) => {
    const exchange = openExchange(request, response, socket, book, clock);
    const served = serve(exchange, rooms)
      .catch((error: unknown) => {
        options.onError?.(error);
        fail(exchange);
      })
      .finally(() => inFlight.delete(served));
    inFlight.add(served);
  });

  const origin = (): string => {
    if (listener.port === null) throw new Error("the sandbox is not running; start it first");
    return `http://127.0.0.1:${listener.port}`;
  };
  const keyWith = (id: number): SandboxKey => {
    const key = keys.withId(id);
    if (key === null) throw new Error(`the sandbox has no key ${id}`);
    return key;
  };

  return {
    async start({ port = 0 } = {}) {
      await listener.start(port);
    },
    async stop() {
      await listener.stop();
      // So that what was cut off is billed, too, when this returns.
      await Promise.all(inFlight);
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
      return { id: issued.key.id, key: new Secret(issued.text) };
    },
    disableKey: (id) => keys.setDisabled(keyWith(id), true),
    enableKey: (id) => keys.setDisabled(keyWith(id), false),
    deleteKey: (id) => keys.remove(keyWith(id)),
    keys: () => keys.all().map((key) => viewOf(key, rooms)),

    groups: () => groups.list(),
    setGroupEnabled: (name, enabled) => groups.setEnabled(name, enabled),
    get balance() {
      return account.balance;
    },
    setBalance: (dollars) => account.setBalance(dollars),

    usage: () => usage.list().slice(),
    holdUsage: () => usage.hold(),
    releaseUsage: () => usage.release(),
    requests: () => book.list(),
    clearRequests: () => book.clear(),
    get openSockets() {
      return listener.openSockets;
    },

    order: (id, fault, times = Number.POSITIVE_INFINITY) => faults.order(keyWith(id).id, fault, times),
    clearFaults: (id) => faults.clear(id),
    endSessions: () => sessions.end(),
  };
}

function viewOf(key: SandboxKey, { keys, groups }: Rooms): KeyView {
  const { id, name, mask, quota, quotaUsed, expiresAt, running } = key;
  const group = groups.withId(key.groupId)?.name ?? "";
  return { id, name, group, state: keys.stateOf(key), mask, quota, quotaUsed, expiresAt, running };
}
