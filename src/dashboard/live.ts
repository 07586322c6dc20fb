import type { ServerResponse } from "node:http";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import { No, PAGE_HEADERS, TAKEN } from "./answer.ts";
import type { Events, Now, ShownRecord } from "./api.ts";

/** Everybody who looks right now. */
export interface Live {
  /** Answers with events until either side ends. */
  follow(res: ServerResponse): Promise<typeof TAKEN | No>;
  /** A request is over. */
  record(record: ShownRecord): void;
  readonly followers: number;
}

const MOST_FOLLOWERS = 8;
/** Bytes that wait for one reader. What comes beyond is left out, and it is told so. */
const MOST_WAITING = 256 * 1024;
const TICK_MS = 250;
const HEARTBEAT_MS = 15_000;
/** Whoever takes nothing for so long has gone, only its connection has not. */
const MOST_STANDSTILL_MS = 60_000;

interface Follower {
  readonly res: ServerResponse;
  lost: number;
  /** Has not been told what is so by now. */
  behind: boolean;
  stoodSince: number | null;
}

export function createLive(
  now: () => Promise<Now>,
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
): Live {
  const followers = new Set<Follower>();
  let timer: NodeJS.Timeout | null = null;
  let [busy, told, latest, ticks] = [false, "", "", 0];

  async function tick(): Promise<void> {
    ticks += 1;
    const ticker = (ticks * TICK_MS) % HEARTBEAT_MS === 0;
    for (const follower of followers) {
      if (ticker) follower.res.write(": still here\n\n");
      giveUpOn(follower, clock.elapsed());
    }
    // What takes longer than a tick is told by the next one.
    if (busy) return;
    busy = true;
    try {
      const seen = await now();
      const text = changing(seen);
      if (text === told) return;
      told = text;
      latest = eventOf("now", seen);
      // Whoever has no room gets the newest one as soon as there is some: each of them is whole.
      for (const follower of followers) {
        follower.behind = !hasRoom(follower, latest);
        if (!follower.behind) follower.res.write(latest);
      }
    } catch (error) {
      log.error({ err: error }, "the dashboard could not be told what runs");
    } finally {
      busy = false;
    }
  }

  function leave(follower: Follower): void {
    followers.delete(follower);
    if (followers.size > 0 || timer === null) return;
    clearInterval(timer);
    timer = null;
  }

  return {
    async follow(res) {
      if (followers.size >= MOST_FOLLOWERS)
        return new No(429, `${MOST_FOLLOWERS} pages are open already: close one of them, then try again`);
      const follower: Follower = { res, lost: 0, behind: false, stoodSince: null };
      followers.add(follower);
      res.once("close", () => leave(follower));
      // A page that went away while an event was on its way is no failure of ours.
      res.on("error", () => {});
      res.on("drain", () => {
        follower.stoodSince = null;
        tellLost(follower);
        if (follower.behind) res.write(latest);
        follower.behind = false;
      });
      res.writeHead(200, { ...PAGE_HEADERS, "content-type": "text/event-stream; charset=utf-8" });
      res.write(eventOf("now", await now()));
      if (followers.has(follower)) timer ??= setInterval(() => void tick(), TICK_MS);
      return TAKEN;
    },
    record(record) {
      if (followers.size === 0) return;
      const event = eventOf("record", record);
      for (const follower of followers) {
        if (!hasRoom(follower, event)) follower.lost += 1;
        else {
          tellLost(follower);
          follower.res.write(event);
        }
      }
    },
    get followers() {
      return followers.size;
    },
  };
}

/** Without what goes on by itself: time, uptime and memory are no news. */
function changing({ at: _, status, ...rest }: Now): string {
  const { uptime_s: __, machine: ___, ...steady } = status;
  return JSON.stringify({ ...rest, steady });
}

function eventOf<Name extends keyof Events>(name: Name, data: Events[Name]): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

function hasRoom({ res }: Follower, event: string): boolean {
  // The first event of a reader with nothing waiting goes out however long it is.
  return res.writableLength === 0 || res.writableLength + event.length <= MOST_WAITING;
}

function tellLost(follower: Follower): void {
  if (follower.lost === 0) return;
  const { lost } = follower;
  follower.lost = 0;
  follower.res.write(eventOf("lost", { count: lost }));
}

function giveUpOn(follower: Follower, elapsed: number): void {
  const { res } = follower;
  if (!res.writableNeedDrain) return;
  follower.stoodSince ??= elapsed;
  if (elapsed - follower.stoodSince > MOST_STANDSTILL_MS) res.destroy();
}
