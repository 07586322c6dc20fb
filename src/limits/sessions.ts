import type { SessionLimits } from "../config/schema.ts";
import { countedSession, type SessionOrigin, sharedSession } from "../core/session-id.ts";
import { DAY_MS, MINUTE_MS } from "../core/units.ts";
import type { Counted } from "./windows.ts";

/*
 * What each session of one tool used. A session is one run of an agent, by the id that its client sends: see
 * core/session-id.ts.
 *
 * An id is only for counting. A program can invent one for each request; the tool's own limits stop such a program.
 */

type Kind = keyof SessionLimits;

/** What is known of one session. Amounts are requests, tokens and micro-dollars. */
export interface Session extends Record<Kind, number> {
  readonly id: string;
  /** When its first request was admitted. */
  begun: number;
  /** When its last request was admitted. */
  last: number;
  inFlight: number;
  /** What the owner gave it on top of its limits. */
  readonly extra: Record<Kind, number>;
  /** The owner stopped it. */
  isStopped: boolean;
  /** A request of it found no room, although none of its others was in flight, and nothing was given to it since. */
  isFull: boolean;
}

/** What the owner gave a session on top of one of its limits. */
export interface SessionLift {
  readonly limit: Kind;
  readonly amount: number;
  readonly given_at: number;
}

/** The owner stopped a session, or allowed it again. */
export interface SessionStop {
  readonly stopped: boolean;
  readonly at: number;
}

/** As the usage journal carries it from one file to the next. What is missing is nothing, or false. */
export interface CarriedSession extends Readonly<Record<Kind, number>> {
  readonly id: string;
  readonly begun: number;
  readonly last: number;
  readonly extra?: Readonly<Record<Kind, number>>;
  readonly stopped?: boolean;
  readonly full?: boolean;
}

/** New sessions beyond this share one. With ids of 100 characters, a carry line of them has 2 MB: see files.ts. */
const MAX_SESSIONS = 10_000;
/** Beyond this many, a session that does not run cannot be stopped. */
const MAX_STOPPED = 1000;
/** A session without a request for this long is forgotten, unless it is stopped or at a limit. */
const IDLE_MS = DAY_MS;
/** No token is called this. */
const OVERFLOW = "+overflow";

const KINDS: readonly Kind[] = ["requests", "tokens", "spend"];

/** The sessions of one tool. Its counters call every method, each in one synchronous step. */
export class Sessions {
  readonly #sessions = new Map<string, Session>();
  /** null: sessions are not limited, or it is not known yet. */
  #limits: SessionLimits | null = null;
  #droppedAt = Number.NEGATIVE_INFINITY;

  get limits(): SessionLimits | null {
    return this.#limits;
  }

  /** Whether it matters which session a request belongs to. */
  get areCounted(): boolean {
    return this.#limits !== null || this.#sessions.size > 0;
  }

  /** What was counted stays, for a limit that comes back. */
  change(limits: SessionLimits | null): void {
    this.#limits = limits;
  }

