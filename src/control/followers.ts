import type { ServerResponse } from "node:http";
import { HttpError } from "../core/errors.ts";

const MAX_FOLLOWERS = 16;
/** Bytes that wait for one follower: a few hundred records. */
const MAX_WAITING = 256 * 1024;

interface Follower {
  readonly response: ServerResponse;
  lost: number;
  /** The newest state, while it does not fit; null: it was sent. */
  state: string | null;
}

/** Those who read JSON lines as they come. One that reads slowly costs neither memory nor requests. */
export class Followers {
  readonly #followers = new Set<Follower>();

  get size(): number {
    return this.#followers.size;
  }

  send(value: object): void {
    if (this.#followers.size === 0) return;
    const line = formatLine(value);
    for (const follower of this.#followers) {
      if (fits(follower, line)) {
        reportLost(follower);
        follower.response.write(line);
      } else follower.lost += 1;
    }
  }

  /** What replaces the one before: a slow follower gets the newest, once it reads again. */
  sendState(value: object): void {
    const line = formatLine(value);
    for (const follower of this.#followers) {
      follower.state = line;
      if (fits(follower, line)) catchUp(follower);
    }
  }

  /** Answers with one JSON line per value, until either side ends. Throws when there are too many followers already. */
  follow(response: ServerResponse): void {
    if (this.#followers.size >= MAX_FOLLOWERS)
      throw new HttpError(
        429,
        `${MAX_FOLLOWERS} others are following already: end one of them, then try again`,
        "too-many-followers",
      );
    const follower: Follower = { response, lost: 0, state: null };
    this.#followers.add(follower);
    response.on("close", () => this.#followers.delete(follower));
    // A follower that went away while a line was being written is not a failure.
    response.on("error", () => {});
    // Even if nothing follows.
    response.on("drain", () => catchUp(follower));
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.write(formatLine({ following: true }));
  }
}

/** With little buffered, a line of any size is sent. */
function fits({ response }: Follower, line: string): boolean {
  return !response.writableNeedDrain || response.writableLength + line.length <= MAX_WAITING;
}

function catchUp(follower: Follower): void {
  reportLost(follower);
  const { state } = follower;
  follower.state = null;
  if (state !== null) follower.response.write(state);
}

function reportLost(follower: Follower): void {
  const { lost } = follower;
  follower.lost = 0;
  if (lost > 0) follower.response.write(formatLine({ lost }));
}

function formatLine(line: object): string {
  return `${JSON.stringify(line)}\n`;
}
