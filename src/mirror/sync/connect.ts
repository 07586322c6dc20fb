import type { Agent } from "node:http";
import type { Clock } from "../../clock.ts";
import { destinationsOf } from "../../config/destinations.ts";
import type { Console, ConsoleKind, ConsoleLogin, Gateway } from "../../config/shape.ts";
import type { ConsoleSecret, Snapshot } from "../../config/snapshot.ts";
import type { Secret } from "../../secret.ts";
import type { AdapterDeps, ConsoleAdapter } from "../consoles/console.ts";
import { ConsoleFault } from "../consoles/console.ts";
import { detectKind } from "../consoles/detect.ts";
import { type CallHistory, type ConsoleClient, createClient } from "../consoles/http.ts";
import { NewApi } from "../consoles/new-api.ts";
import { NewApiByKeys } from "../consoles/new-api-keys.ts";
import { OneApi } from "../consoles/one-api.ts";
import { Sub2api } from "../consoles/sub2api.ts";
import { Sub2apiSession } from "../consoles/sub2api-session.ts";
import type { StoredLogin, Vault } from "../vault.ts";
import { openAccounts } from "./accounts.ts";

export interface ConnectDeps {
  readonly clock: Clock;
  readonly snapshot: () => Snapshot;
  readonly vault: Vault;
  /** The gateway's own connections, so that its outbound proxy is used for its console too. */
  readonly agentFor: (gateway: Gateway, origin: string) => Agent;
  readonly signal: AbortSignal;
  readonly onSkew: (skew: number) => void;
  /** Called as soon as the kind is known, which is before anyone has logged in. */
  readonly onKind: (kind: ConsoleKind) => void;
  readonly pause: (milliseconds: number) => Promise<void>;
  /** Of this gateway's console. */
  readonly calls: CallHistory;
}

/** A gateway that has a console. */
export type ConsoleGateway = Gateway & { readonly console: Console };

export function hasConsole(gateway: Gateway): gateway is ConsoleGateway {
  return gateway.console !== null;
}

export function clientFor(gateway: ConsoleGateway, means: ConnectDeps): ConsoleClient {
  const { url } = gateway.console;
  const agent = () => means.agentFor(gateway, new URL(url).origin);
  return createClient({ url, agent, clock: means.clock, signal: means.signal, onSkew: means.onSkew });
}

export async function kindOf({ console }: ConsoleGateway, client: ConsoleClient): Promise<ConsoleKind> {
  const kind = console.kind ?? (await detectKind(client, console.url));
  if (kind === "litellm" || kind === "openrouter") {
    throw new ConsoleFault("not-yet", `is of kind ${kind}, which this version cannot read yet`);
  }
  return kind;
}

/** The console as config.yaml and the last login say, ready to be read. */
export async function connect(gateway: ConsoleGateway, means: ConnectDeps): Promise<ConsoleAdapter> {
  const client = clientFor(gateway, means);
  const kind = await kindOf(gateway, client);
  means.onKind(kind);
  const { clock, pause, calls } = means;
  const shared: AdapterDeps = { client, pause, calls, now: () => clock.now() };
  const { logins } = gateway.console;
  const [first] = logins;
  if (first !== undefined && first.name === null) return open(kind, { gateway, login: first }, shared, means);
  return openAccounts(
    logins.map((login) => ({
      name: login.name ?? "",
      open: () => open(kind, { gateway, login }, shared, means),
    })),
  );
}

/** One account at a gateway's console. */
export interface Account {
  readonly gateway: ConsoleGateway;
  readonly login: ConsoleLogin;
}

function open(kind: ConsoleKind, account: Account, shared: AdapterDeps, means: ConnectDeps): ConsoleAdapter {
  const { gateway, login } = account;
  const kept = means.vault.get(vaultName(account), loginPlaceOf(gateway));
  switch (kind) {
    case "sub2api":
      return sub2api(account, kept, shared, means);
    case "new-api": {
      const accessToken = current(account, "access_token", kept, means);
      const user = login.user ?? kept?.user ?? null;
      if (accessToken !== null) return new NewApi({ ...shared, accessToken, user });
      // A list of accounts is there to be logged in to; the keys alone tell of no account.
      if (login.name !== null) throw nobody(account, means);
      return new NewApiByKeys({ ...shared, keys: () => ownKeys(gateway, means) });
    }
    case "one-api": {
      const accessToken = current(account, "access_token", kept, means);
      if (accessToken === null) throw nobody(account, means);
      return new OneApi({ ...shared, accessToken });
    }
    case "litellm":
    case "openrouter":
      throw new ConsoleFault("not-yet", `is of kind ${kind}`);
  }
}

