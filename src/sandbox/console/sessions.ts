import { randomBytes } from "node:crypto";
import type { Clock } from "../../core/clock.ts";
import { Secret } from "../../core/secret.ts";
import type { Account } from "../account.ts";

/** Who is logged in at the console. */
export interface Sessions {
  /** Null when email or password are wrong. */
  login(email: string, password: string): Session | null;
  /** A new pair; the token that was shown is dead from then on. Null when it is unknown, used or too old. */
  refresh(refreshToken: string): Session | null;
  check(accessToken: string): "fine" | "expired" | "unknown";
  /** Logs everybody out. */
  end(): void;
}

export interface Session {
  readonly accessToken: string;
  readonly refreshToken: string;
  /** Seconds. */
  readonly expiresIn: number;
}

const ACCESS_SECONDS = 60 * 60;
const REFRESH_SECONDS = 30 * 24 * 60 * 60;
/** A program that logs in over and over must not fill the memory. */
const MOST_SESSIONS = 1000;

export function createSessions(clock: Clock, account: Account): Sessions {
  const accessUntil = new Map<string, number>();
  const refreshUntil = new Map<string, number>();

  function open(): Session {
    const accessToken = `sat_${randomBytes(24).toString("base64url")}`;
    const refreshToken = `rt_${randomBytes(32).toString("hex")}`;
    keep(accessUntil, accessToken, clock.now() + ACCESS_SECONDS * 1000);
    keep(refreshUntil, refreshToken, clock.now() + REFRESH_SECONDS * 1000);
    return { accessToken, refreshToken, expiresIn: ACCESS_SECONDS };
  }

  return {
    login(email, password) {
      const right =
        email.trim().toLowerCase() === account.email && account.password.equals(new Secret(password));
      return right ? open() : null;
    },
    refresh(refreshToken) {
      const until = refreshUntil.get(refreshToken);
      refreshUntil.delete(refreshToken);
      return until === undefined || until <= clock.now() ? null : open();
    },
    check(accessToken) {
      const until = accessUntil.get(accessToken);
      if (until === undefined) return "unknown";
      return until <= clock.now() ? "expired" : "fine";
    },
    end() {
      accessUntil.clear();
      refreshUntil.clear();
    },
  };
}

function keep(tokens: Map<string, number>, token: string, until: number): void {
  tokens.set(token, until);
  for (const oldest of tokens.keys()) {
    if (tokens.size <= MOST_SESSIONS) return;
    tokens.delete(oldest);
  }
}
