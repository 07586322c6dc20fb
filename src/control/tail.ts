import type { ServerResponse } from "node:http";
import type { UsageRecord } from "../usage/record.ts";
import { Followers } from "./followers.ts";

/** One line that a follower reads. `following` is the first: from here on nothing is missed unnoticed. */
export type TailLine =
  | { readonly following: true }
  | { readonly record: UsageRecord }
  /** This many records were completed while the follower did not read. They are in the database. */
  | { readonly lost: number };

/** Passes every completed record on to followers. */
export class Tail {
  readonly #followers = new Followers();
  readonly #listeners = new Set<(record: UsageRecord) => void>();

  isFollowed(): boolean {
    return this.#followers.size > 0 || this.#listeners.size > 0;
  }

  notify(record: UsageRecord): void {
    for (const listener of this.#listeners) listener(record);
    if (this.#followers.size > 0) this.#followers.send({ record });
  }

  /** Answers with one JSON line per record, until either side ends. Throws when there are too many followers already. */
  follow(response: ServerResponse): void {
    this.#followers.follow(response);
  }

  /** The same for a part of the daemon itself. Returns how to unsubscribe. */
  subscribe(listener: (record: UsageRecord) => void): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }
}
