import type { RunningRecords } from "./book.ts";
import type { Waiter } from "./waiting.ts";

/**
 * Every record that is open, or closed but not in the log, in the order in which they began. A list, through which each is
 * looked for: few run at a time, and a Map through which everything passes keeps it longer than anybody needs it (see
 * UnderWay).
 */
export class RunningList implements RunningRecords {
  readonly #waiters: Waiter[] = [];

  add(waiter: Waiter): void {
    this.#waiters.push(waiter);
  }

  has(id: string): boolean {
    return this.find(id) !== null;
  }

  find(id: string): Waiter | null {
    const waiters = this.#waiters;
    for (let at = 0; at < waiters.length; at += 1) {
      const waiter = waiters[at];
      if (waiter?.opening.id === id) return waiter;
    }
    return null;
  }

  values(): readonly Waiter[] {
    return this.#waiters;
  }

  /** Lets go of all that are over by now. */
  prune(): void {
    const waiters = this.#waiters;
    let kept = 0;
    for (const waiter of waiters) {
      if (waiter.over) continue;
      waiters[kept] = waiter;
      kept += 1;
    }
    waiters.length = kept;
  }
}
