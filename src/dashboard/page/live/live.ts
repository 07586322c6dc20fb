import type { Events, Now, ShownRecord } from "../../api.ts";
import type { Client } from "./client.ts";
import { createEventReader, type StreamEvent } from "./event-stream.ts";
import { Failed } from "./failed.ts";
import { createMissed } from "./missed.ts";
import type { Session } from "./session.ts";

export type Link =
  | { readonly state: "opening" }
  | { readonly state: "live" }
  /** keybearer does not answer; the page tries again and again. */
  | { readonly state: "gone"; readonly since: number }
  /** The daemon refuses with this text. It is tried again too. */
  | { readonly state: "refused"; readonly words: string }
  /** Asking again is of no use: a new code is needed. `words`: the daemon's own, where it was not the code's fault. */
  | {
      readonly state: "no-session";
      readonly why: "never" | "over" | "code-refused";
      readonly words: string | null;
    };

/** Nothing new arrives, for a reason that the page shows. */
export function isStopped({ state }: Link): boolean {
  return state === "gone" || state === "refused";
}

export interface LiveState {
  readonly link: Link;
  /** The last that was heard, also while the daemon is gone. */
  readonly now: Now | null;
}

/** What the daemon does this moment, kept up to date while the page is visible. */
export interface Live {
  state(): LiveState;
  subscribe(listener: () => void): () => void;
  /** Each request that is over. */
  onRecord(listener: (record: ShownRecord) => void): () => void;
  /** Some finished requests may be missing, so earlier responses must be fetched again. */
  onMissed(listener: () => void): () => void;
  /** Again and again, but only while the page is visible and the daemon is there: every request keeps its port open. */
  every(ms: number, work: () => void): () => void;
  /** With a one-time code, or with the session there is. @param said why this browser got none by its bookmark */
  open(code: string | null, said?: string | null): Promise<void>;
  /** A hidden page closes its stream, because an open one keeps the dashboard's port open. */
  look(visible: boolean): void;
  /** Something was changed from this page, so what it shows must be fetched again. */
  changed(): void;
  /** An answer elsewhere said that the session is over. */
  sessionOver(): void;
}

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 4000;
/** Comment lines come every 15 s: after this much silence the connection is dead, as in a laptop's sleep. */
const SILENCE_MS = 40_000;
const CODE_MS = 60_000;
/** Long enough for a short visit to another tab. */
const UNSEEN_MS = 60_000;

export interface LiveDeps {
  readonly client: Client;
  readonly session: Session;
  readonly now: () => number;
}

export function createLive(deps: LiveDeps): Live {
  const { client, session, now } = deps;
  let state: LiveState = { link: { state: "opening" }, now: null };
  let current: AbortController | null = null;
  let looked = true;
  let unseen: ReturnType<typeof setTimeout> | undefined;
  const listeners = new Set<() => void>();
  const records = new Set<(record: ShownRecord) => void>();
  const missed = createMissed();

  const tell = (next: Partial<LiveState>) => {
    state = { ...state, ...next };
    for (const listener of listeners) listener();
  };
  const take = ({ event, data }: StreamEvent) => {
    if (event === "now") {
      const isBack = state.now !== null && state.link.state !== "live";
      tell({ now: JSON.parse(data) as Events["now"], link: { state: "live" } });
      if (isBack) missed.tell();
    }
    if (event === "lost") missed.tellSoon();
    if (event !== "record") return;
    const record = JSON.parse(data) as Events["record"];
    for (const listener of records) listener(record);
  };
  const letGo = () => {
    current?.abort();
    current = null;
    if (state.link.state === "live") tell({ link: { state: "opening" } });
  };
  const noSession = (why: "never" | "over" | "code-refused", words: string | null = null) => {
    letGo();
    session.forget();
    tell({ link: { state: "no-session", why, words } });
  };
  const notLive = (error: unknown) => {
    const link = linkAfter(error, now());
    // How long it is gone is counted from the first time.
    if (link.state !== state.link.state || link.state === "refused") tell({ link });
  };

  const follow = async () => {
    letGo();
    const own = new AbortController();
    current = own;
    for (let wait = FIRST_RETRY_MS; current === own; wait = Math.min(wait * 2, LAST_RETRY_MS)) {
      const error = await readAll(client, own.signal, take).catch((error: unknown) => error);
      if (current !== own) return;
      if (error instanceof Failed && error.kind === "session") return noSession("over");
      if (state.link.state === "live") wait = FIRST_RETRY_MS;
      notLive(error);
      await pause(wait, own.signal);
    }
  };
  const look = (visible: boolean) => {
    looked = visible;
    clearTimeout(unseen);
    if (state.link.state === "no-session") return;
    if (!visible) unseen = setTimeout(letGo, UNSEEN_MS);
    else if (current === null && session.token() !== null) void follow();
  };

  return {
    state: () => state,
    subscribe: (listener) => added(listeners, listener),
    onRecord: (listener) => added(records, listener),
    onMissed: missed.on,
    every: (ms, work) => repeated(ms, () => looked && state.link.state === "live" && work()),
    async open(code, said = null) {
      letGo();
      const words = code === null ? null : await trade(code, deps, notLive);
      if (session.token() === null) return noSession(code === null ? "never" : "code-refused", words ?? said);
      void follow();
    },
    look,
    changed: missed.tell,
    sessionOver: () => noSession("over"),
  };
}

/** What a stream that ended, or could not be had, says about the other side. */
function linkAfter(error: unknown, now: number): Link {
  return error instanceof Failed && error.kind === "refused"
    ? { state: "refused", words: error.message }
    : { state: "gone", since: now };
}

/**
 * Tried for as long as a code may be good: the daemon can be slow to open its port. Answers what the daemon said where it
 * was not the code that it refused. A code that was used before, by a reload or by another tab, is no reason to end a
 * session that holds.
 */
async function trade(
  code: string,
  { client, session, now }: LiveDeps,
  notLive: (error: unknown) => void,
): Promise<string | null> {
  for (const until = now() + CODE_MS; now() < until; await pause(LAST_RETRY_MS)) {
    try {
      session.keep((await client.trade(code)).token);
      return null;
    } catch (error) {
      if (error instanceof Failed && error.kind !== "gone")
        return error.kind === "refused" ? error.message : null;
      notLive(error);
    }
  }
  return null;
}

/** Ends when the stream does, and throws when it breaks or falls silent. */
async function readAll(
  client: Client,
  signal: AbortSignal,
  take: (event: StreamEvent) => void,
): Promise<void> {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const stream = await client.events(AbortSignal.any([signal, silence.signal]));
    const read = createEventReader();
    const decoder = new TextDecoder();
    const reader = stream.getReader();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      for (const event of read(decoder.decode(piece.value, { stream: true }))) take(event);
    }
  } finally {
    clearTimeout(timer);
  }
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      // A page may try for days.
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });
}

function repeated(ms: number, work: () => unknown): () => void {
  const timer = setInterval(work, ms);
  return () => clearInterval(timer);
}

function added<T>(set: Set<T>, one: T): () => void {
  set.add(one);
  return () => set.delete(one);
}
