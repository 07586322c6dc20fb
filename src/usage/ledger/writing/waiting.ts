import type { Opening } from "../../record.ts";
import type { Entry, Finished, Opened } from "./book.ts";

/** An opening, whoever waits for it to be on disk, and then the record that runs. */
export class Waiter implements Opened {
  readonly kind = "open";
  readonly opening: Opening;
  /** Until when it is worth trying, on the clock that only goes forward. */
  readonly deadline: number;
  /** Told once: whether it was written. */
  told: ((written: boolean) => void) | null = null;
  onDisk = false;
  /** What completes it is on its way. */
  ending = false;

  constructor(opening: Opening, deadline: number) {
    this.opening = opening;
    this.deadline = deadline;
  }

  /** Only the first time counts. */
  tell(written: boolean): void {
    const told = this.told;
    if (told === null) return;
    this.told = null;
    this.onDisk = written;
    told(written);
  }
}

const MOST_RECORDS = 1000;
const MOST_BYTES = 4 * 1024 * 1024;
/** What a record weighs in memory besides its texts. */
const RECORD_BYTES = 500;

/** What is to be written, in order. Unbounded for a few milliseconds, bounded while the disk says no. */
export class Waiting {
  #openings: Waiter[] = [];
  #finished: Finished[] = [];

  get size(): number {
    return this.#openings.length + this.#finished.length;
  }

  get openings(): readonly Waiter[] {
    return this.#openings;
  }

  get finished(): readonly Finished[] {
    return this.#finished;
  }

  open(waiter: Waiter): void {
    this.#openings.push(waiter);
  }

  finish(record: Finished): void {
    this.#finished.push(record);
  }

  /** Takes the oldest out: they are written. */
  opened(count: number): void {
    this.#openings = count === this.#openings.length ? [] : this.#openings.slice(count);
  }

  completed(count: number): void {
    this.#finished = count === this.#finished.length ? [] : this.#finished.slice(count);
  }

  /** Takes out what is given up. */
  giveUp(which: (waiter: Waiter) => boolean): Waiter[] {
    const given = this.#openings.filter(which);
    if (given.length > 0) this.#openings = this.#openings.filter((waiter) => !which(waiter));
    return given;
  }

  /** Takes out every finished record. */
  drop(): Finished[] {
    const dropped = this.#finished;
    this.#finished = [];
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
    return [...leaving];
  }
}

function weightOf(entry: Entry): number {
  const { opening } = entry;
  let bytes = RECORD_BYTES + 2 * (opening.endpoint.length + (opening.model?.length ?? 0));
  if (entry.kind === "open") return bytes;
  bytes += 2 * (entry.closing.model?.length ?? 0) + 2 * (entry.closing.model_answered?.length ?? 0);
  for (const [name, id] of Object.entries(entry.closing.gateway_ids)) bytes += 2 * (name.length + id.length);
  return bytes;
}
