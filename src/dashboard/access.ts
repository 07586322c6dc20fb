import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Clock } from "../core/clock.ts";
import type { KeptSession } from "./session-file.ts";

/** Who may look at the dashboard: whoever could open the control socket, by a code that is good once. */
export interface Access {
  issue(): IssuedCode;
  /** The token of a new session. */
  trade(code: string): Traded;
  admits(token: string): boolean;
  /** The session of this token is in use until the answer is called. */
  hold(token: string): () => void;
  /** Sessions that a daemon before this one gave out. */
  restore(kept: readonly KeptSession[]): void;
  /** Every session, as it can be restored later. */
  sessions(): KeptSession[];
  /** Every code and every session ends. */
  forget(): void;
}

export interface IssuedCode {
  readonly code: string;
  /** Whole seconds. */
  readonly expiresIn: number;
}

export type Traded =
  | { readonly ok: true; readonly token: string }
  | { readonly ok: false; readonly why: "wrong" | "too many" };

const CODE_MS = 60_000;
/** Nobody opens more at a time: of codes and of sessions, the oldest gives way. */
const MOST_CODES = 8;
export const MOST_SESSIONS = 16;
/** Wrong codes in a minute. */
const MOST_WRONG = 20;
const MINUTE_MS = 60_000;

interface Session {
  readonly hash: Buffer;
  /** Wall time: it is compared over a restart. */
  usedAt: number;
  /** Requests under way. */
  open: number;
}

export function createAccess(clock: Clock): Access {
  const codes: { readonly hash: Buffer; readonly until: number }[] = [];
  let sessions: readonly Session[] = [];
  let wrong: number[] = [];

  function take(code: string): boolean {
    const hash = hashOf(code);
    const at = codes.findIndex((one) => timingSafeEqual(one.hash, hash));
    const [found] = at === -1 ? [] : codes.splice(at, 1);
    return found !== undefined && clock.elapsed() < found.until;
  }

  function find(token: string): Session | undefined {
    const hash = hashOf(token);
    return sessions.filter((session) => timingSafeEqual(session.hash, hash))[0];
  }

  return {
    issue() {
      const code = random();
      codes.push({ hash: hashOf(code), until: clock.elapsed() + CODE_MS });
      if (codes.length > MOST_CODES) codes.shift();
      return { code, expiresIn: CODE_MS / 1000 };
    },
    trade(code) {
      // A right one counts however many wrong ones were tried: 256 bits are not guessed, and whoever tries must not be
      // able to keep the owner out.
      if (!take(code)) {
        const now = clock.elapsed();
        wrong = [...wrong.filter((at) => now - at < MINUTE_MS), now].slice(-MOST_WRONG - 1);
        return { ok: false, why: wrong.length > MOST_WRONG ? "too many" : "wrong" };
      }
      const token = random();
      const session = { hash: hashOf(token), usedAt: clock.now(), open: 0 };
      sessions = [...sessions, session].slice(-MOST_SESSIONS);
      return { ok: true, token };
    },
    admits(token) {
      const session = find(token);
      if (session !== undefined) session.usedAt = clock.now();
      return session !== undefined;
    },
    hold(token) {
      const session = find(token);
      if (session === undefined) return () => {};
      session.open += 1;
      return () => {
        session.open -= 1;
        session.usedAt = clock.now();
      };
    },
    restore(kept) {
      sessions = kept
        .map(({ hash, used_at }) => ({ hash: Buffer.from(hash, "hex"), usedAt: used_at, open: 0 }))
        .slice(-MOST_SESSIONS);
    },
    sessions: () =>
      sessions.map(({ hash, usedAt, open }) => ({
        hash: hash.toString("hex"),
        used_at: open > 0 ? clock.now() : usedAt,
      })),
    forget() {
      codes.length = 0;
      sessions = [];
    },
  };
}

/** Not as tools' tokens begin: what opens one door must not be taken for what opens the other. */
function random(): string {
  return `kd_${randomBytes(32).toString("base64url")}`;
}

/** Compared by hash: how long that takes tells nothing about what is right. */
function hashOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
