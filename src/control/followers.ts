import type { ServerResponse } from "node:http";
import { HttpError } from "../core/errors.ts";

const MAX_FOLLOWERS = 16;
/** Bytes that wait for one follower: a few hundred records. */
const MAX_WAITING = 256 * 1024;

interface Follower {
  readonly response: ServerResponse;
  lost: number;
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
    for (const follower of this.#followers) send(follower, line);
  }

  /** Answers with one JSON line per value, until either side ends. Throws when there are too many followers already. */
  follow(response: ServerResponse): void {
    if (this.#followers.size >= MAX_FOLLOWERS)
      throw new HttpError(
        429,
        `${MAX_FOLLOWERS} others are following already: end one of them, then try again`,
      );
    const follower: Follower = { response, lost: 0 };
    this.#followers.add(follower);
    response.on("close", () => this.#followers.delete(follower));
    // A follower that went away while a line was being written is not a failure.
    response.on("error", () => {});
    // Report a loss even if nothing follows.
    response.on("drain", () => reportLost(follower));
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.write(formatLine({ following: true }));
  }
}

function send(follower: Follower, line: string): void {
  if (follower.response.writableLength + line.length > MAX_WAITING) {
    follower.lost += 1;
    return;
  }
  reportLost(follower);
  follower.response.write(line);
}

function reportLost(follower: Follower): void {
  const { lost } = follower;
  if (lost === 0) return;
  follower.lost = 0;
  follower.response.write(formatLine({ lost }));
}

function formatLine(line: object): string {
  return `${JSON.stringify(line)}\n`;
}
