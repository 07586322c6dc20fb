import type { ServerResponse } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { Followers } from "../control/followers.ts";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { LiveLine, Now } from "./api.ts";
import type { NowView } from "./now.ts";

const TICK_MS = 250;
/** A page takes a longer silence for a broken connection. */
const MAX_SILENCE_MS = 15_000;
/** A page that reads nothing for this long is gone, although its connection is not. */
const MAX_STALL_MS = 60_000;

/** What open pages follow: the state, when it changes. */
export class LiveEvents {
  readonly #view: NowView;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #followers = new Followers();
  #isSending = false;
  /** The part of the last state that counts as a change. */
  #sent = "";
  #sentAt = 0;

  constructor(view: NowView, clock: Clock, log: Logger) {
    this.#view = view;
    this.#clock = clock;
    this.#log = log;
  }

  get followers(): number {
    return this.#followers.size;
  }

  /** Writes lines to the response until either side ends. Throws an HttpError. */
  follow(res: ServerResponse): void {
    this.#followers.follow(res);
    res.setTimeout(MAX_STALL_MS, () => res.destroy());
    // The next state goes to every page, so also to the new one.
    this.#sent = "";
    if (!this.#isSending) background(this.#sendStates(), this.#log, "sending pages what the dashboard shows");
  }

  /** As long as a page follows. */
  async #sendStates(): Promise<void> {
    this.#isSending = true;
    try {
      while (this.#followers.size > 0) {
        const now = await this.#view.read();
        const elapsed = this.#clock.elapsed();
        const steady = steadyPart(now);
        if (steady !== this.#sent || elapsed - this.#sentAt >= MAX_SILENCE_MS) {
          this.#sent = steady;
          this.#sentAt = elapsed;
          this.#followers.sendState({ now } satisfies LiveLine);
        }
        await pause(TICK_MS, undefined, { ref: false });
      }
    } finally {
      this.#isSending = false;
    }
  }
}

/** Without the time, the uptime and the memory, which change all the time. */
function steadyPart({ at: _, status: { uptime_s: __, machine: ___, ...status }, ...rest }: Now): string {
  return JSON.stringify({ ...rest, status });
}
