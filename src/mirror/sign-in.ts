import type { ConsoleKind } from "../config/shape.ts";
import { reason } from "../reason.ts";
import { Secret } from "../secret.ts";
import { ConsoleFault } from "./consoles/fault.ts";
import { createNewApi } from "./consoles/new-api/new-api.ts";
import { createOneApi } from "./consoles/one-api/one-api.ts";
import { loginSub2api, secondFactor, type Tokens } from "./consoles/sub2api/login.ts";
import { createSub2apiSession } from "./consoles/sub2api/session.ts";
import { createSub2api } from "./consoles/sub2api/sub2api.ts";
import { type ConnectMeans, kindOf, loginPlaceOf, seedOf, type Watched, wireFor } from "./sync/connect.ts";
import type { Kept } from "./vault.ts";

/** What a person types, by what their console needs. */
export type AskedLogin =
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

export interface SignIn {
  /** Tries what was typed at the console, and keeps only what lasts: never the password. */
  login(gateway: Watched, asked: AskedLogin): Promise<LoginAnswer>;
}

/** A second factor is typed within this, or the password is asked for again. */
const SECOND_FACTOR_MS = 5 * 60_000;

interface Half {
  readonly tempToken: Secret;
  readonly email: string;
  readonly until: number;
}

export function createSignIn(means: ConnectMeans): SignIn {
  return new ConsoleSignIn(means);
}

class ConsoleSignIn implements SignIn {
  readonly #means: ConnectMeans;
  /** Those whose password was right, and who owe the second factor. */
  readonly #halves = new Map<string, Half>();

  constructor(means: ConnectMeans) {
    this.#means = means;
  }

  async login(gateway: Watched, asked: AskedLogin): Promise<LoginAnswer> {
    let kind: ConsoleKind | null = gateway.console.kind;
    try {
      kind = await kindOf(gateway, wireFor(gateway, this.#means));
      const state =
        kind === "sub2api"
          ? await this.#sub2api(gateway, asked)
          : await this.#byAccessToken(gateway, kind, asked);
      return { state, kind, problem: null };
    } catch (error) {
      if (!(error instanceof ConsoleFault)) throw error;
      return { state: "failed", kind, problem: `the console of ${gateway.name} ${error.message}` };
    }
  }

  async #sub2api(gateway: Watched, asked: AskedLogin): Promise<"done" | "second-factor"> {
    if ("password" in asked) return this.#byPassword(gateway, asked);
    if ("code" in asked) return this.#byCode(gateway, asked);
    if ("refresh_token" in asked) return this.#byRefreshToken(gateway, asked);
    throw new ConsoleFault(
      "login-refused",
      "is of kind sub2api, which wants email and password, or a refresh token",
    );
  }

  async #byPassword(
    gateway: Watched,
    { email, password }: { readonly email: string; readonly password: string },
  ): Promise<"done" | "second-factor"> {
    const wire = wireFor(gateway, this.#means);
    const outcome = await loginSub2api(wire, { email, password: new Secret(password) });
    if (outcome.state === "done") await this.#keepTokens(gateway, outcome, email);
    else {
      const until = this.#means.clock.elapsed() + SECOND_FACTOR_MS;
      this.#halves.set(gateway.name, { tempToken: outcome.tempToken, email, until });
    }
    return outcome.state;
  }

  async #byCode(gateway: Watched, { code }: { readonly code: string }): Promise<"done"> {
    const half = this.#halves.get(gateway.name);
    if (half === undefined || this.#means.clock.elapsed() > half.until)
      throw new ConsoleFault("login-refused", "waits for no code: begin again with the password");
    const wire = wireFor(gateway, this.#means);
    const tokens = await secondFactor(wire, half.tempToken, new Secret(code));
    await this.#keepTokens(gateway, tokens, half.email);
    this.#halves.delete(gateway.name);
    return "done";
  }

  /** Used once at once: whether it is right is known then, and the next one is kept. */
  async #byRefreshToken(gateway: Watched, asked: { readonly refresh_token: string }): Promise<"done"> {
    const now = () => this.#means.clock.now();
    const wire = wireFor(gateway, this.#means);
    const session = createSub2apiSession({
      ...{ wire, now, credentials: null, refreshToken: new Secret(asked.refresh_token) },
      onRefreshToken: (refreshToken) => this.#keep(gateway, { refreshToken }),
    });
    const { url } = gateway.console;
    await createSub2api({ url, wire, now, pause: this.#means.pause, session }).account();
    return "done";
  }

  async #byAccessToken(gateway: Watched, kind: ConsoleKind, asked: AskedLogin): Promise<"done"> {
    if (!("access_token" in asked))
      throw new ConsoleFault("login-refused", `is of kind ${kind}, which wants an access token`);
    const accessToken = new Secret(asked.access_token);
    const user = asked.user ?? gateway.console.login.user;
    const { pause, clock, calls } = this.#means;
    const wire = wireFor(gateway, this.#means);
    const shared = { url: gateway.console.url, wire, pause, calls, now: () => clock.now(), accessToken };
    const adapter = kind === "one-api" ? createOneApi(shared) : createNewApi({ ...shared, user });
    await adapter.account();
    await this.#keep(gateway, { accessToken, user });
    return "done";
  }

  async #keepTokens(gateway: Watched, { refreshToken }: Tokens, email: string): Promise<void> {
    if (refreshToken === null) {
      const why = "gives no refresh token: put login.password into config.yaml instead";
      throw new ConsoleFault("login-refused", why);
    }
    await this.#keep(gateway, { refreshToken, email });
  }

  async #keep(gateway: Watched, kept: Kept): Promise<void> {
    const name = kept.accessToken === undefined ? "refresh_token" : "access_token";
    const seed = seedOf(gateway, name, this.#means);
    try {
      await this.#means.vault.put(gateway.name, loginPlaceOf(gateway), { ...kept, seed });
    } catch (error) {
      const why = `let you in, but that could not be written down here: ${reason(error)}`;
      throw new ConsoleFault("failing", why);
    }
  }
}
