import type { Agent } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import type { Console, ConsoleKind, ConsoleLogin, Gateway } from "../../config/schema.ts";
import { type ConsoleSecret, destinationsOf, type Snapshot } from "../../config/snapshot.ts";
import type { Clock } from "../../core/clock.ts";
import type { Secret } from "../../core/secret.ts";
import type { ConsoleRow } from "../console-row.ts";
import {
  type AccountFacts,
  type ConsoleAdapter,
  ConsoleFault,
  type ConsoleKey,
  type CreatedKey,
  type KeyActions,
  type KeyPlan,
  type Page,
} from "../consoles/console.ts";
import { detectKind } from "../consoles/detect.ts";
import { type AdapterDeps, type CallHistory, type ConsoleClient, HttpClient } from "../consoles/http.ts";
import { objectAt, parseObject } from "../consoles/json.ts";
import type { KeyCallBudgets } from "../consoles/key-calls.ts";
import { NewApi } from "../consoles/new-api.ts";
import { NewApiByKeys } from "../consoles/new-api-keys.ts";
import { OneApi } from "../consoles/one-api.ts";
import { Sub2api } from "../consoles/sub2api.ts";
import { Sub2apiSession } from "../consoles/sub2api-session.ts";
import type { StoredLogin, Vault } from "../vault.ts";

export interface ConnectDeps {
  readonly clock: Clock;
  readonly snapshot: () => Snapshot;
  readonly vault: Vault;
  /** The gateway's own connections, so that its outbound proxy is used for its console too. */
  readonly agentFor: (gateway: Gateway, origin: string) => Agent;
  readonly signal: AbortSignal;
  readonly onSkew: (skew: number) => void;
  /** To this gateway's console. */
  readonly calls: CallHistory;
  readonly keyCalls: KeyCallBudgets;
}

/** A gateway that has a console. */
export type ConsoleGateway = Gateway & { readonly console: Console };

export function hasConsole(gateway: Gateway): gateway is ConsoleGateway {
  return gateway.console !== null;
}

/** What every adapter of this gateway's console needs. */
export function adapterDeps(gateway: ConsoleGateway, deps: ConnectDeps): AdapterDeps {
  const { clock, signal, calls, onSkew } = deps;
  const { url } = gateway.console;
  const agent = () => deps.agentFor(gateway, new URL(url).origin);
  return {
    client: new HttpClient({ url, agent, clock, signal, onSkew }),
    calls,
    now: () => clock.now(),
    async pause(milliseconds, purpose) {
      const end = purpose && calls.noteWait({ purpose, until: clock.now() + milliseconds });
      try {
        await pause(milliseconds, undefined, { signal, ref: false });
      } catch {
        throw new ConsoleFault("unreachable", "was not read: keybearer is stopping");
      } finally {
        end?.();
      }
    },
  };
}

/** From config.yaml, else detected, which needs no login. */
export async function kindOf({ console }: ConsoleGateway, client: ConsoleClient): Promise<ConsoleKind> {
  const kind = console.kind ?? (await detectKind(client, console.url));
  if (kind === "litellm" || kind === "openrouter")
    throw new ConsoleFault("not-yet", `is of kind ${kind}, which is not supported yet`);
  return kind;
}

/** The console as config.yaml and the last login say, ready to be read. Throws a ConsoleFault. */
export function openConsole(
  kind: ConsoleKind,
  gateway: ConsoleGateway,
  shared: AdapterDeps,
  deps: ConnectDeps,
): ConsoleAdapter {
  const accounts = gateway.console.logins.map((login) => new ConsoleAccount(gateway, login, deps));
  const [first] = accounts;
  if (first !== undefined && first.login.name === null) return first.open(kind, shared);
  return new SeveralAccounts(accounts, (account) => account.open(kind, shared));
}

type LastingSecret = "refresh_token" | "access_token";

/** The digest only distinguishes configured tokens, in a file that is as private as the tokens. */
const SEED = "refresh-token";

type AccountDeps = Pick<ConnectDeps, "snapshot" | "vault" | "keyCalls">;

