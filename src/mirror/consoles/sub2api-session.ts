import type { Secret } from "../../secret.ts";
import { denialOf, saying } from "./answers.ts";
import type { ConsoleClient, ConsoleResponse } from "./console.ts";
import { ConsoleFault } from "./console.ts";
import { dataOf, errorWord } from "./sub2api/envelope.ts";
import { blotted, type Credentials, isRefusal, type Tokens, tokensIn } from "./sub2api/login.ts";
import { createPasswordLogin } from "./sub2api/password-login.ts";

export interface Sub2apiSession {
  /** GET as the one who is logged in. The console's own 401 never comes back: it has become a ConsoleFault. */
  ask(path: string): Promise<ConsoleResponse>;
}

export interface SessionMeans {
  readonly client: ConsoleClient;
  readonly now: () => number;
  readonly refreshToken: Secret | null;
  /** Where the configuration has a password: used when there is no refresh token, or no longer one. */
  readonly credentials: Credentials | null;
  /** Keeps the new refresh token; the one before is dead. What it unlocks is not used before this has succeeded. */
  readonly onRefreshToken: (token: Secret) => Promise<void>;
}

interface Access {
  readonly token: Secret;
  /** When it had better be renewed. */
  readonly until: number;
}

/** Renewed this long before its end, or a tenth of its life if that is shorter. */
const AHEAD_MS = 60_000;
export function createSub2apiSession(means: SessionMeans): Sub2apiSession {
  const { client, now } = means;
  const login = means.credentials === null ? null : createPasswordLogin(client, now, means.credentials);
  let refreshToken = means.refreshToken;
  let access: Access | null = null;
  /** Tokens that are ours and not yet kept: the only valid ones there are. */
  let unkept: Tokens | null = null;
  let renewing: Promise<Access> | null = null;
  /** Why the refresh token was given up, for words. */
  let ended = "knows nobody who is logged in";

  async function adopt(tokens: Tokens): Promise<Access> {
    const next = tokens.refreshToken;
    if (next !== null && refreshToken?.equals(next) !== true) {
      unkept = tokens;
      await means.onRefreshToken(next).catch((error: unknown) => {
        throw new ConsoleFault("failing", `gave a new login that could not be kept here (${codeOf(error)})`);
      });
      unkept = null;
      refreshToken = next;
    }
    const life = tokens.expiresIn * 1000;
    access = { token: tokens.accessToken, until: now() + life - Math.min(AHEAD_MS, life / 10) };
    return access;
  }

  /** null: the console does not take the refresh token any more. Every other failure leaves it as it is. */
  async function refresh(token: Secret): Promise<Tokens | null> {
    const body = { refresh_token: token };
    const path = "/api/v1/auth/refresh";
    const answer = blotted(await client.send({ method: "POST", path, bearer: null, body }), token);
    if (!isRefusal(answer)) return tokensIn(dataOf(answer, "the renewal of the login"), "the renewal");
    refreshToken = null;
    ended = `has ended the login${saying(answer)}`;
    return null;
  }

  async function renewOnce(): Promise<Access> {
    if (unkept !== null) return adopt(unkept);
    const tokens = refreshToken === null ? null : await refresh(refreshToken);
    if (tokens !== null) return adopt(tokens);
    if (login === null) throw new ConsoleFault("login-needed", ended);
    return adopt(await login());
  }

  /** One at a time: the second of two would show a refresh token that the first has used up. */
  function renew(): Promise<Access> {
    renewing ??= renewOnce().finally(() => {
      renewing = null;
    });
    return renewing;
  }

  async function askWith({ token }: Access, path: string): Promise<ConsoleResponse> {
    return blotted(await client.send({ method: "GET", path, bearer: token }), token);
  }

  /** What a 401 means for the login; returns where renewing it may help. */
  function consider(answer: ConsoleResponse): void {
    const word = errorWord(answer);
    if (word === "USER_INACTIVE" || word === "USER_NOT_FOUND") {
      throw new ConsoleFault("login-refused", `says that the account is not active${saying(answer)}`);
    }
    if (word !== "SESSION_BINDING_MISMATCH") return;
    refreshToken = null;
    ended = "ended the login, because this machine's network address is another than when it logged in";
  }

  return {
    async ask(path) {
      const current = access !== null && now() < access.until ? access : await renew();
      const answer = await askWith(current, path);
      if (!saysLoggedOut(answer)) return answer;
      consider(answer);
      // Somebody else may have renewed it meanwhile.
      if (access === current) access = null;
      const again = await askWith(access ?? (await renew()), path);
      if (!saysLoggedOut(again)) return again;
      access = null;
      consider(again);
      throw new ConsoleFault("login-needed", `does not take a login that is new${saying(again)}`);
    },
  };
}

/** In the console's own shape: a wall in front of it is not passed by renewing the login. */
function saysLoggedOut(answer: ConsoleResponse): boolean {
  const denial = denialOf(answer);
  return denial !== null && denial.status === 401 && denial.body !== null;
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "unknown";
}
