import { advice } from "../../core/advice.ts";
import { errorCode } from "../../core/errors.ts";
import { fieldAt, flagAt, type JsonObject, numberAt, parseObject, textAt } from "../../core/json.ts";
import { Secret } from "../../core/secret.ts";
import { DAY_MS, MINUTE_MS } from "../../core/units.ts";
import { cleanAt } from "./clean-text.ts";
import { ConsoleError } from "./console.ts";
import {
  type ConsoleClient,
  type ConsoleRequest,
  type ConsoleResponse,
  errorText,
  otherShape,
  readJson,
  requiredData,
} from "./http.ts";

interface Tokens {
  readonly accessToken: Secret;
  /** null: this console issues none, so the password is needed again when the access token expires. */
  readonly refreshToken: Secret | null;
  /** Seconds. */
  readonly expiresIn: number;
}

type LoginResult =
  | ({ readonly state: "done" } & Tokens)
  | { readonly state: "second-factor"; readonly tempToken: Secret };

interface Credentials {
  readonly email: string;
  readonly password: Secret;
}

const LOGIN = "the login";

/** Throws login-refused where the same credentials would fail again. */
export async function loginSub2api(client: ConsoleClient, credentials: Credentials): Promise<LoginResult> {
  const { email, password } = credentials;
  const response = await post(client, "/api/v1/auth/login", { email, password });
  if (isRefusal(response)) throw refusedLogin(response);
  const data = readData(response, LOGIN);
  if (flagAt(data, "requires_2fa") !== true) return { state: "done", ...readTokens(data, LOGIN) };
  return { state: "second-factor", tempToken: tokenAt(data, "temp_token", LOGIN) };
}

export async function secondFactor(client: ConsoleClient, tempToken: Secret, code: Secret): Promise<Tokens> {
  const body = { temp_token: tempToken, totp_code: code };
  const response = await post(client, "/api/v1/auth/login/2fa", body);
  if (isRefusal(response)) {
    throw new ConsoleError("login-refused", `does not accept this second-factor code${errorText(response)}`);
  }
  const about = "the second factor";
  return readTokens(readData(response, about), about);
}

function post(client: ConsoleClient, path: string, body: Record<string, string | Secret>) {
  return client.send({ method: "POST", path, body });
}

function refusedLogin(response: ConsoleResponse): ConsoleError {
  const said = errorText(response);
  if (/turnstile|captcha/i.test(`${bodyErrorCode(response)} ${said}`)) {
    return new ConsoleError(
      "login-refused",
      `needs a captcha, which only a browser can solve: log in there and give its refresh token (${advice.mirrorRefreshToken("<gateway>")})`,
    );
  }
  const problem = response.status === 401 ? "does not accept this email and password" : "refused the login";
  return new ConsoleError("login-refused", `${problem}${said}`);
}

/** The console itself refuses, in its own format; a proxy in front of it says nothing about the credentials. */
function isRefusal({ status, text }: ConsoleResponse): boolean {
  return [400, 401, 403, 422].includes(status) && parseObject(text) !== null;
}

/** The `data` of `{"code":0,"message":"success","data":…}`. */
export function readData(response: ConsoleResponse, about: string): JsonObject {
  return requiredData(readAnyData(response, about), about);
}

/** The same where `data` may be a list. */
export function readAnyData(response: ConsoleResponse, about: string): unknown {
  const envelope = readJson(response, about);
  const code = fieldAt(envelope, "code");
  if (typeof code !== "number" && typeof code !== "string") throw otherShape(about, "code");
  if (code !== 0) throw new ConsoleError("failing", `refused ${about}${errorText(response)}`);
  return fieldAt(envelope, "data");
}

/** Middleware puts an error's name into `code`; handlers put it into `reason`, beside a numeric `code`. */
export function bodyErrorCode({ text }: ConsoleResponse): string | null {
  const body = parseObject(text);
  return cleanAt(body, "reason") ?? cleanAt(body, "code");
}

function readTokens(data: JsonObject, about: string): Tokens {
  const expiresIn = numberAt(data, "expires_in") ?? 0;
  return {
    accessToken: tokenAt(data, "access_token", about),
    refreshToken: textAt(data, "refresh_token") ? tokenAt(data, "refresh_token", about) : null,
    // Without a time, use it until the console says that it has expired.
    expiresIn: expiresIn > 0 ? expiresIn : Number.POSITIVE_INFINITY,
  };
}

/** Accepts only what can be sent in a header: a line break would start another header. */
function tokenAt(data: JsonObject, name: string, about: string): Secret {
  const text = textAt(data, name) ?? "";
  if (!/^[\x21-\x7e]{1,16384}$/.test(text)) throw otherShape(about, name);
  return new Secret(text);
}

export interface SessionOptions {
  readonly client: ConsoleClient;
  readonly now: () => number;
  readonly refreshToken: Secret | null;
  /** From config.yaml: used where there is no refresh token, or no longer a valid one. */
  readonly credentials: Credentials | null;
  /** Stores the new refresh token; the previous one is dead. Its access token is not used before this succeeds. */
  readonly onRefreshToken: (token: Secret) => Promise<void>;
}

interface Access {
  readonly token: Secret;
  readonly renewAt: number;
}