/** One account at a gateway's console, with its secrets in config.yaml and in the vault. */
export class ConsoleAccount {
  readonly gateway: ConsoleGateway;
  readonly login: ConsoleLogin;
  /** Its name in the vault. The space keeps it apart from the names of gateways. */
  readonly vaultName: string;
  readonly #deps: AccountDeps;

  constructor(gateway: ConsoleGateway, login: ConsoleLogin, deps: AccountDeps) {
    this.gateway = gateway;
    this.login = login;
    this.vaultName = login.name === null ? gateway.name : `${gateway.name} ${login.name}`;
    this.#deps = deps;
  }

  /** Throws a ConsoleFault where a secret is needed and there is none. */
  open(kind: ConsoleKind, shared: AdapterDeps): ConsoleAdapter {
    const stored = this.#deps.vault.get(this.vaultName, this.#destination);
    if (kind === "sub2api") return this.#openSub2api(stored, shared);
    const keyCalls = this.#deps.keyCalls.of(this.gateway.console.url);
    const accessToken = this.#current("access_token", stored);
    if (accessToken !== null) {
      if (kind === "one-api") return new OneApi({ ...shared, accessToken });
      const user = this.login.user ?? stored?.user ?? null;
      return new NewApi({ ...shared, accessToken, user, keyCalls });
    }
    // A key does not show which account it belongs to, so a list of accounts needs logins.
    if (kind === "one-api" || this.login.name !== null) throw this.#loginNeeded();
    return new NewApiByKeys({ ...shared, keyCalls, keys: () => this.#ownKeys() });
  }

  #openSub2api(stored: StoredLogin | null, shared: AdapterDeps): ConsoleAdapter {
    const { email } = this.login;
    const password = this.#configured("password");
    const refreshToken = this.#current("refresh_token", stored);
    const seed = this.seed("refresh_token");
    const credentials = email !== null && password !== null ? { email, password } : null;
    if (refreshToken === null && credentials === null) throw this.#loginNeeded();
    const session = new Sub2apiSession({
      client: shared.client,
      now: shared.now,
      credentials,
      refreshToken,
      onRefreshToken: async (next) => {
        // With the password, the next start simply logs in again.
        if (credentials === null) await this.store({ ...stored, refreshToken: next, seed });
      },
    });
    return new Sub2api({ ...shared, session });
  }

  async store(login: StoredLogin): Promise<void> {
    await this.#deps.vault.put(this.vaultName, this.#destination, login);
  }

  /** A digest of the token in config.yaml; null: it has none. */
  seed(name: LastingSecret): string | null {
    const state = this.#deps.snapshot().consoleSecret(this.gateway, this.login.name, name);
    return state?.state === "ready" ? state.key.digest(SEED) : null;
  }

  /**
   * The stored token counts as long as config.yaml has the token that it came from, or none: a console replaces a refresh
   * token with every use, and a login must work although the token in config.yaml is used up.
   */
  #current(name: LastingSecret, stored: StoredLogin | null): Secret | null {
    const configured = this.#configured(name);
    const own = (name === "refresh_token" ? stored?.refreshToken : stored?.accessToken) ?? null;
    const isDescendant = configured === null || stored?.seed === configured.digest(SEED);
    return isDescendant ? (own ?? configured) : configured;
  }

  /** null: config.yaml has none. */
  #configured(name: ConsoleSecret): Secret | null {
    const state = this.#deps.snapshot().consoleSecret(this.gateway, this.login.name, name);
    switch (state?.state) {
      case undefined:
        return null;
      case "ready":
        return state.key;
      case "needs-trust":
        throw new ConsoleFault(
          "needs-trust",
          `has a secret that waits for trust: ${state.what}: ${state.from} → ${state.to}`,
        );
      case "unavailable":
        throw new ConsoleFault("login-needed", `has a login whose ${name} is unavailable: ${state.reason}`);
    }
  }

  /** A key goes to its own gateway's origin only. */
  #ownKeys(): { fingerprint: string; key: Secret }[] {
    const { name, baseUrl, console } = this.gateway;
    if (new URL(baseUrl).origin !== new URL(console.url).origin)
      throw new ConsoleFault(
        "login-needed",
        "is at another origin than its gateway, so no key may be sent to it",
      );
    const snapshot = this.#deps.snapshot();
    return Object.values(snapshot.config.tools)
      .filter((tool) => tool.gateway === name)
      .map((tool) => snapshot.keyOf(tool))
      .flatMap((key) => (key.state === "ready" ? [{ fingerprint: key.key.fingerprint, key: key.key }] : []));
  }

  #loginNeeded(): ConsoleFault {
    const before = this.#deps.vault.otherOrigin(this.vaultName);
    const moved =
      before === null ? "" : `: the login was at ${before}, and config.yaml now says ${this.#destination}`;
    return new ConsoleFault("login-needed", `has no login yet${moved}`);
  }

  /** The login's secrets are sent nowhere else, and over no other proxy or certificate authority. */
  get #destination(): string {
    return destinationsOf(this.gateway, [this.gateway.console.url]).join(" → ");
  }
}

