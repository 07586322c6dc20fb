import type { ServerResponse } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Events, Now, ShownRecord } from "./api.ts";
import { codedError, PAGE_HEADERS } from "./http.ts";
import type { NowView } from "./now.ts";

const MAX_FOLLOWERS = 8;
/** What a slow page does not read beyond this is dropped, and the page is notified. */
const MAX_BUFFERED_BYTES = 256 * 1024;
const TICK_MS = 250;
/** A page takes a longer silence for a broken connection. */
const MAX_SILENCE_MS = 15_000;
/** A page that reads nothing for this long is gone, although its connection is not. */
const MAX_STALL_MS = 60_000;

interface Follower {
  readonly res: ServerResponse;
  /** Dropped records. */
  lost: number;
  /** The part that counts as a change, of the state that it was sent last. */
  changing: string;
  sentAt: number;
}

/** The event streams of the open pages. */
export class LiveEvents {
  readonly #view: NowView;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #followers = new Set<Follower>();
  #isSending = false;

  constructor(view: NowView, clock: Clock, log: Logger) {
    this.#view = view;
    this.#clock = clock;
    this.#log = log;
  }

  get followers(): number {
    return this.#followers.size;
  }

  /** Writes events to the response until either side ends. */
  async follow(res: ServerResponse): Promise<void> {
    if (this.#followers.size >= MAX_FOLLOWERS) {
      throw codedError(
        429,
        "too-many-pages",
        `${MAX_FOLLOWERS} pages are open already: close one of them, then try again`,
      );
    }
    const follower: Follower = { res, lost: 0, changing: "", sentAt: this.#clock.elapsed() };
    this.#followers.add(follower);
    res.once("close", () => this.#followers.delete(follower));
    // A page may go away while an event is being sent.
    res.on("error", () => {});
    res.setTimeout(MAX_STALL_MS, () => res.destroy());
    res.writeHead(200, { ...PAGE_HEADERS, "content-type": "text/event-stream; charset=utf-8" });
    send(follower, stateOf(await this.#view.read()), this.#clock.elapsed());
    if (!this.#isSending) background(this.#sendStates(), this.#log, "sending pages what the dashboard shows");
  }

  recordFinished(record: ShownRecord): void {
    if (this.#followers.size === 0) return;
    const event = eventText("record", record);
    for (const follower of this.#followers) {
      if (fits(follower, event)) follower.res.write(event);
      else follower.lost += 1;
    }
  }

  /** As long as a page follows. */
  async #sendStates(): Promise<void> {
    this.#isSending = true;
    try {
      while (this.#followers.size > 0) {
        await pause(TICK_MS, undefined, { ref: false });
        const state = stateOf(await this.#view.read());
        for (const follower of this.#followers) send(follower, state, this.#clock.elapsed());
      }
    } finally {
      this.#isSending = false;
    }
  }
}

/** A page that was too slow gets only the newest state, as soon as that fits: each one is complete. */
function send(follower: Follower, { changing, event }: State, elapsed: number): void {
  const lost = eventText("lost", { count: follower.lost });
  if (follower.lost > 0 && fits(follower, lost)) {
    follower.res.write(lost);
    follower.lost = 0;
  }
  const isDue = changing !== follower.changing || elapsed - follower.sentAt >= MAX_SILENCE_MS;
  if (!isDue || !fits(follower, event)) return;
  follower.res.write(event);
  follower.changing = changing;
  follower.sentAt = elapsed;
}

interface State {
  /** Without the time, the uptime and the memory, which change all the time. */
  readonly changing: string;
  readonly event: string;
}

function stateOf(now: Now): State {
  const { at: _, status, ...rest } = now;
  const { uptime_s: __, machine: ___, ...steady } = status;
  return { changing: JSON.stringify({ ...rest, steady }), event: eventText("now", now) };
}

function eventText<Name extends keyof Events>(name: Name, data: Events[Name]): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** With nothing buffered, an event of any size is sent. */
function fits({ res }: Follower, event: string): boolean {
  return res.writableLength === 0 || res.writableLength + event.length <= MAX_BUFFERED_BYTES;
}
