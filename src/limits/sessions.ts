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
  /** When its last request was admitted. */
  last: number;
  inFlight: number;
  /** What the owner gave it on top of its limits. */
  readonly extra: Record<Kind, number>;
  /** The owner stopped it. */
  isStopped: boolean;
  /** It reached a limit, and nothing was given to it since. */
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

/** As the usage journal carries it from one file to the next. */
export interface CarriedSession extends Readonly<Record<Kind, number>> {
  readonly id: string;
  readonly last: number;
  readonly extra: Readonly<Record<Kind, number>>;
  readonly stopped: boolean;
  readonly full: boolean;
}

/** New sessions beyond this share one. With ids of 100 characters that is 4 MB for a tool. */
const MAX_SESSIONS = 10_000;
/** A session without a request for this long is forgotten, unless it is stopped or full. */
const IDLE_MS = DAY_MS;
/** No token is called this. */
const OVERFLOW = "+overflow";

/** The sessions of one tool. Its counters call every method, each in one synchronous step. */
export class Sessions {
  readonly #sessions = new Map<string, Session>();
  /** null: sessions are not limited. undefined: not known yet, as while the journal is read, so all are counted. */
  #limits: SessionLimits | null | undefined;
  #droppedAt = Number.NEGATIVE_INFINITY;

  get limits(): SessionLimits | null {
    return this.#limits ?? null;
  }

  /** Whether it matters which session a request belongs to. */
  get areCounted(): boolean {
    return this.#limits !== null || this.#sessions.size > 0;
  }

  /** Without limits, only what is stopped is remembered. */
  change(limits: SessionLimits | null): void {
    if (limits === this.#limits) return;
    this.#limits = limits;
    if (limits !== null) return;
    for (const session of this.#sessions.values()) if (!session.isStopped) this.#sessions.delete(session.id);
  }

  /** The session of a request, which may be its first one; null: it is not counted. */
  find(origin: SessionOrigin, at: number): Session | null {
    if (!this.areCounted) return null;
    const id = countedSession(origin, at);
    const known = this.#sessions.get(id);
    if (known !== undefined) return known;
    return this.#limits === null ? null : this.#begin(id, at);
  }

  #begin(id: string, at: number): Session {
    if (this.#sessions.size >= MAX_SESSIONS) this.#dropIdle(at);
    return this.#findOrAdd(this.#sessions.size < MAX_SESSIONS ? id : sharedSession(at, OVERFLOW), at);
  }

  #findOrAdd(id: string, at: number): Session {
    const known = this.#sessions.get(id);
    if (known !== undefined) return known;
    const session: Session = {
      id,
      requests: 0,
      tokens: 0,
      spend: 0,
      last: at,
      inFlight: 0,
      extra: { requests: 0, tokens: 0, spend: 0 },
      isStopped: false,
      isFull: false,
    };
    this.#sessions.set(id, session);
    return session;
  }

  /** null: there is none with this id. */
  get(id: string | null): Session | null {
    return id === null ? null : (this.#sessions.get(id) ?? null);
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

  /** A correction of a request that was admitted at this time. A session that was forgotten is not counted again. */
  correct(origin: SessionOrigin, at: number, counted: Pick<Counted, "tokens" | "spend">): void {
    const session = this.get(countedSession(origin, at)) ?? this.get(sharedSession(at, OVERFLOW));
    if (session !== null) this.add(session, counted);
  }

  /** The owner stops a session, or allows it again. */
  stop(id: string, isStopped: boolean, at: number): void {
    if (isStopped) this.#findOrAdd(id, at).isStopped = true;
    else if (this.#limits === null) this.#sessions.delete(id);
    else {
      const session = this.get(id);
      if (session !== null) session.isStopped = false;
    }
  }

  /** The owner gives a session more. An amount of 0 takes back everything given for this limit. */
  lift(id: string, kind: Kind, amount: number, at: number): void {
    const session = this.#findOrAdd(id, at);
    session.extra[kind] = amount === 0 ? 0 : session.extra[kind] + amount;
    session.isFull = false;
  }

  /** Every session that is counted or stopped. */
  list(): Iterable<Session> {
    return this.#sessions.values();
  }

  carry(at: number): CarriedSession[] {
    this.#droppedAt = Number.NEGATIVE_INFINITY;
    this.#dropIdle(at);
    const carried: CarriedSession[] = [];
    for (const session of this.#sessions.values()) {
      const { isStopped, isFull, inFlight, ...rest } = session;
      if (!isUntouched(session)) carried.push({ ...rest, stopped: isStopped, full: isFull });
    }
    return carried;
  }

  /** Replaces everything that is known. */
  restore(carried: readonly CarriedSession[]): void {
    this.#sessions.clear();
    for (const { stopped, full, extra, ...session } of carried)
      this.#sessions.set(session.id, {
        ...session,
        inFlight: 0,
        extra: { ...extra },
        isStopped: stopped,
        isFull: full,
      });
  }

  /** At most once a minute: with 10,000 live sessions, each new id would search all of them for nothing. */
  #dropIdle(at: number): void {
    if (Math.abs(at - this.#droppedAt) < MINUTE_MS) return;
    this.#droppedAt = at;
    for (const session of this.#sessions.values()) {
      if (at - session.last < IDLE_MS || session.inFlight > 0 || session.isStopped) continue;
      // The id of a day that is over does not come again.
      if (!session.isFull || session.id.includes("/")) this.#sessions.delete(session.id);
    }
  }
}

/** Nothing of it needs to be known at the next start. */
function isUntouched({ requests, tokens, spend, extra, isStopped, isFull }: Session): boolean {
  const given = extra.requests + extra.tokens + extra.spend;
  return requests + tokens + spend + given === 0 && !isStopped && !isFull;
}