/** By account. */
type Faults = Map<string, ConsoleFault>;

interface NamedAdapter {
  readonly name: string;
  readonly adapter: ConsoleAdapter;
}

/**
 * Several accounts of one console, read one after the other as if they were one. If an account cannot be read, the others
 * still are; then no account lists its keys.
 */
class SeveralAccounts implements ConsoleAdapter {
  readonly kind;
  readonly idNames;
  readonly billsFailures;
  readonly socketRowsHaveIds;
  readonly #opened: readonly NamedAdapter[];
  /** Why an account has no login, by account. */
  readonly #unopened: ReadonlyMap<string, ConsoleFault>;
  /** Of the last list of keys, and of the last walk, by account. Keys may be listed during a walk. */
  #listFaults: Faults = new Map();
  #walkFaults: Faults = new Map();

  /** Throws a ConsoleFault where none can be opened. */
  constructor(accounts: readonly ConsoleAccount[], open: (account: ConsoleAccount) => ConsoleAdapter) {
    const opened: NamedAdapter[] = [];
    const unopened = new Map<string, ConsoleFault>();
    for (const account of accounts) {
      const name = account.login.name ?? "";
      try {
        opened.push({ name, adapter: open(account) });
      } catch (error) {
        unopened.set(name, faultOf(error, name));
      }
    }
    const [first] = opened;
    if (first === undefined) {
      const [fault] = unopened.values();
      throw fault ?? new ConsoleFault("login-needed", "has no account");
    }
    this.kind = first.adapter.kind;
    this.idNames = first.adapter.idNames;
    this.billsFailures = first.adapter.billsFailures;
    this.socketRowsHaveIds = first.adapter.socketRowsHaveIds;
    this.#opened = opened;
    this.#unopened = unopened;
  }

  async keys(): Promise<readonly ConsoleKey[]> {
    const faults: Faults = new Map();
    const keys: ConsoleKey[] = [];
    await this.#each(faults, async ({ name, adapter }) => {
      for (const key of await adapter.keys()) keys.push({ ...key, account: name, ref: refOf(key.ref, name) });
    });
    this.#listFaults = faults;
    return keys;
  }

  /** The balances together; null: one of them is unknown. */
  async account(): Promise<AccountFacts> {
    const faults = this.#listFaults;
    const facts: AccountFacts[] = [];
    await this.#each(faults, async ({ adapter }) => {
      facts.push(await adapter.account());
    });
    let balance: number | null = 0;
    for (const one of facts)
      balance = balance === null || one.balance === null ? null : balance + one.balance;
    return { balance, console_version: facts[0]?.console_version ?? null };
  }

  async *walk(cursor: string | null, since: number): AsyncGenerator<Page> {
    const faults: Faults = new Map(this.#listFaults);
    this.#walkFaults = faults;
    const cursors = cursorsIn(cursor);
    let before = 0;
    for (const { name, adapter } of this.#opened) {
      if (faults.has(name)) continue;
      let done = 0;
      try {
        for await (const page of adapter.walk(cursors.get(name) ?? null, since)) {
          cursors.set(name, page.cursor);
          done = page.done;
          const rows = page.rows.map((row) => rowOf(row, name));
          const cursorText = JSON.stringify({ accounts: Object.fromEntries(cursors) });
          yield { ...page, rows, cursor: cursorText, done: before + done, total: null };
        }
      } catch (error) {
        faults.set(name, faultOf(error, name));
      }
      before += done;
    }
    this.#throwIfAllFailed(faults);
  }

  fault(of: "rows" | "keys"): ConsoleFault | null {
    const faults = of === "rows" ? this.#walkFaults : this.#listFaults;
    return [...faults.values(), ...this.#unopened.values()][0] ?? null;
  }

  keyActions(account: string | null): KeyActions {
    const opened = this.#opened.find(({ name }) => name === account);
    const actions = opened?.adapter.keyActions?.(null);
    if (opened !== undefined && actions !== undefined) return new AccountKeyActions(actions, opened.name);
    const fault = this.#unopened.get(account ?? "");
    const names = this.#opened.map(({ name }) => name).join(", ");
    throw fault ?? new ConsoleFault("refused", `has several accounts, so say which: ${names}`);
  }

  /** Skips accounts that have failed. Throws where all of them have. */
  async #each(faults: Faults, read: (account: NamedAdapter) => Promise<void>): Promise<void> {
    for (const account of this.#opened) {
      if (faults.has(account.name)) continue;
      try {
        await read(account);
      } catch (error) {
        faults.set(account.name, faultOf(error, account.name));
      }
    }
    this.#throwIfAllFailed(faults);
  }

  #throwIfAllFailed(faults: Faults): void {
    const [fault] = faults.values();
    if (fault !== undefined && faults.size === this.#opened.length) throw fault;
  }
}

