import type { ConsoleKind, ConsoleLogin } from "../../config/schema.ts";
import { type ConsoleSecret, listDestinations, type Snapshot } from "../../config/snapshot.ts";
import { withNext } from "../../core/display.ts";
import type { Secret } from "../../core/secret.ts";
import { MINUTE_MS } from "../../core/units.ts";
import { type ConsoleAdapter, ConsoleError, type ConsoleGateway } from "../consoles/console.ts";
import type { AdapterDeps } from "../consoles/http.ts";
import type { KeyCallBudgets } from "../consoles/key-calls.ts";
import { LiteLlm } from "../consoles/litellm.ts";
import { LiteLlmSession } from "../consoles/litellm-session.ts";
import { NewApi } from "../consoles/new-api.ts";
import { NewApiByKeys } from "../consoles/new-api-keys.ts";
import { OneApi } from "../consoles/one-api.ts";
import { Sub2api } from "../consoles/sub2api.ts";
import { Sub2apiSession } from "../consoles/sub2api-session.ts";
import type { StoredLogin, Vault } from "../vault.ts";

type LastingSecret = "refresh_token" | "access_token";

/** The digest only distinguishes configured tokens, in a file that is as private as the tokens. */
const SEED = "refresh-token";
/** A token that ends later by less than this has the same end, rounded in another way. */
const ROUNDING_MS = MINUTE_MS;

export interface AccountDeps {
  readonly snapshot: () => Snapshot;
  readonly vault: Vault;
  readonly keyCalls: KeyCallBudgets;
}

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

  /** Throws a ConsoleError where a secret is needed and there is none. */
  open(kind: ConsoleKind, shared: AdapterDeps): ConsoleAdapter {
    const stored = this.#stored;
    if (kind === "sub2api") return this.#openSub2api(stored, shared);
    if (kind === "litellm") return this.#openLiteLlm(stored, shared);
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
        if (credentials !== null) return;
        const before = this.#current("refresh_token", this.#stored)?.expiresAt ?? null;
        const isExtended = before !== null && (next.expiresAt ?? Infinity) > before + ROUNDING_MS;
        await this.store({ ...stored, refreshToken: next, seed, isExtended });
      },
    });
    return new Sub2api({ ...shared, session });
  }

  #openLiteLlm(stored: StoredLogin | null, shared: AdapterDeps): ConsoleAdapter {
    const { client, now } = shared;
    const key = this.#current("access_token", stored);
    const password = this.#configured("password");
    const user = this.login.email ?? this.login.user;
    const credentials = user !== null && password !== null ? { user, password } : null;
    if (key === null && credentials === null) throw this.#loginNeeded();
    return new LiteLlm({ ...shared, session: new LiteLlmSession({ client, now, key, credentials }) });
  }

  async store(login: StoredLogin): Promise<void> {
    await this.#deps.vault.put(this.vaultName, this.#destination, login);
  }

  /** When a person has to log in again; null: never, or it is not known. Only a JSON Web Token says so. */
  get endsAt(): number | null {
    try {
      // With the password, keybearer logs in again by itself.
      if (this.login.email !== null && this.#configured("password") !== null) return null;
      const stored = this.#stored;
      const refreshToken = this.#current("refresh_token", stored);
      // Each use of it brings one that ends later.
      if (stored?.isExtended === true && refreshToken === stored.refreshToken) return null;
      return (refreshToken ?? this.#current("access_token", stored))?.expiresAt ?? null;
    } catch (error) {
      // A secret that cannot be used is reported as that.
      if (error instanceof ConsoleError) return null;
      throw error;
    }
  }

  get #stored(): StoredLogin | null {
    return this.#deps.vault.get(this.vaultName, this.#destination);
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
        throw new ConsoleError(
          "needs-trust",
          `has a secret that waits for trust: ${state.what}: ${state.from} → ${state.to}`,
        );
      case "unavailable":
        throw new ConsoleError(
          "login-needed",
          `has a login whose ${name} is unavailable: ${withNext(state)}`,
        );
    }
  }

  /** A key goes to its own gateway's origin only. */
  #ownKeys(): { fingerprint: string; key: Secret }[] {
    const { name, baseUrl, console } = this.gateway;
    if (new URL(baseUrl).origin !== new URL(console.url).origin)
      throw new ConsoleError(
        "login-needed",
        "is at another origin than its gateway, so no key may be sent to it",
      );
    const snapshot = this.#deps.snapshot();
    return Object.values(snapshot.config.tools)
      .filter((tool) => tool.gateway === name)
      .map((tool) => snapshot.keyOf(tool))
      .flatMap((key) => (key.state === "ready" ? [{ fingerprint: key.key.fingerprint, key: key.key }] : []));
  }

  #loginNeeded(): ConsoleError {
    const before = this.#deps.vault.otherOrigin(this.vaultName);
    const moved =
      before === null ? "" : `: the login was at ${before}, and config.yaml now says ${this.#destination}`;
    return new ConsoleError("login-needed", `has no login yet${moved}`);
  }

  /** The login's secrets are sent nowhere else, and over no other proxy or certificate authority. */
  get #destination(): string {
    return listDestinations(this.gateway, [this.gateway.console.url]).join(" → ");
  }
}
