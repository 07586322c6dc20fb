import { randomBytes } from "node:crypto";
import { LOGIN, type Question, type Reply } from "./kind.ts";
import { fixedWindow, noLimit } from "./rate-limit.ts";

export interface SessionOptions {
  /** A second factor is asked for. */
  readonly secondFactor?: boolean;
  /** No program can log in. */
  readonly captcha?: boolean;
  /** Default true: a session ends when its User-Agent changes. */
  readonly binding?: boolean;
  /** Seconds. Default 3600. */
  readonly accessSeconds?: number;
  /** false: logging in gives nothing to renew it with. */
  readonly refreshTokens?: boolean;
}

export interface Sessions {
  /** null: not about sessions. */
  serve(question: Question): Reply | null;
  /** null: somebody is logged in. */
  check(question: Question): Reply | null;
  /** A refresh token as a browser would have it. */
  open(): string;
  end(which: "access" | "all"): void;
}

interface Access {
  readonly until: number;
  readonly agent: string;
}

export function success(data: unknown): Reply {
  return { status: 200, body: { code: 0, message: "success", data } };
}

/** By a handler: the code is a number. */
export function failure(status: number, message: string, reason?: string): Reply {
  return { status, body: { code: status, message, ...(reason === undefined ? {} : { reason }) } };
}

/** By what stands before the handlers: the code is a word, and the body is flat. */
export function flat(status: number, code: string, message: string, headers = {}): Reply {
  return { status, body: { code, message }, headers };
}

export function createSessions(options: SessionOptions, now: () => number, limits: boolean): Sessions {
  const { secondFactor = false, captcha = false, binding = true, refreshTokens = true } = options;
  const access = new Map<string, Access>();
  const revoked = new Set<string>();
  const refresh = new Set<string>();
  const temporary = new Set<string>();
  const perMinute = (most: number) => (limits ? fixedWindow(most, 60) : noLimit);
  const rooms = new Map([
    ["/api/v1/auth/login", perMinute(20)],
    ["/api/v1/auth/login/2fa", perMinute(20)],
    ["/api/v1/auth/refresh", perMinute(30)],
  ]);

  const newRefresh = () => {
    const token = `rt_${randomBytes(32).toString("hex")}`;
    refresh.add(token);
    return token;
  };

  function pair({ headers }: Question): Record<string, unknown> {
    const seconds = options.accessSeconds ?? 3600;
    const token = `eyJhbGciOiJIUzI1NiJ9.${randomBytes(30).toString("base64url")}.${randomBytes(32).toString("base64url")}`;
    access.set(token, { until: now() + seconds * 1000, agent: headers["user-agent"] ?? "" });
    return {
      access_token: token,
      ...(refreshTokens ? { refresh_token: newRefresh() } : {}),
      expires_in: seconds,
      token_type: "Bearer",
    };
  }

  const welcome = (question: Question) =>
    success({ ...pair(question), user: { id: 7, email: LOGIN.email, role: "user", status: "active" } });

  function login(question: Question): Reply {
    const { email, password } = question.body;
    if (typeof email !== "string" || typeof password !== "string") {
      return failure(400, "Invalid request: Key: 'LoginRequest.Email' failed on the 'required' tag");
    }
    if (captcha) return failure(400, "turnstile verification failed", "TURNSTILE_VERIFICATION_FAILED");
    if (email !== LOGIN.email || password !== LOGIN.password) {
      return failure(401, "invalid email or password", "INVALID_CREDENTIALS");
    }
    if (!secondFactor) return welcome(question);
    const temp_token = randomBytes(16).toString("hex");
    temporary.add(temp_token);
    return success({ requires_2fa: true, temp_token, user_email_masked: "o***@gateway.example" });
  }

  function second(question: Question): Reply {
    const { temp_token, totp_code } = question.body;
    if (!temporary.has(String(temp_token))) return failure(400, "Invalid or expired 2FA session");
    if (totp_code !== LOGIN.code) return failure(400, "invalid totp code", "TOTP_INVALID_CODE");
    temporary.delete(String(temp_token));
    return welcome(question);
  }

  function renew(question: Question): Reply {
    // Each is good for once; the one that was shown is dead whatever becomes of the answer.
    return refresh.delete(String(question.body.refresh_token))
      ? success(pair(question))
      : failure(401, "invalid refresh token", "REFRESH_TOKEN_INVALID");
  }

  return {
    serve(question) {
      const room = rooms.get(question.path);
      if (room === undefined || question.method !== "POST") return null;
      const wait = room(now());
      if (wait > 0) return tooMany(wait);
      if (question.path.endsWith("/refresh")) return renew(question);
      return question.path.endsWith("/2fa") ? second(question) : login(question);
    },
    check({ headers }) {
      const header = headers.authorization;
      if (header === undefined) return flat(401, "UNAUTHORIZED", "Authorization header is required");
      const [scheme = "", token] = header.split(" ", 2);
      if (scheme.toLowerCase() !== "bearer" || token === undefined) {
        return flat(401, "INVALID_AUTH_HEADER", "Authorization header format must be 'Bearer {token}'");
      }
      if (token === "") return flat(401, "EMPTY_TOKEN", "Token cannot be empty");
      if (revoked.has(token)) return flat(401, "TOKEN_REVOKED", "Token has been revoked");
      const known = access.get(token);
      if (known === undefined) return flat(401, "INVALID_TOKEN", "Invalid token");
      if (known.until <= now()) return flat(401, "TOKEN_EXPIRED", "Token has expired");
      if (!binding || known.agent === (headers["user-agent"] ?? "")) return null;
      revoked.add(token);
      return flat(401, "SESSION_BINDING_MISMATCH", "Session environment changed, please log in again");
    },
    open: newRefresh,
    end(which) {
      for (const [token, { agent }] of access) access.set(token, { until: 0, agent });
      if (which === "access") return;
      for (const token of access.keys()) revoked.add(token);
      refresh.clear();
    },
  };
}

export function tooMany(wait: number): Reply {
  const message = "Too many requests, please slow down and try again later";
  return flat(429, "RATE_LIMITED", message, { "retry-after": String(wait) });
}
