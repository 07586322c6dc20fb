import type { ServerResponse } from "node:http";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import { HttpError } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import type { Events, Now, ShownRecord } from "./api.ts";
import { PAGE_HEADERS } from "./http.ts";
import type { NowView } from "./now.ts";

const MAX_FOLLOWERS = 8;
/** What a slow page does not read beyond this is dropped, and the page is notified. */
const MAX_BUFFERED_BYTES = 256 * 1024;
const TICK_MS = 250;
const HEARTBEAT_MS = 15_000;
/** A page that reads nothing for this long is gone, although its connection is not. */
const MAX_STALL_MS = 60_000;

interface Follower {
  readonly res: ServerResponse;
  /** Dropped records. */
  lost: number;
  /** The latest `now` event was dropped. */
  behind: boolean;
  stalledSince: number | null;
}

/** The event streams of the open pages. */
export class LiveEvents {
  readonly #view: NowView;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #followers = new Set<Follower>();
  #timer: NodeJS.Timeout | null = null;
  #ticks = 0;
  #isReading = false;
  /** The last `now` event, and the part of it that counts as a change. */
  #latest = "";
  #latestState = "";

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
      throw new HttpError(429, `${MAX_FOLLOWERS} pages are open already: close one of them, then try again`);
    }
    const follower: Follower = { res, lost: 0, behind: false, stalledSince: null };
    this.#followers.add(follower);
    res.once("close", () => this.#remove(follower));
    // A page may go away while an event is being sent.
    res.on("error", () => {});
    res.on("drain", () => {
      follower.stalledSince = null;
      writeLost(follower);
      if (follower.behind) res.write(this.#latest);
      follower.behind = false;
    });
    res.writeHead(200, { ...PAGE_HEADERS, "content-type": "text/event-stream; charset=utf-8" });
    res.write(eventText("now", await this.#view.read()));
    if (this.#followers.has(follower)) this.#timer ??= setInterval(() => this.#tick(), TICK_MS);
  }

  recordFinished(record: ShownRecord): void {
    if (this.#followers.size === 0) return;
    const event = eventText("record", record);
    for (const follower of this.#followers) {
      if (fits(follower, event)) {
        writeLost(follower);
        follower.res.write(event);
      } else {
        follower.lost += 1;
      }
    }
  }

  #tick(): void {
    this.#ticks += 1;
    const isHeartbeat = (this.#ticks * TICK_MS) % HEARTBEAT_MS === 0;
    for (const follower of this.#followers) {
      if (isHeartbeat) follower.res.write(": heartbeat\n\n");
      destroyIfStalled(follower, this.#clock.elapsed());
    }
    // If a read takes longer than a tick, the next tick sends its changes.
    if (!this.#isReading) background(this.#sendNow(), this.#log, "reading what the dashboard shows");
  }

  async #sendNow(): Promise<void> {
    this.#isReading = true;
    try {
      const now = await this.#view.read();
      const state = changingState(now);
      if (state === this.#latestState) return;
      this.#latestState = state;
      this.#latest = eventText("now", now);
      // A slow page gets only the newest event, as soon as it fits: each one is complete.
      for (const follower of this.#followers) {
        follower.behind = !fits(follower, this.#latest);
        if (!follower.behind) follower.res.write(this.#latest);
      }
    } finally {
      this.#isReading = false;
    }
  }

  #remove(follower: Follower): void {
    this.#followers.delete(follower);
    if (this.#followers.size > 0 || this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }
}

/** Without the time, the uptime and the memory, which change all the time. */
function changingState({ at: _, status, ...rest }: Now): string {
  const { uptime_s: __, machine: ___, ...steady } = status;
  return JSON.stringify({ ...rest, steady });
}

function eventText<Name extends keyof Events>(name: Name, data: Events[Name]): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** With nothing buffered, an event of any size is sent. */
function fits({ res }: Follower, event: string): boolean {
  return res.writableLength === 0 || res.writableLength + event.length <= MAX_BUFFERED_BYTES;
}

function writeLost(follower: Follower): void {
  if (follower.lost === 0) return;
  const count = follower.lost;
  follower.lost = 0;
  follower.res.write(eventText("lost", { count }));
}

function destroyIfStalled(follower: Follower, elapsed: number): void {
  if (!follower.res.writableNeedDrain) return;
  follower.stalledSince ??= elapsed;
  if (elapsed - follower.stalledSince > MAX_STALL_MS) follower.res.destroy();
}