/** The key actions of one of several accounts: refs and faults name the account. */
class AccountKeyActions implements KeyActions {
  readonly takesOwnKeys;
  readonly needsGroup;
  readonly #actions: KeyActions;
  readonly #account: string;

  constructor(actions: KeyActions, account: string) {
    this.takesOwnKeys = actions.takesOwnKeys;
    this.needsGroup = actions.needsGroup;
    this.#actions = actions;
    this.#account = account;
  }

  groups(): Promise<readonly string[] | null> {
    return this.#run(() => this.#actions.groups());
  }

  async create(plan: KeyPlan): Promise<CreatedKey> {
    const { settings } = plan;
    const own =
      "like" in settings ? { ...plan, settings: { ...settings, like: this.#ownRef(settings.like) } } : plan;
    const created = await this.#run(() => this.#actions.create(own));
    return { ...created, ref: refOf(created.ref, this.#account) };
  }

  async find(name: string): Promise<string | null> {
    const ref = await this.#run(() => this.#actions.find(name));
    return ref === null ? null : refOf(ref, this.#account);
  }

  setEnabled(ref: string, enabled: boolean): Promise<void> {
    return this.#run(() => this.#actions.setEnabled(this.#ownRef(ref), enabled));
  }

  delete(ref: string): Promise<void> {
    return this.#run(() => this.#actions.delete(this.#ownRef(ref)));
  }

  /** Undoes refOf. */
  #ownRef(ref: string): string {
    const prefix = `name:${this.#account}/`;
    return ref.startsWith(prefix) ? `name:${ref.slice(prefix.length)}` : ref;
  }

  async #run<T>(action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (error) {
      throw faultOf(error, this.#account);
    }
  }
}

/** Throws what is not a fault of the console. */
function faultOf(error: unknown, account: string): ConsoleFault {
  if (!(error instanceof ConsoleFault)) throw error;
  if (error.kind === "needs-trust") return error;
  return new ConsoleFault(error.kind, `(account ${account}) ${error.message}`, error.retryAfter, account);
}

/** The identity stays, so that a row is the same before and after its account became one of several. */
function rowOf(row: ConsoleRow, account: string): ConsoleRow {
  return row.key_ref === null ? row : { ...row, key_ref: refOf(row.key_ref, account) };
}

/** Ids of keys are unique in a console. Names are not: two accounts can each have a key of the same name. */
function refOf(ref: string, account: string): string {
  return ref.startsWith("name:") ? `name:${account}/${ref.slice("name:".length)}` : ref;
}

/** By account. The cursor of a former single account has another format: it is read again, which changes nothing. */
function cursorsIn(text: string | null): Map<string, string> {
  const accounts = Object.entries(objectAt(parseObject(text ?? "") ?? {}, "accounts") ?? {});
  return new Map(accounts.flatMap(([name, cursor]) => (typeof cursor === "string" ? [[name, cursor]] : [])));
}
