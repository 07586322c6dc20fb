import { parseObject, textAt } from "../../core/json.ts";
import { keyProblem, Secret } from "../../core/secret.ts";
import { MINUTE_MS } from "../../core/units.ts";
import { ConsoleError } from "./console.ts";
import {
  type ConsoleClient,
  type ConsoleRequest,
  type ConsoleResponse,
  errorText,
  isDenied,
  otherShape,
  readJson,
} from "./http.ts";

interface Credentials {
  /** The user's email or name. */
  readonly user: string;
  readonly password: Secret;
}

interface SessionOptions {
  readonly client: ConsoleClient;
  readonly now: () => number;
  /** A key of one of LiteLLM's users; null: the password makes one. */
  readonly key: Secret | null;
  readonly credentials: Credentials | null;
}

/** Password logins are rare: each one makes a key at the console. */
const LOGIN_EVERY_MS = 10 * MINUTE_MS;
const LOGIN = "the login";

/**
 * A login at LiteLLM. Its API takes a user's key; with a password it makes such a key, which lasts a day and is kept in memory
 * only.
 */
export class LiteLlmSession {
  readonly #options: SessionOptions;
  #key: Secret | null;
  #loggedInAt: number | null = null;
  #loggingIn: Promise<Secret> | null = null;

  constructor(options: SessionOptions) {
    this.#options = options;
    this.#key = options.key;
  }

  async send(request: Omit<ConsoleRequest, "bearer">): Promise<ConsoleResponse> {
    const key = this.#key ?? (await this.#logIn());
    const response = await this.#options.client.send({ ...request, bearer: key });
    // Its key has expired. A 403 refuses only this action.
    const isOver = response.status === 401 && isDenied(response) && this.#options.credentials !== null;
    if (!isOver) return response;
    if (this.#key === key) this.#key = null;
    return this.#options.client.send({ ...request, bearer: this.#key ?? (await this.#logIn()) });
  }

  #logIn(): Promise<Secret> {
    this.#loggingIn ??= this.#logInOnce().finally(() => {
      this.#loggingIn = null;
    });
    return this.#loggingIn;
  }

  async #logInOnce(): Promise<Secret> {
    const { client, credentials, now } = this.#options;
    if (credentials === null) throw new ConsoleError("login-needed", "has no login yet");
    const last = this.#loggedInAt;
    if (last !== null && Math.abs(now() - last) < LOGIN_EVERY_MS)
      throw new ConsoleError("login-needed", "does not accept the key that its login gave a short while ago");
    this.#loggedInAt = now();
    this.#key = await loginLiteLlm(client, credentials);
    return this.#key;
  }
}

/** The key of a new session. Throws login-refused where the same credentials would fail again. */
async function loginLiteLlm(client: ConsoleClient, { user, password }: Credentials): Promise<Secret> {
  const response = await client.send({
    method: "POST",
    path: "/v2/login",
    body: { username: user, password },
  });
  if (isDenied(response))
    throw new ConsoleError("login-refused", `does not accept this user and password${errorText(response)}`);
  const token = textAt(readJson(response, LOGIN), "token") ?? "";
  const payload = parseObject(Buffer.from(token.split(".")[1] ?? "", "base64url").toString("utf8"));
  const key = textAt(payload, "key") ?? "";
  if (keyProblem(key) !== null) throw otherShape(LOGIN, "token");
  return new Secret(key);
}
