import type { Secret } from "../../../secret.ts";
import { denialOf, jsonOf, otherShape } from "../answers.ts";
import type { ConsoleClient, ConsoleResponse } from "../console.ts";
import { ConsoleFault } from "../console.ts";
import { fieldAt, flagAt, type JsonObject } from "../json.ts";
import { cleanAt } from "../texts.ts";

/** Asks for one path, and answers with what is in the envelope; `about` names it in words. */
export type Ask = (path: string, about: string) => Promise<unknown>;

export interface Login {
  readonly client: ConsoleClient;
  readonly accessToken: Secret;
  readonly headers?: Readonly<Record<string, string>>;
}

export function createAsk({ client, accessToken, headers = {} }: Login): Ask {
  return async (path, about) => {
    const answer = await client.send({ method: "GET", path, bearer: accessToken, headers });
    return dataOf(withoutEcho(answer, accessToken), about);
  };
}

/** Whatever a console repeats of the credential it was shown goes no further than this. */
export function withoutEcho(answer: ConsoleResponse, credential: Secret): ConsoleResponse {
  return { ...answer, text: credential.blotFrom(answer.text) };
}

/**
 * The `data` of `{"success", "message", "data"}`. The status alone tells nothing: older versions answer 200 to somebody
 * who is not logged in.
 */
export function dataOf(answer: ConsoleResponse, about: string): unknown {
  const denial = denialOf(answer);
  if (denial !== null) throw denied(denial.body);
  const body = jsonOf(answer, about);
  const success = flagAt(body, "success");
  if (success === null) throw otherShape(about, "success");
  if (success) return fieldAt(body, "data");
  if (saysDenied(body)) throw denied(body);
  const said = cleanAt(body, "message");
  throw new ConsoleFault("failing", `answered ${about} with an error${said === null ? "" : `: ${said}`}`);
}

/** The words of one-api and of new-api's versions, in the languages in which they say them. */
const DENIED =
  /access[ _-]?token|new-api-user|unauthori[sz]ed|not logged in|log ?in (?:again|first)|banned|未登录|未登錄|未登入|无权|無權|未授权|重新登录|封禁/i;

function saysDenied(body: JsonObject): boolean {
  const code = fieldAt(body, "code");
  return (
    (typeof code === "string" && code.startsWith("AUTH_")) || DENIED.test(cleanAt(body, "message") ?? "")
  );
}

function denied(body: JsonObject | null): ConsoleFault {
  const said = body === null ? null : cleanAt(body, "message");
  if (said !== null && /new-api-user/i.test(said)) {
    return new ConsoleFault(
      "login-needed",
      `wants the number of the access token's user, which is written as login.user: ${said}`,
    );
  }
  return new ConsoleFault(
    "login-needed",
    `does not accept the access token${said === null ? "" : `: ${said}`}`,
  );
}
