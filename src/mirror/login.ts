import type { ConsoleKind } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import { errorMessage } from "../core/errors.ts";
import { Secret } from "../core/secret.ts";
import { MINUTE_MS } from "../core/units.ts";
import { ConsoleAccount } from "./connect/account.ts";
import { adapterDeps, type ConnectDeps, findKind } from "./connect/open-console.ts";
import { type ConsoleAdapter, ConsoleError, type ConsoleGateway } from "./consoles/console.ts";
import type { AdapterDeps } from "./consoles/http.ts";
import { LiteLlm } from "./consoles/litellm.ts";
import { LiteLlmSession } from "./consoles/litellm-session.ts";
import { NewApi, type NewApiDeps } from "./consoles/new-api.ts";
import { OneApi } from "./consoles/one-api.ts";
import { Sub2api } from "./consoles/sub2api.ts";
import { loginSub2api, Sub2apiSession, secondFactor } from "./consoles/sub2api-session.ts";
import type { StoredLogin } from "./vault.ts";

/** What a person typed. Which of these is needed depends on the kind of console. */
export type LoginRequest =
  | { readonly email: string; readonly password: string }
  | { readonly code: string }
  | { readonly refresh_token: string }
  | { readonly access_token: string; readonly user: string | null };

export interface LoginAnswer {
  readonly state: "done" | "second-factor" | "failed";
  readonly kind: ConsoleKind | null;
  /** Why it failed, for people. */
  readonly problem: string | null;
}

/** After this time a login without its second factor must start again with the password. */
const SECOND_FACTOR_MS = 5 * MINUTE_MS;

/** Tries credentials at a console, and stores only tokens: never the password. */
export class ConsoleLogins {
  readonly #deps: ConnectDeps;
  /** Logins that wait for their second factor, by account. */
  readonly #waiting = new Map<string, { readonly tempToken: Secret; readonly until: number }>();

  constructor(deps: ConnectDeps) {
    this.#deps = deps;
  }

  /** @param name of the account; null: the only one */
  async login(gateway: ConsoleGateway, name: string | null, request: LoginRequest): Promise<LoginAnswer> {
    const login = gateway.console.logins.find((one) => one.name === name);
    let { kind } = gateway.console;
    if (login === undefined) return { state: "failed", kind, problem: noAccount(gateway, name) };
    const account = new ConsoleAccount(gateway, login, this.#deps);
    const shared = adapterDeps(gateway, this.#deps);
    try {
      kind = await findKind(gateway, shared.client);
      const state =
        kind === "sub2api"
          ? await this.#loginSub2api(account, shared, request)
          : await this.#loginWithAccessToken(account, shared, kind, request);
      return { state, kind, problem: null };
    } catch (error) {
      if (!(error instanceof ConsoleError)) throw error;
      return { state: "failed", kind, problem: `the console of ${gateway.name} ${error.message}` };
    }
  }

  async #loginSub2api(
    account: ConsoleAccount,
    shared: AdapterDeps,
    request: LoginRequest,
  ): Promise<"done" | "second-factor"> {
    const { clock } = this.#deps;
    const { client, now } = shared;
    const name = account.vaultName;
    if ("password" in request) {
      const password = new Secret(request.password);
      const result = await loginSub2api(client, { email: request.email, password });
      if (result.state === "second-factor") {
        const until = clock.elapsed() + SECOND_FACTOR_MS;
        this.#waiting.set(name, { tempToken: result.tempToken, until });
        return "second-factor";
      }
      await this.#storeRefreshToken(account, result.refreshToken);
    } else if ("code" in request) {
      const waiting = this.#waiting.get(name);
      if (waiting === undefined || clock.elapsed() > waiting.until) {
        throw new ConsoleError("login-refused", "is not waiting for a code: start again with the password");
      }
      const tokens = await secondFactor(client, waiting.tempToken, new Secret(request.code));
      await this.#storeRefreshToken(account, tokens.refreshToken);
      this.#waiting.delete(name);
    } else if ("refresh_token" in request) {
      // Using the token shows whether it is valid, and replaces it.
      const session = new Sub2apiSession({
        client,
        now,
        credentials: null,
        refreshToken: new Secret(request.refresh_token),
        onRefreshToken: (next) => this.#storeRefreshToken(account, next),
      });
      await new Sub2api({ ...shared, session }).account();
    } else {
      const problem = "is of kind sub2api, which needs email and password, or a refresh token";
      throw new ConsoleError("login-refused", problem);
    }
    return "done";
  }

  async #loginWithAccessToken(
    account: ConsoleAccount,
    shared: AdapterDeps,
    kind: ConsoleKind,
    request: LoginRequest,
  ): Promise<"done"> {
    if (!("access_token" in request)) {
      throw new ConsoleError("login-refused", `is of kind ${kind}, which needs an access token`);
    }
    const accessToken = new Secret(request.access_token);
    const user = request.user ?? account.login.user;
    const keyCalls = this.#deps.keyCalls.of(account.gateway.console.url);
    const adapter = openWithToken(kind, { ...shared, accessToken, user, keyCalls });
    // Throws if the console does not accept the token.
    await adapter.account();
    await this.#store(account, "access_token", { accessToken, user });
    return "done";
  }

  async #storeRefreshToken(account: ConsoleAccount, refreshToken: Secret | null): Promise<void> {
    if (refreshToken === null) {
      const problem = "issues no refresh token: put login.password into config.yaml instead";
      throw new ConsoleError("login-refused", problem);
    }
    await this.#store(account, "refresh_token", { refreshToken });
  }

  async #store(
    account: ConsoleAccount,
    name: "access_token" | "refresh_token",
    login: StoredLogin,
  ): Promise<void> {
    try {
      await account.store({ ...login, seed: account.seed(name) });
    } catch (error) {
      const problem = `accepted the login, but it could not be stored here: ${errorMessage(error)}`;
      throw new ConsoleError("failing", problem);
    }
  }
}

function openWithToken(kind: ConsoleKind, deps: NewApiDeps): ConsoleAdapter {
  if (kind === "one-api") return new OneApi(deps);
  if (kind === "new-api") return new NewApi(deps);
  const { client, now, accessToken: key } = deps;
  return new LiteLlm({ ...deps, session: new LiteLlmSession({ client, now, key, credentials: null }) });
}

function noAccount({ name, console }: ConsoleGateway, account: string | null): string {
  const names = console.logins.flatMap((login) => (login.name === null ? [] : [login.name]));
  if (names.length === 0)
    return `config.yaml has no account ${account}: write gateways.${name}.console.login as a list, each with a name`;
  const known = names.map((one) => advice.mirrorLogin(name, one)).join(", ");
  return account === null
    ? `there are several accounts. Choose one: ${known}`
    : `config.yaml has no account ${account} for ${name}. It has: ${known}`;
}