function sub2api(
  account: Account,
  kept: StoredLogin | null,
  shared: AdapterDeps,
  means: ConnectDeps,
): ConsoleAdapter {
  const { client, now } = shared;
  const { email } = account.login;
  const password = secretOf(account, "password", means);
  const refreshToken = current(account, "refresh_token", kept, means);
  const seed = seedOf(account, "refresh_token", means);
  const credentials = email !== null && password !== null ? { email, password } : null;
  if (refreshToken === null && credentials === null) throw nobody(account, means);
  const session = new Sub2apiSession({
    client,
    now,
    credentials,
    refreshToken,
    // With the password at hand there is nothing to keep: it logs in again.
    onRefreshToken: async (next) => {
      if (credentials === null)
        await means.vault.put(vaultName(account), loginPlaceOf(account.gateway), {
          ...kept,
          refreshToken: next,
          seed,
        });
    },
  });
  return new Sub2api({ ...shared, session });
}

type Lasting = "refresh_token" | "access_token";

/**
 * What is kept counts as long as config.yaml says what it said then: a console replaces a refresh token with every use, and
 * who logs in while config.yaml has a token that is dead wants to be logged in.
 */
function current(
  account: Account,
  name: Lasting,
  kept: StoredLogin | null,
  means: ConnectDeps,
): Secret | null {
  const given = secretOf(account, name, means);
  const own = (name === "refresh_token" ? kept?.refreshToken : kept?.accessToken) ?? null;
  return given === null || kept?.seed === given.digest(SEED) ? (own ?? given) : given;
}

/** Only to tell one token from another, in a file that is as private as the tokens. null: config.yaml has none. */
export function seedOf({ gateway, login }: Account, name: Lasting, { snapshot }: ConnectDeps): string | null {
  const state = snapshot().consoleSecret(gateway, login.name, name);
  return state?.state === "ready" ? state.key.digest(SEED) : null;
}

const SEED = "refresh-token";

/** null: config.yaml names none. */
function secretOf(
  { gateway, login }: Account,
  secret: ConsoleSecret,
  { snapshot }: ConnectDeps,
): Secret | null {
  const state = snapshot().consoleSecret(gateway, login.name, secret);
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
      throw new ConsoleFault("login-needed", `has a login whose ${secret} cannot be had: ${state.reason}`);
  }
}

/** A key goes to its own gateway's origin only: a console elsewhere is not told any. */
function ownKeys(gateway: ConsoleGateway, { snapshot }: ConnectDeps): { fingerprint: string; key: Secret }[] {
  if (new URL(gateway.baseUrl).origin !== originOf(gateway)) {
    throw new ConsoleFault(
      "login-needed",
      "is at another origin than its gateway, so that no key may be sent there",
    );
  }
  const now = snapshot();
  const tools = Object.values(now.config.tools).filter((tool) => tool.gateway === gateway.name);
  const keys = tools
    .map((tool) => now.keyOf(tool))
    .flatMap((key) => (key.state === "ready" ? [key.key] : []));
  return keys.map((key) => ({ fingerprint: key.fingerprint, key }));
}

function nobody(account: Account, { vault }: ConnectDeps): ConsoleFault {
  const before = vault.otherOrigin(vaultName(account));
  const moved =
    before === null
      ? ""
      : `: the login was at ${before}, and config.yaml now says ${loginPlaceOf(account.gateway)}`;
  return new ConsoleFault("login-needed", `knows nobody yet${moved}`);
}

/** What an account goes by among the secrets that are kept. No gateway can have such a name. */
export function vaultName({ gateway, login }: Account): string {
  return login.name === null ? gateway.name : `${gateway.name} ${login.name}`;
}

/** Where the secrets of a login go to: they are used nowhere else, and over no other proxy or certificate authority. */
export function loginPlaceOf(gateway: ConsoleGateway): string {
  return destinationsOf(gateway, [gateway.console.url]).join(" → ");
}

function originOf({ console }: ConsoleGateway): string {
  return new URL(console.url).origin;
}