/** An access token is renewed this long before it expires, or a tenth of its life if that is shorter. */
const RENEW_AHEAD_MS = MINUTE_MS;
/** Password logins are rare, so that an account is not locked and a console's limit not used up. */
const LOGIN_EVERY_MS = 10 * MINUTE_MS;
const REFUSED_LOGIN_EVERY_MS = DAY_MS;

/** A login at sub2api: renews its access token, and logs in with the configured password where it must. */
export class Sub2apiSession {
  readonly #options: SessionOptions;
  #refreshToken: Secret | null;
  #access: Access | null = null;
  /** New tokens that could not be stored yet; the previous ones are dead. */
  #unstored: Tokens | null = null;
  #renewing: Promise<Access> | null = null;
  /** Why there is no refresh token. */
  #ended = "has no login yet";
  #lastLogin: { readonly at: number; readonly error: ConsoleError | null } | null = null;

  constructor(options: SessionOptions) {
    this.#options = options;
    this.#refreshToken = options.refreshToken;
  }

  get(path: string): Promise<ConsoleResponse> {
    return this.send({ path });
  }

  /**
   * Sends a request with this login. Never returns the console's own 401, but throws a ConsoleError. A console that answers
   * 401 has not executed the request, so any request may be sent again after the login was renewed.
   */
  async send(request: Omit<ConsoleRequest, "bearer">): Promise<ConsoleResponse> {
    const { client, now } = this.#options;
    let access = this.#access;
    if (access === null || now() >= access.renewAt) access = await this.#renew();
    const response = await client.send({ ...request, bearer: access.token });
    if (!isLoggedOut(response)) return response;
    this.#judgeLogout(response);
    // A concurrent call may have renewed it already.
    if (this.#access === access) this.#access = null;
    const renewed = this.#access ?? (await this.#renew());
    const again = await client.send({ ...request, bearer: renewed.token });
    if (!isLoggedOut(again)) return again;
    this.#access = null;
    this.#judgeLogout(again);
    throw new ConsoleError("login-needed", `does not accept a new login${errorText(again)}`);
  }

  /** One at a time: a second call would send a refresh token that the first has used up. */
  #renew(): Promise<Access> {
    this.#renewing ??= this.#renewOnce().finally(() => {
      this.#renewing = null;
    });
    return this.#renewing;
  }

  async #renewOnce(): Promise<Access> {
    const tokens = this.#unstored ?? (await this.#refresh()) ?? (await this.#loginWithPassword());
    const next = tokens.refreshToken;
    if (next !== null && this.#refreshToken?.equals(next) !== true) {
      this.#unstored = tokens;
      try {
        await this.#options.onRefreshToken(next);
      } catch (error) {
        const problem = `issued a new login that could not be stored here (${errorCode(error)})`;
        throw new ConsoleError("failing", problem);
      }
      this.#unstored = null;
      this.#refreshToken = next;
    }
    const life = tokens.expiresIn * 1000;
    const renewAt = this.#options.now() + life - Math.min(RENEW_AHEAD_MS, life / 10);
    this.#access = { token: tokens.accessToken, renewAt };
    return this.#access;
  }

  /** null: there is no refresh token, or the console no longer accepts it. Any other failure keeps it. */
  async #refresh(): Promise<Tokens | null> {
    if (this.#refreshToken === null) return null;
    const about = "the renewal of the login";
    const body = { refresh_token: this.#refreshToken };
    const response = await post(this.#options.client, "/api/v1/auth/refresh", body);
    if (!isRefusal(response)) return readTokens(readData(response, about), about);
    this.#refreshToken = null;
    this.#ended = `has ended the login${errorText(response)}`;
    return null;
  }

  /** Between two attempts it throws the last one's error again. */
  async #loginWithPassword(): Promise<Tokens> {
    const { client, now, credentials } = this.#options;
    if (credentials === null) throw new ConsoleError("login-needed", this.#ended);
    const last = this.#lastLogin;
    const wait = last?.error?.kind === "login-refused" ? REFUSED_LOGIN_EVERY_MS : LOGIN_EVERY_MS;
    // Math.abs: a clock that was set back must not block the login for weeks.
    if (last !== null && Math.abs(now() - last.at) < wait) {
      throw last.error ?? new ConsoleError("failing", "ends every login within minutes");
    }
    this.#lastLogin = { at: now(), error: null };
    try {
      const result = await loginSub2api(client, credentials);
      if (result.state === "done") return result;
      throw new ConsoleError("login-needed", "needs a second factor, which only a person can give");
    } catch (error) {
      if (error instanceof ConsoleError) this.#lastLogin = { at: now(), error: error };
      throw error;
    }
  }

  /** Returns where renewing the login may help. */
  #judgeLogout(response: ConsoleResponse): void {
    const code = bodyErrorCode(response);
    if (code === "USER_INACTIVE" || code === "USER_NOT_FOUND") {
      throw new ConsoleError("login-refused", `says that the account is not active${errorText(response)}`);
    }
    if (code === "SESSION_BINDING_MISMATCH") {
      this.#refreshToken = null;
      this.#ended = "ended the login because this machine's network address has changed since";
    }
  }
}

/** In the console's own format: a new login does not help against a proxy in front of it. */
function isLoggedOut({ status, text }: ConsoleResponse): boolean {
  return status === 401 && parseObject(text) !== null;
}
