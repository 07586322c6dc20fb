import { randomBytes } from "node:crypto";
import type { Listen } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import { readOwnFile } from "../core/own-file.ts";
import { writePrivateFile } from "../core/private-file.ts";
import { hashToken } from "../core/token.ts";

/** A session in the file. The token cannot be computed from its hash. */
export interface StoredSession {
  /** SHA-256 of the token, in hex. */
  readonly hash: string;
  /** Milliseconds UTC. */
  readonly used_at: number;
  /** The public key of the remembered browser that began it; null: `keybearer open` did. */
  readonly browser: string | null;
}

interface Session extends Omit<StoredSession, "used_at"> {
  /** Wall time, since it is compared after a restart. */
  used_at: number;
  /** Requests in flight, as functions that cut their responses. */
  readonly inFlight: Set<() => void>;
}

const CODE_MS = 60_000;
/** If there are more, the oldest end. */
const MAX_CODES = 8;
const MAX_SESSIONS = 16;

/**
 * Who may see the dashboard: someone who could open the control socket, by a code that is valid once, or a browser that such a
 * person had remembered.
 */
export class Sessions {
  readonly #clock: Clock;
  readonly #onChange: () => void;
  /** By the hashes of the secrets, the oldest first, with the end of each code. Finding a hash reveals nothing of its secret. */
  readonly #codes = new Map<string, number>();
  readonly #sessions = new Map<string, Session>();
  #lastUse = 0;

  constructor(clock: Clock, onChange: () => void) {
    this.#clock = clock;
    this.#onChange = onChange;
  }

  issueCode(): { readonly code: string; readonly expiresInSeconds: number } {
    const code = randomToken();
    this.#codes.set(hashToken(code), this.#clock.elapsed() + CODE_MS);
    for (const oldest of [...this.#codes.keys()].slice(0, -MAX_CODES)) this.#codes.delete(oldest);
    return { code, expiresInSeconds: CODE_MS / 1000 };
  }

  /**
   * Exchanges a code for the token of a new session. null: it is no valid code. A valid one works after any number of wrong
   * ones: 256 bits cannot be guessed, and wrong codes must not lock the owner out.
   */
  exchange(code: string): string | null {
    const hash = hashToken(code);
    const validUntil = this.#codes.get(hash) ?? 0;
    this.#codes.delete(hash);
    return this.#clock.elapsed() < validUntil ? this.start(null) : null;
  }

  /** Returns the token. @param browser the public key of the remembered browser; null: it came with a code */
  start(browser: string | null): string {
    const token = randomToken();
    const hash = hashToken(token);
    this.#sessions.set(hash, { hash, used_at: this.#clock.now(), browser, inFlight: new Set() });
    this.#end([...this.#sessions.values()].slice(0, -MAX_SESSIONS));
    this.#onChange();
    return token;
  }

  /** Ends the sessions of browsers that are not remembered any more, and cuts their responses. */
  endForgotten(remembered: ReadonlySet<string>): void {
    const isForgotten = ({ browser }: Session) => browser !== null && !remembered.has(browser);
    this.#end([...this.#sessions.values()].filter(isForgotten));
  }

  /** Begins a request with this token. Returns the function that ends it; null: there is no such session. */
  begin(token: string, cut: () => void): (() => void) | null {
    const session = this.#sessions.get(hashToken(token));
    if (session === undefined) return null;
    const use = () => {
      session.used_at = this.#clock.now();
      this.touch();
    };
    use();
    session.inFlight.add(cut);
    return () => {
      session.inFlight.delete(cut);
      use();
    };
  }

  /** Counts as use of the dashboard. */
  touch(agoMs = 0): void {
    this.#lastUse = this.#clock.elapsed() - agoMs;
  }

  unusedForMs(): number {
    return this.#clock.elapsed() - this.#lastUse;
  }

  /** Takes over the sessions of the previous daemon. */
  restore(stored: readonly StoredSession[]): void {
    for (const session of stored.slice(-MAX_SESSIONS))
      this.#sessions.set(session.hash, { ...session, inFlight: new Set() });
  }

  toStore(): StoredSession[] {
    return Array.from(this.#sessions.values(), ({ hash, used_at, browser, inFlight }) => ({
      hash,
      used_at: inFlight.size > 0 ? this.#clock.now() : used_at,
      browser,
    }));
  }

  endAll(): void {
    this.#codes.clear();
    this.#sessions.clear();
  }

  #end(ended: readonly Session[]): void {
    for (const { hash } of ended) this.#sessions.delete(hash);
    for (const { inFlight } of ended) for (const cut of inFlight) cut();
    if (ended.length > 0) this.#onChange();
  }
}

/** The prefix differs from that of tools' tokens, so that one is never taken for the other. */
function randomToken(): string {
  return `kd_${randomBytes(32).toString("base64url")}`;
}

const MAX_BYTES = 64 * 1024;

/** The sessions of the same address; none if the file is missing or is not what was written. */
export async function readSessions(file: string, { host, port }: Listen): Promise<readonly StoredSession[]> {
  try {
    const stored = Object(JSON.parse(readOwnFile(file, MAX_BYTES) ?? "{}"));
    if (stored.listen !== `${host}:${port}` || !Array.isArray(stored.sessions)) return [];
    return stored.sessions.filter(isStoredSession);
  } catch {
    // Without the file, people open the dashboard again.
    return [];
  }
}

export async function writeSessions(
  file: string,
  { host, port }: Listen,
  sessions: readonly StoredSession[],
): Promise<void> {
  await writePrivateFile(file, `${JSON.stringify({ listen: `${host}:${port}`, sessions })}\n`);
}

function isStoredSession(value: unknown): value is StoredSession {
  const { hash, used_at, browser } = Object(value);
  const isBrowser = browser === null || typeof browser === "string";
  return typeof hash === "string" && /^[\da-f]{64}$/.test(hash) && Number.isSafeInteger(used_at) && isBrowser;
}
