import { CONSOLE_KINDS, type ConsoleKind, type Gateway } from "../../config/schema.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import type { Logger } from "../../core/log.ts";
import {
  type ConsoleAdapter,
  ConsoleError,
  type ConsoleGateway,
  type KeyActions,
} from "../consoles/console.ts";
import { CallHistory, ClockSkew } from "../consoles/http.ts";
import type { MirrorDatabase } from "../store/database.ts";
import { readFact, writeFact } from "../store/facts.ts";
import { claimConsole } from "../store/rows.ts";
import type { MirrorUsage } from "../usage.ts";
import { adapterDeps, type ConnectDeps, findKind, openConsole } from "./open-console.ts";

interface ConnectionDeps extends Omit<ConnectDeps, "calls" | "onSkew"> {
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly usage: Pick<MirrorUsage, "append">;
  /** Another console has the gateway's name, and what the earlier one said was forgotten. */
  readonly onOtherConsole: () => void;
}

/**
 * The connection to a gateway's console. Syncs and key actions share it: a second session would use up the first one's
 * refresh token.
 */
export class ConsoleConnection {
  readonly calls = new CallHistory();
  readonly #deps: ConnectionDeps;
  readonly #skew = new ClockSkew();
  #gateway: ConsoleGateway;
  /** See describeSettings. */
  #settings: string;
  #kind: ConsoleKind | null;
  #adapter: ConsoleAdapter | null = null;
  #opening: Promise<ConsoleAdapter> | null = null;
  /** It is written down which console has the gateway's name now. Until it is, the next open() tries again. */
  #isClaimed = false;

  constructor(gateway: ConsoleGateway, snapshot: Snapshot, deps: ConnectionDeps) {
    this.#deps = deps;
    this.#gateway = gateway;
    this.#settings = describeSettings(gateway, snapshot);
    this.#kind = gateway.console.kind ?? this.#storedKind();
  }

  get gateway(): ConsoleGateway {
    return this.#gateway;
  }

  /** null: neither in config.yaml nor detected so far. */
  get kind(): ConsoleKind | null {
    return this.#kind;
  }

  /** null: it is not open. */
  get adapter(): ConsoleAdapter | null {
    return this.#adapter;
  }

  /** How far the console's clock is ahead of ours; null: it never answered. */
  get skew(): number | null {
    return this.#skew.known;
  }

  /** By the console's clock. */
  now(): number {
    return this.#deps.clock.now() + (this.skew ?? 0);
  }

  /** Whether the gateway is the LiteLLM of this console. @param gateway as a request found it in config.yaml */
  takesCallIds({ baseUrl, messagesUrl }: Gateway): boolean {
    if (this.#kind !== "litellm") return false;
    const origin = originOf(this.#gateway.console.url);
    return originOf(baseUrl) === origin && originOf(messagesUrl) === origin;
  }

  /** Takes the gateway as config.yaml has it now. True: its settings or secrets changed, and it must be reset. */
  follow(gateway: ConsoleGateway, snapshot: Snapshot): boolean {
    const before = this.#settings;
    this.#gateway = gateway;
    this.#settings = describeSettings(gateway, snapshot);
    return this.#settings !== before;
  }

  /** The settings or the login changed: the console is opened again. */
  reset(): void {
    this.#kind = this.#gateway.console.kind ?? this.#storedKind();
    this.#adapter = null;
    this.#opening = null;
    this.#isClaimed = false;
  }

  /** It may be another console by now, or of another kind: the next open() finds out. */
  close(): void {
    this.#adapter = null;
  }

  /** Throws a ConsoleError. */
  async open(): Promise<ConsoleAdapter> {
    if (!this.#isClaimed) this.#claimConsole();
    if (this.#adapter !== null) return this.#adapter;
    const opening = this.#opening ?? this.#connect();
    this.#opening = opening;
    try {
      const adapter = await opening;
      if (this.#opening === opening) this.#adapter = adapter;
      return adapter;
    } finally {
      if (this.#opening === opening) this.#opening = null;
    }
  }

  /** Throws a ConsoleError where the login cannot change keys. */
  async keyActions(account: string | null): Promise<KeyActions> {
    const adapter = await this.open();
    const actions = adapter.keyActions?.(account);
    if (actions !== undefined) return actions;
    throw new ConsoleError(
      "login-needed",
      "can be read with the keys of your tools, but changing keys needs a login",
    );
  }

  async #connect(): Promise<ConsoleAdapter> {
    const gateway = this.#gateway;
    const deps: ConnectDeps = {
      ...this.#deps,
      calls: this.calls,
      onSkew: (skew) => this.#skew.note(skew),
    };
    const shared = adapterDeps(gateway, deps);
    const kind = await findKind(gateway, shared.client);
    if (this.#kind === null) this.#deps.log.info({ gateway: gateway.name }, `console kind: ${kind}`);
    // Known before the first login: `mirror login` asks for what this kind needs.
    this.#kind = kind;
    if (gateway.console.kind === null) this.#storeKind(kind);
    return openConsole(kind, gateway, shared, deps);
  }

  /** As it was detected at this origin; null: never. From the first request on it must be known who takes call ids. */
  #storedKind(): ConsoleKind | null {
    const { name, console } = this.#gateway;
    const stored = this.#deps.database.ask((db) => ({ fact: readFact(db, name, "kind") }));
    const [kind, origin] = stored?.fact?.split(" ") ?? [];
    return origin === originOf(console.url) ? (CONSOLE_KINDS.find((one) => one === kind) ?? null) : null;
  }

  #storeKind(kind: ConsoleKind): void {
    const { name, console } = this.#gateway;
    const fact = `${kind} ${originOf(console.url)}`;
    this.#deps.database.ask((db) => {
      if (readFact(db, name, "kind") !== fact) writeFact(db, name, "kind", fact);
      return true;
    });
  }

  /** Forgets the rows of another gateway or console that had this name before, once the database can be used. */
  #claimConsole(): void {
    const { database, usage, clock, log, onOtherConsole } = this.#deps;
    const { name, baseUrl, console } = this.#gateway;
    const origins = `${new URL(baseUrl).origin} ${new URL(console.url).origin}`;
    const claimed = database.ask((db) => ({ held: claimConsole(db, name, origins, clock.now()) }));
    if (claimed === null) return;
    this.#isClaimed = true;
    const { held } = claimed;
    if (held === null) return;
    onOtherConsole();
    for (const line of held) usage.append(line);
    log.warn({ gateway: name }, "the gateway or its console changed: its rows are read from the beginning");
  }
}

function originOf(url: string): string {
  return new URL(url).origin;
}

const LOGIN_SECRETS = ["password", "access_token", "refresh_token"] as const;

/** Of a connection, with digests of its secrets. If they change, the console is opened again. */
function describeSettings(gateway: ConsoleGateway, snapshot: Snapshot): string {
  const { console, proxy, authority, baseUrl } = gateway;
  const secrets = console.logins.flatMap((login) =>
    LOGIN_SECRETS.map((name) => {
      const state = snapshot.consoleSecret(gateway, login.name, name);
      return state?.state === "ready" ? state.key.digest("same") : (state?.state ?? null);
    }),
  );
  return JSON.stringify([console.kind, console.url, console.logins, proxy, authority, baseUrl, secrets]);
}
