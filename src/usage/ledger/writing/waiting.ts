import type { Entry } from "./book.ts";

/** An entry, and whoever waits for it to be on disk. */
export interface Item {
  readonly entry: Entry;
  /** Told once: whether it was written. */
  readonly told: ((written: boolean) => void) | null;
  /** Until when it is worth trying, on the clock that only goes forward. */
  readonly deadline: number;
}

/** What is to be written, in order. Unbounded for a turn of the event loop, bounded while the disk says no. */
export interface Waiting {
  readonly size: number;
  /** Records that wait, openings apart. */
  readonly records: number;
  push(item: Item): void;
  /** All that wait now; what comes later is not among them. */
  items(): readonly Item[];
  /** Takes out what is written. */
  remove(written: readonly Item[]): void;
  /** Takes out what is given up. */
  drop(which: (item: Item) => boolean): Item[];
  /**
   * Holds it to its bounds and answers what had to go: refusals before anything that was sent to a gateway, the oldest
   * first.
   */
  squeeze(): Item[];
}

const MOST_RECORDS = 1000;
const MOST_BYTES = 4 * 1024 * 1024;
/** What a record weighs in memory besides its texts. */
const RECORD_BYTES = 500;

export function createWaiting(): Waiting {
  let items: Item[] = [];
  let given = false;

  const isRecord = ({ entry }: Item) => entry.kind !== "open";
  const records = () => items.reduce((count, item) => count + (isRecord(item) ? 1 : 0), 0);

  function drop(which: (item: Item) => boolean): Item[] {
    const dropped = items.filter(which);
    if (dropped.length > 0) items = items.filter((item) => !which(item));
    return dropped;
  }

  return {
    get size() {
      return items.length;
    },
    get records() {
      return records();
    },
    push(item) {
      // Whoever has been given the items goes on with those it was given.
      if (given) items = [...items];
      given = false;
      items.push(item);
    },
    items() {
      given = true;
      return items;
    },
    remove(written) {
      if (written === items) {
        items = [];
        given = false;
        return;
      }
      const gone = new Set(written);
      drop((item) => gone.has(item));
    },
    drop,
    squeeze() {
      let count = records();
      let bytes = items.reduce((sum, item) => sum + weightOf(item.entry), 0);
      if (count <= MOST_RECORDS && bytes <= MOST_BYTES) return [];
      const leaving = new Set<Item>();
      const byWorth = [
        ...items.filter(({ entry }) => entry.kind === "add"),
        ...items.filter(({ entry }) => entry.kind === "close"),
      ];
      for (const item of byWorth) {
        if (count <= MOST_RECORDS && bytes <= MOST_BYTES) break;
        leaving.add(item);
        count -= 1;
        bytes -= weightOf(item.entry);
      }
      return drop((item) => leaving.has(item));
    },
  };
}

function weightOf(entry: Entry): number {
  const { opening } = entry;
  let bytes = RECORD_BYTES + 2 * (opening.endpoint.length + (opening.model?.length ?? 0));
  if (entry.kind === "open") return bytes;
  bytes += 2 * (entry.closing.model?.length ?? 0) + 2 * (entry.closing.model_answered?.length ?? 0);
  for (const [name, id] of Object.entries(entry.closing.gateway_ids)) bytes += 2 * (name.length + id.length);
  return bytes;
}
