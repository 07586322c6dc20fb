import type { Closing, Opening } from "../../record.ts";
import type { Entry, Finished, Poisoned, Running } from "./book.ts";
import { RunningList } from "./running-list.ts";

/** A record that runs, from when it is to be opened, and whoever waits for that. */
export class Waiter implements Running, Entry {
  readonly opening: Opening;
  /** Until when it is worth trying, on the clock that only goes forward. */
  readonly deadline: number;
  /** Told once: whether it was written. */
  told: ((written: boolean) => void) | null = null;
  inBook = false;
  /** It is on disk, though not in the log yet, and may have been sent: it is not given up any more. */
  noted = false;
  /** Where what completes it came before it was in the log. */
  closing: Closing | null = null;
  /** Nothing more is to be written of it. */
  over = false;

  constructor(opening: Opening, deadline: number) {
    this.opening = opening;
    this.deadline = deadline;
  }

  get kind(): "open" | "whole" {
    return this.closing === null ? "open" : "whole";
  }

  /** Only the first time counts. */
  tell(written: boolean): void {
    const told = this.told;
    this.told = null;
    told?.(written);
  }
}

const MOST_RECORDS = 1000;
const MOST_BYTES = 4 * 1024 * 1024;
/** What a record weighs in memory besides its texts. */
const RECORD_BYTES = 500;

/** What runs, and what is to be written, in order. Unbounded for a few milliseconds, bounded while the disk says no. */
export class Waiting {
  /** So that each could be written whole into another file. */
  readonly #running = new RunningList();
  /** What is not in the log yet, in the order in which it began. */
  #openings: Waiter[] = [];
  /** How many of those are over. */
  #ended = 0;
  #finished: Finished[] = [];

  get size(): number {
    return this.#openings.length + this.#finished.length;
  }

  /** How many are over. */
  get ended(): number {
    return this.#ended + this.#finished.length;
  }

  /** How many are not in the log yet. */
  get opened(): number {
    return this.#openings.length;
  }

  get running(): RunningList {
    return this.#running;
  }

  all(): Entry[] {
    return [...this.#openings, ...this.#finished];
  }

  open(waiter: Waiter): void {
    this.#running.add(waiter);
    this.#openings.push(waiter);
  }

  /** One of the openings is over. */
  end(waiter: Waiter, closing: Closing): void {
    waiter.closing = closing;
    this.#ended += 1;
  }

  finish(record: Finished): void {
    this.#finished.push(record);
  }

  /** All of them are written, less these. */
  written(poisoned: readonly Poisoned[]): void {
    const bad = new Set(poisoned.map(({ entry }) => entry));
    const openings = this.#openings;
    this.#openings = [];
    this.#ended = 0;
    for (const waiter of openings) this.#onWritten(waiter, !bad.has(waiter));
    this.#forget(this.#finished);
    this.#finished = [];
  }

  /** Nothing more is to be written of them. */
  #forget(entries: Iterable<Entry>): void {
    for (const { opening } of entries) {
      const waiter = this.#running.find(opening.id);
      if (waiter !== null) waiter.over = true;
    }
    this.#running.prune();
  }

  #onWritten(waiter: Waiter, written: boolean): void {
    waiter.inBook = written;
    // It may have been sent: what completes it is tried again, by itself.
    waiter.over = waiter.closing !== null || !(written || waiter.noted);
    if (!written) waiter.noted = false;
    waiter.tell(written);
  }

  /** Takes out what is given up, and says so to whoever waits for it. */
  giveUp(which: (waiter: Waiter) => boolean): void {
    const isGiven = (waiter: Waiter) => !waiter.noted && which(waiter);
    const given = this.#openings.filter(isGiven);
    if (given.length === 0) return;
    this.#openings = this.#openings.filter((waiter) => !isGiven(waiter));
    this.#forget(given);
    for (const waiter of given) waiter.tell(false);
  }

  /** Takes out everything that is over. */
  drop(): Entry[] {
    const dropped = [...this.#openings.filter(({ closing }) => closing !== null), ...this.#finished];
    this.#openings = this.#openings.filter(({ closing }) => closing === null);
    this.#ended = 0;
    this.#finished = [];
    this.#forget(dropped);
    return dropped;
  }

  /**
   * Holds it to its bounds and answers what had to go: refusals before anything that was sent to a gateway, the oldest
   * first.
   */
  squeeze(): Finished[] {
    let count = this.#finished.length;
    let bytes = 0;
    for (const entry of this.#openings) bytes += weightOf(entry);
    for (const entry of this.#finished) bytes += weightOf(entry);
    if (count <= MOST_RECORDS && bytes <= MOST_BYTES) return [];
    const leaving = new Set<Finished>();
    const byWorth = [
      ...this.#finished.filter(({ kind }) => kind === "add"),
      ...this.#finished.filter(({ kind }) => kind === "close"),
    ];
    for (const record of byWorth) {
      if (count <= MOST_RECORDS && bytes <= MOST_BYTES) break;
      leaving.add(record);
      count -= 1;
      bytes -= weightOf(record);
    }
    this.#finished = this.#finished.filter((record) => !leaving.has(record));
    this.#forget(leaving);
    return [...leaving];
  }
}

function weightOf({ opening, closing }: Entry): number {
  let bytes = RECORD_BYTES + 2 * (opening.endpoint.length + (opening.model?.length ?? 0));
  if (closing === null) return bytes;
  bytes += 2 * (closing.model?.length ?? 0) + 2 * (closing.model_answered?.length ?? 0);
  for (const [name, id] of Object.entries(closing.gateway_ids)) bytes += 2 * (name.length + id.length);
  return bytes;
}
