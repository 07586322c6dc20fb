import type { Events, Now, ShownRecord } from "../../api.ts";
import type { Client } from "./client.ts";
import { createEventReader, type StreamEvent } from "./event-stream.ts";
import { Failed } from "./failed.ts";
import type { Session } from "./session.ts";

export type Link =
  | { readonly state: "opening" }
  | { readonly state: "live" }
  /** Nobody answers; it is tried again and again. */
  | { readonly state: "gone"; readonly since: number }
  /** Asking again is of no use: a new code is needed. */
  | { readonly state: "no-session"; readonly why: "never" | "over" | "code-refused" };

export interface LiveState {
  readonly link: Link;
  /** The last that was heard, also while the daemon is gone. */
  readonly now: Now | null;
}

/** What the daemon does this moment, kept up to date for as long as somebody looks. */
export interface Live {
  state(): LiveState;
  subscribe(listener: () => void): () => void;
  /** Each request that is over. */
  onRecord(listener: (record: ShownRecord) => void): () => void;
  /** With a one-time code, or with the session there is. */
  open(code: string | null): Promise<void>;
  /** A page that nobody looks at lets go of its stream: an open one keeps the dashboard's port open. */
  look(visible: boolean): void;
  /** An answer elsewhere said that the session is over. */
  sessionOver(): void;
}

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 4000;
/** Comment lines come every 15 s: this much silence is a connection that died without a word, as in a laptop's sleep. */
const SILENCE_MS = 40_000;
const CODE_MS = 60_000;
/** Long enough that a glance at another tab costs nothing. */
const UNSEEN_MS = 60_000;

export interface LiveMeans {
  readonly client: Client;
  readonly session: Session;
  readonly now: () => number;
}

export function createLive({ client, session, now }: LiveMeans): Live {
  let state: LiveState = { link: { state: "opening" }, now: null };
  let current: AbortController | null = null;
  let unseen: ReturnType<typeof setTimeout> | undefined;
  const listeners = new Set<() => void>();
  const records = new Set<(record: ShownRecord) => void>();

  const tell = (next: Partial<LiveState>) => {
    state = { ...state, ...next };
    for (const listener of listeners) listener();
  };
  const take = ({ event, data }: StreamEvent) => {
    if (event === "now") tell({ now: JSON.parse(data) as Events["now"], link: { state: "live" } });
    if (event !== "record") return;
    const record = JSON.parse(data) as Events["record"];
    for (const listener of records) listener(record);
  };
  const letGo = () => {
    current?.abort();
    current = null;
  };
  const noSession = (why: "never" | "over" | "code-refused") => {
    letGo();
    session.forget();
    tell({ link: { state: "no-session", why } });
  };
  const gone = () => {
    if (state.link.state !== "gone") tell({ link: { state: "gone", since: now() } });
  };

  const follow = async () => {
    letGo();
    const own = new AbortController();
    current = own;
    for (let wait = FIRST_RETRY_MS; current === own; wait = Math.min(wait * 2, LAST_RETRY_MS)) {
      try {
        await readAll(client, own.signal, take);
        wait = FIRST_RETRY_MS;
      } catch (error) {
        if (current !== own) return;
        if (error instanceof Failed && error.kind === "session") return noSession("over");
      }
      if (current !== own) return;
      gone();
      await pause(wait, own.signal);
    }
  };

  return {
    state: () => state,
    subscribe: (listener) => added(listeners, listener),
    onRecord: (listener) => added(records, listener),
    async open(code) {
      letGo();
      if (code !== null && !(await trade(code, { client, session, now }, gone)))
        return noSession("code-refused");
      if (session.token() === null) return noSession("never");
      void follow();
    },
    look(visible) {
      clearTimeout(unseen);
      if (state.link.state === "no-session") return;
      if (!visible)
        unseen = setTimeout(() => {
          letGo();
          tell({ link: { state: "opening" } });
        }, UNSEEN_MS);
      else if (current === null && session.token() !== null) void follow();
    },
    sessionOver: () => noSession("over"),
  };
}

/** Tried for as long as a code may be good: the daemon can be slow to open its port. */
async function trade(code: string, means: LiveMeans, gone: () => void): Promise<boolean> {
  const { client, session, now } = means;
  for (const until = now() + CODE_MS; now() < until; await pause(LAST_RETRY_MS)) {
    try {
      session.keep((await client.trade(code)).token);
      return true;
    } catch (error) {
      // A code that was used before, by a reload or by another tab, is no reason to end a session that holds.
      if (error instanceof Failed && error.kind !== "gone") return session.token() !== null;
      gone();
    }
  }
  return session.token() !== null;
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

function added<T>(set: Set<T>, one: T): () => void {
  set.add(one);
  return () => set.delete(one);
}
