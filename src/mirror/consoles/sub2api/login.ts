import { Secret } from "../../../secret.ts";
import { bodyOf, otherShape, saying } from "../answers.ts";
import type { ConsoleClient, ConsoleResponse } from "../console.ts";
import { ConsoleFault } from "../console.ts";
import { flagAt, type JsonObject, numberAt, textAt } from "../json.ts";
import { dataOf, errorWord, isSuccess } from "./envelope.ts";

export interface Tokens {
  readonly accessToken: Secret;
  /** null: this console gives none, so that the password is needed again when the access token ends. */
  readonly refreshToken: Secret | null;
  /** Seconds. */
  readonly expiresIn: number;
}

export type LoginOutcome =
  | ({ readonly state: "done" } & Tokens)
  | { readonly state: "second-factor"; readonly tempToken: Secret };

export interface Credentials {
  readonly email: string;
  readonly password: Secret;
}

const LOGIN = "the login";
const CODE = "the second factor";

/** Throws login-refused where trying again with the same would fail again. */
export async function loginSub2api(
  client: ConsoleClient,
  { email, password }: Credentials,
): Promise<LoginOutcome> {
  const body = { email, password };
  const answer = await client.send({ method: "POST", path: "/api/v1/auth/login", bearer: null, body });
  const refused = refusedLogin(blotted(answer, password));
  if (refused !== null) throw refused;
  const data = dataOf(blotted(answer, password), LOGIN);
  if (flagAt(data, "requires_2fa") !== true) return { state: "done", ...tokensIn(data, LOGIN) };
  return { state: "second-factor", tempToken: secretAt(data, "temp_token", LOGIN) };
}

export async function secondFactor(client: ConsoleClient, tempToken: Secret, code: Secret): Promise<Tokens> {
  const body = { temp_token: tempToken, totp_code: code };
  const told = await client.send({ method: "POST", path: "/api/v1/auth/login/2fa", bearer: null, body });
  const answer = blotted(blotted(told, tempToken), code);
  if (isRefusal(answer))
    throw new ConsoleFault("login-refused", `does not take this code of the second factor${saying(answer)}`);
  return tokensIn(dataOf(answer, CODE), CODE);
}

export function tokensIn(data: JsonObject, about: string): Tokens {
  const expiresIn = numberAt(data, "expires_in") ?? 0;
  return {
    accessToken: secretAt(data, "access_token", about),
    refreshToken: textAt(data, "refresh_token") ? secretAt(data, "refresh_token", about) : null,
    // Without a time it is used until the console says that it has ended.
    expiresIn: expiresIn > 0 ? expiresIn : Number.POSITIVE_INFINITY,
  };
}

/** The console itself says no, in its own shape: a wall in front of it says nothing of what it was shown. */
export function isRefusal(answer: ConsoleResponse): boolean {
  return [400, 401, 403, 422].includes(answer.status) && bodyOf(answer) !== null;
}

/** An error without the secret that was sent, should the console say it back. A 200 can be one, too, by its code. */
export function blotted(answer: ConsoleResponse, secret: Secret): ConsoleResponse {
  if (isSuccess(answer)) return answer;
  // Written anew: JSON can spell one character in several ways, and the secret is known in the usual one.
  const body = bodyOf(answer);
  return { ...answer, text: secret.blotFrom(body === null ? answer.text : JSON.stringify(body)) };
}

function refusedLogin(answer: ConsoleResponse): ConsoleFault | null {
  if (!isRefusal(answer)) return null;
  const said = saying(answer);
  if (/turnstile|captcha/i.test(`${errorWord(answer)} ${said}`)) {
    return new ConsoleFault(
      "login-refused",
      "wants a captcha, which only a browser can solve: log in there and give its refresh token (keybearer mirror login <gateway> --refresh-token)",
    );
  }
  return answer.status === 401
    ? new ConsoleFault("login-refused", `does not take this email and password${said}`)
    : new ConsoleFault("login-refused", `refused the login${said}`);
}

/** Only what can stand in a header: a line break in it would be another header. */
function secretAt(data: JsonObject, name: string, about: string): Secret {
  const text = textAt(data, name);
  if (text === null || !/^[\x21-\x7e]{1,16384}$/.test(text)) throw otherShape(about, name);
  return new Secret(text);
}
