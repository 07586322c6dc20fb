import type { ConsoleKind } from "../config/shape.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { reason } from "../reason.ts";
import { Secret } from "../secret.ts";
import { ConsoleFault } from "./consoles/console.ts";
import { NewApi } from "./consoles/new-api.ts";
import { OneApi } from "./consoles/one-api.ts";
import { Sub2api } from "./consoles/sub2api.ts";
import { loginSub2api, Sub2apiSession, secondFactor, type Tokens } from "./consoles/sub2api-session.ts";
import {
  adapterDeps,
  type ConnectDeps,
  ConsoleAccount,
  type ConsoleGateway,
  kindOf,
} from "./sync/connect.ts";
import type { StoredLogin } from "./vault.ts";

/** What a person types, by what their console needs. */
export type LoginRequest =
  | { readonly email: string; readonly password: string }
  | { readonly code: string }
  | { readonly refresh_token: string }
  | { readonly access_token: string; readonly user: string | null };

export interface LoginAnswer {
  readonly state: "done" | "second-factor" | "failed";
  readonly kind: ConsoleKind | null;
  /** Why it failed; null when it did not. */
  readonly problem: string | null;
}

/** A second factor is typed within this, or the password is asked for again. */
const SECOND_FACTOR_MS = 5 * 60_000;

interface Half {
  readonly tempToken: Secret;
  readonly email: string;
  readonly until: number;
}

/** Tries credentials at a console, and stores only what lasts: never the password. */
export class ConsoleLogins {
  readonly #means: ConnectDeps;
  /** Those whose password was right, and who owe the second factor. */
  readonly #halves = new Map<string, Half>();

  constructor(means: ConnectDeps) {
    this.#means = means;
  }

  /** @param name of the account; null: the only one */
  async login(gateway: ConsoleGateway, name: string | null, asked: LoginRequest): Promise<LoginAnswer> {
    const login = gateway.console.logins.find((one) => one.name === name);
    if (login === undefined)
      return { state: "failed", kind: gateway.console.kind, problem: noAccount(gateway, name) };
    const account = new ConsoleAccount(gateway, login, this.#means);
    let kind: ConsoleKind | null = gateway.console.kind;
    try {
      kind = await kindOf(gateway, adapterDeps(gateway, this.#means).client);
      const state =
        kind === "sub2api"
          ? await this.#sub2api(account, asked)
          : await this.#byAccessToken(account, kind, asked);
      return { state, kind, problem: null };
    } catch (error) {
      if (!(error instanceof ConsoleFault)) throw error;
      return { state: "failed", kind, problem: `the console of ${gateway.name} ${error.message}` };
    }
  }

  async #sub2api(account: ConsoleAccount, asked: LoginRequest): Promise<"done" | "second-factor"> {
    if ("password" in asked) return this.#byPassword(account, asked);
    if ("code" in asked) return this.#byCode(account, asked);
    if ("refresh_token" in asked) return this.#byRefreshToken(account, asked);
    throw new ConsoleFault(
      "login-refused",
      "is of kind sub2api, which wants email and password, or a refresh token",
    );
  }

  async #byPassword(
    account: ConsoleAccount,
    { email, password }: { readonly email: string; readonly password: string },
  ): Promise<"done" | "second-factor"> {
    const { client } = adapterDeps(account.gateway, this.#means);
    const outcome = await loginSub2api(client, { email, password: new Secret(password) });
    if (outcome.state === "done") await this.#keepTokens(account, outcome, email);
    else {
      const until = this.#means.clock.elapsed() + SECOND_FACTOR_MS;
      this.#halves.set(account.vaultName, { tempToken: outcome.tempToken, email, until });
    }
    return outcome.state;
  }

  async #byCode(account: ConsoleAccount, { code }: { readonly code: string }): Promise<"done"> {
    const half = this.#halves.get(account.vaultName);
    if (half === undefined || this.#means.clock.elapsed() > half.until)
      throw new ConsoleFault("login-refused", "waits for no code: begin again with the password");
    const { client } = adapterDeps(account.gateway, this.#means);
    const tokens = await secondFactor(client, half.tempToken, new Secret(code));
    await this.#keepTokens(account, tokens, half.email);
    this.#halves.delete(account.vaultName);
    return "done";
  }

  /** Used once at once: whether it is right is known then, and the next one is kept. */
  async #byRefreshToken(account: ConsoleAccount, asked: { readonly refresh_token: string }): Promise<"done"> {
    const shared = adapterDeps(account.gateway, this.#means);
    const session = new Sub2apiSession({
      client: shared.client,
      now: shared.now,
      credentials: null,
      refreshToken: new Secret(asked.refresh_token),
      onRefreshToken: (refreshToken) => this.#keep(account, { refreshToken }),
    });
    await new Sub2api({ ...shared, session }).account();
    return "done";
  }

  async #byAccessToken(account: ConsoleAccount, kind: ConsoleKind, asked: LoginRequest): Promise<"done"> {
    if (!("access_token" in asked))
      throw new ConsoleFault("login-refused", `is of kind ${kind}, which wants an access token`);
    const accessToken = new Secret(asked.access_token);
    const user = asked.user ?? account.login.user;
    const shared = { ...adapterDeps(account.gateway, this.#means), accessToken };
    const adapter = kind === "one-api" ? new OneApi(shared) : new NewApi({ ...shared, user });
    await adapter.account();
    await this.#keep(account, { accessToken, user });
    return "done";
  }

  async #keepTokens(account: ConsoleAccount, { refreshToken }: Tokens, email: string): Promise<void> {
    if (refreshToken === null) {
      const why = "gives no refresh token: put login.password into config.yaml instead";
      throw new ConsoleFault("login-refused", why);
    }
    await this.#keep(account, { refreshToken, email });
  }

  async #keep(account: ConsoleAccount, kept: StoredLogin): Promise<void> {
    const name = kept.accessToken === undefined ? "refresh_token" : "access_token";
    const seed = account.seed(name);
    try {
      await account.store({ ...kept, seed });
    } catch (error) {
      const why = `let you in, but that could not be written down here: ${reason(error)}`;
      throw new ConsoleFault("failing", why);
    }
  }
}

function noAccount({ name, console }: ConsoleGateway, account: string | null): string {
  const names = console.logins.flatMap((login) => (login.name === null ? [] : [login.name]));
  if (names.length === 0)
    return `config.yaml has no account ${account}: write gateways.${name}.console.login as a list, each with a name`;
  const known = names.map((one) => `keybearer mirror login ${name} --account ${one}`).join(", ");
  return account === null
    ? `there are several accounts. say which: ${known}`
    : `config.yaml has no account ${account} for ${name}. there is: ${known}`;
}

/** The secrets of a console that a snapshot holds, to notice that one of them is another. */
export function consoleSecrets(gateway: ConsoleGateway, snapshot: Snapshot): string {
  const names = ["password", "access_token", "refresh_token"] as const;
  return JSON.stringify(
    gateway.console.logins.flatMap((login) =>
      names.map((name) => {
        const state = snapshot.consoleSecret(gateway, login.name, name);
        return state?.state === "ready" ? state.key.digest("same") : (state?.state ?? null);
      }),
    ),
  );
}
