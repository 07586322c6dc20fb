import type { ServerResponse } from "node:http";
import { HttpError } from "../core/errors.ts";
import type { UsageRecord } from "../usage/record.ts";

/** One line that a follower reads. `following` is the first: from here on nothing is missed unnoticed. */
export type TailLine =
  | { readonly following: true }
  | { readonly record: UsageRecord }
  /** This many records were completed while the follower did not read. They are in the database. */
  | { readonly lost: number };

const MAX_FOLLOWERS = 16;
/** Bytes that wait for one follower: a few hundred records. */
const MAX_WAITING = 256 * 1024;

interface Follower {
  readonly response: ServerResponse;
  lost: number;
}

/** Passes every completed record on to followers. A follower that reads slowly costs neither memory nor requests. */
export class Tail {
  readonly #followers = new Set<Follower>();
  readonly #listeners = new Set<(record: UsageRecord) => void>();

  isFollowed(): boolean {
    return this.#followers.size > 0 || this.#listeners.size > 0;
  }

  notify(record: UsageRecord): void {
    for (const listener of this.#listeners) listener(record);
    if (this.#followers.size === 0) return;
    const line = formatLine({ record });
    for (const follower of this.#followers) send(follower, line);
  }

  /** Answers with one JSON line per record, until either side ends. Throws when there are too many followers already. */
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
    // Report a loss even if no record follows.
    response.on("drain", () => reportLost(follower));
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.write(formatLine({ following: true }));
  }

  /** The same for a part of the daemon itself. Returns how to unsubscribe. */
  subscribe(listener: (record: UsageRecord) => void): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
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

function formatLine(line: TailLine): string {
  return `${JSON.stringify(line)}\n`;
}
