import type { LiveLine, Now } from "../../api.ts";
import type { Stored } from "../stored.ts";
import { type Client, Failed, pause } from "./client.ts";

type Link =
  | { readonly state: "opening" }
  | { readonly state: "live" }
  /** keybearer does not answer; the page tries again and again. */
  | { readonly state: "gone"; readonly since: number }
  /** The daemon refuses with this text. It is tried again too. */
  | { readonly state: "refused"; readonly problem: string }
  /** Asking again is of no use: a new code is needed. `problem`: the daemon's, where it was not the code's fault. */
  | { readonly state: "no-session"; readonly kind: NoSession; readonly problem: string | null };

type NoSession = "never" | "over" | "code-refused";

export interface LiveState {
  readonly link: Link;
  /** The last that was heard, also while the daemon is gone. */
  readonly now: Now | null;
}

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 4000;
/** A line comes every 15 s: after this much silence the connection is dead, as in a laptop's sleep. */
const SILENCE_MS = 40_000;
/** Long enough for a short visit to another tab. */
const UNSEEN_MS = 60_000;

interface LiveDeps {
  readonly client: Client;
  /** Its token. */
  readonly session: Stored;
  readonly now: () => number;
}

/** What the daemon does this moment, kept up to date while the page is visible. */
export class Live {
  readonly #deps: LiveDeps;
  #state: LiveState = { link: { state: "opening" }, now: null };
  /** Ends the stream that is followed; null: none is. */
  #following: AbortController | null = null;
  #unseen: ReturnType<typeof setTimeout> | undefined;
  readonly #onState = new Set<() => void>();
  readonly #onMissed = new Set<() => void>();

  constructor(deps: LiveDeps) {
    this.#deps = deps;
  }

  state(): LiveState {
    return this.#state;
  }

  subscribe(listener: () => void): () => void {
    return added(this.#onState, listener);
  }

  /** The state was not followed for a while, so earlier responses must be fetched again. */
  onMissed(listener: () => void): () => void {
    return added(this.#onMissed, listener);
  }

  /** With a one-time code, or with the session there is. @param problem why this browser got none by its bookmark */
  async open(code: string | null, problem: string | null = null): Promise<void> {
    this.#stop();
    const refused = code === null ? null : await this.#trade(code);
    if (this.#deps.session.read() !== null) return void this.#follow();
    const { link } = this.#state;
    const before = link.state === "no-session" ? link.kind : "never";
    this.#endSession(code === null ? before : "code-refused", refused ?? problem);
  }

  /** A hidden page closes its stream, because an open one keeps the dashboard's port open. */
  setVisible(visible: boolean): void {
    clearTimeout(this.#unseen);
    if (this.#state.link.state === "no-session") return;
    if (!visible) this.#unseen = setTimeout(() => this.#stop(), UNSEEN_MS);
    else if (this.#following === null && this.#deps.session.read() !== null) void this.#follow();
  }

  /** Something was changed from this page, so what it shows must be fetched again. */
  changed(): void {
    for (const listener of this.#onMissed) listener();
  }

  /** An answer elsewhere said that the session is over. */
  sessionOver(): void {
    this.#endSession("over", null);
  }

  async #follow(): Promise<void> {
    this.#stop();
    const own = new AbortController();
    this.#following = own;
    for (let wait = FIRST_RETRY_MS; this.#following === own; wait = Math.min(wait * 2, LAST_RETRY_MS)) {
      const take = (line: LiveLine) => this.#take(line);
      const error = await readAll(this.#deps.client, own.signal, take).catch((error: unknown) => error);
      if (this.#following !== own) return;
      if (error instanceof Failed && error.kind === "session") return this.sessionOver();
      if (this.#state.link.state === "live") wait = FIRST_RETRY_MS;
      this.#noteFailure(error);
      await pause(wait);
    }
  }

  #take(line: LiveLine): void {
    if (!("now" in line)) return;
    const isBack = this.#state.now !== null && this.#state.link.state !== "live";
    this.#set({ now: line.now, link: { state: "live" } });
    if (isBack) this.changed();
  }

  /**
   * Returns what the daemon said where it was not the code that it refused. A code that was used before, by a reload or by
   * another tab, is no reason to end a session that holds.
   */
  async #trade(code: string): Promise<string | null> {
    try {
      this.#deps.session.write((await this.#deps.client.open({ code })).token);
      return null;
    } catch (error) {
      return error instanceof Failed && error.kind === "refused" ? error.message : null;
    }
  }

  #stop(): void {
    this.#following?.abort();
    this.#following = null;
    if (this.#state.link.state === "live") this.#set({ link: { state: "opening" } });
  }

  #endSession(kind: NoSession, problem: string | null): void {
    this.#stop();
    this.#deps.session.write(null);
    this.#set({ link: { state: "no-session", kind, problem } });
  }

  /** The stream ended, or could not be had. */
  #noteFailure(error: unknown): void {
    const isRefused = error instanceof Failed && error.kind === "refused";
    if (isRefused) this.#set({ link: { state: "refused", problem: error.message } });
    // How long it is gone is counted from the first time.
    else if (this.#state.link.state !== "gone")
      this.#set({ link: { state: "gone", since: this.#deps.now() } });
  }

  #set(next: Partial<LiveState>): void {
    this.#state = { ...this.#state, ...next };
    for (const listener of this.#onState) listener();
  }
}

/** Ends when the stream does, and throws when it breaks or falls silent. */
async function readAll(client: Client, signal: AbortSignal, take: (line: LiveLine) => void): Promise<void> {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const stream = await client.events(AbortSignal.any([signal, silence.signal]));
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      const lines = (rest + piece.value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) take(JSON.parse(line));
    }
  } finally {
    clearTimeout(timer);
  }
}

function added<T>(set: Set<T>, one: T): () => void {
  set.add(one);
  return () => set.delete(one);
}