  /** The session of a request. A new one is counted once begin() is called. null: it is not counted. */
  find(origin: SessionOrigin, at: number): Session | null {
    if (!this.areCounted) return null;
    const id = countedSession(origin, at);
    const known = this.get(id);
    if (known !== null || this.#limits === null) return known;
    if (this.#sessions.size >= MAX_SESSIONS) this.#dropIdle(at);
    if (this.#sessions.size < MAX_SESSIONS) return newSession(id, at);
    return this.findById(sharedSession(at, OVERFLOW), at);
  }

  /** null: there is none with this id. */
  get(id: string | null): Session | null {
    return id === null ? null : (this.#sessions.get(id) ?? null);
  }

  findById(id: string, at: number): Session {
    return this.get(id) ?? newSession(id, at);
  }

  /** A request of it was admitted at this time. */
  begin(session: Session, at: number): void {
    session.inFlight += 1;
    session.begun = Math.min(session.begun, at);
    this.#sessions.set(session.id, session);
  }

  /** A request has a record from now on. */
  countRequest(session: Session, at: number): void {
    session.requests += 1;
    session.last = Math.max(session.last, at);
  }

  /** Adds what a finished request used, or what a correction changes. */
  add(session: Session, { tokens, spend }: Pick<Counted, "tokens" | "spend">): void {
    session.tokens = Math.max(0, session.tokens + tokens);
    session.spend = Math.max(0, session.spend + spend);
  }

  /** A correction of a request that was counted in this session. If it was forgotten since, it does not count. */
  correct(id: string, at: number, counted: Pick<Counted, "tokens" | "spend">): void {
    const session = this.get(id);
    if (session !== null && at >= session.begun) this.add(session, counted);
  }

  /** The owner stops a session, or allows it again. false: too many are stopped. */
  stop(id: string, { stopped, at }: SessionStop): boolean {
    const known = this.get(id);
    if (!stopped) {
      if (known !== null) known.isStopped = false;
      if (known !== null && isUntouched(known) && known.inFlight === 0) this.#sessions.delete(id);
      return true;
    }
    if (known === null && this.#countStopped() >= MAX_STOPPED) return false;
    const session = known ?? newSession(id, at);
    session.isStopped = true;
    this.#sessions.set(id, session);
    return true;
  }

  /** The owner gives a session more. An amount of 0 takes back everything given for this limit. */
  lift(id: string, { limit, amount, given_at }: SessionLift): void {
    const session = this.findById(id, given_at);
    session.extra[limit] = amount === 0 ? 0 : session.extra[limit] + amount;
    session.isFull = false;
    this.#sessions.set(id, session);
  }

  /** Every session that is counted or stopped. */
  list(): Iterable<Session> {
    return this.#sessions.values();
  }

  carry(at: number): CarriedSession[] {
    this.#droppedAt = Number.NEGATIVE_INFINITY;
    this.#dropIdle(at);
    return [...this.#sessions.values()].filter((session) => !isUntouched(session)).map(carried);
  }

  /** Replaces everything that is known. */
  restore(sessions: readonly CarriedSession[]): void {
    this.#sessions.clear();
    for (const { stopped = false, full = false, extra = NOTHING, ...session } of sessions) {
      const state = { inFlight: 0, extra: { ...extra }, isStopped: stopped, isFull: full };
      this.#sessions.set(session.id, { ...session, ...state });
    }
  }

  /** At most once a minute: with 10,000 live sessions, each new id would search all of them for nothing. */
  #dropIdle(at: number): void {
    if (Math.abs(at - this.#droppedAt) < MINUTE_MS) return;
    this.#droppedAt = at;
    for (const session of this.#sessions.values()) {
      if (at - session.last < IDLE_MS || session.inFlight > 0) continue;
      // The id of a day that is over does not come again.
      const isOver = session.id.includes("/");
      if (isOver || !(session.isStopped || this.#isAtLimit(session))) this.#sessions.delete(session.id);
    }
  }

  #isAtLimit(session: Session): boolean {
    const reached = (kind: Kind) => session[kind] >= (this.#limits?.[kind] ?? Infinity) + session.extra[kind];
    return session.isFull || KINDS.some(reached);
  }

  #countStopped(): number {
    let count = 0;
    for (const { isStopped } of this.#sessions.values()) if (isStopped) count += 1;
    return count;
  }
}

const NOTHING: Readonly<Record<Kind, number>> = { requests: 0, tokens: 0, spend: 0 };

function newSession(id: string, at: number): Session {
  const state = { inFlight: 0, extra: { ...NOTHING }, isStopped: false, isFull: false };
  return { id, requests: 0, tokens: 0, spend: 0, begun: at, last: at, ...state };
}

/** Nothing of it needs to be known at the next start. */
function isUntouched({ requests, tokens, spend, extra, isStopped, isFull }: Session): boolean {
  const given = extra.requests + extra.tokens + extra.spend;
  return requests + tokens + spend + given === 0 && !isStopped && !isFull;
}

function carried({ inFlight, extra, isStopped, isFull, ...session }: Session): CarriedSession {
  return {
    ...session,
    ...(extra.requests + extra.tokens + extra.spend > 0 ? { extra } : {}),
    ...(isStopped ? { stopped: true } : {}),
    ...(isFull ? { full: true } : {}),
  };
}
