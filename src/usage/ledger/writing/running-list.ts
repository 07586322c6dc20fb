import type { RunningRecords } from "./book.ts";
import type { Waiter } from "./waiting.ts";

/**
 * Every record that is open, or closed but not in the log, in the order in which they began. In lists, through which each is
 * looked for: few run at a time, and a Map through which everything passes keeps it longer than anybody needs it (see
 * UnderWay).
 */
export class RunningList implements RunningRecords {
  readonly #open: Waiter[] = [];
  /** What completes them is on its way. */
  #ending: Waiter[] = [];

  add(waiter: Waiter): void {
    this.#open.push(waiter);
  }

  has(id: string): boolean {
    return this.find(id) !== null;
  }

  find(id: string): Waiter | null {
    const isIt = ({ opening }: Waiter) => opening.id === id;
    return this.#ending.find(isIt) ?? this.#open.find(isIt) ?? null;
  }

  /** Whether it is open, and to be completed. */
  isOpen(id: string): boolean {
    return this.#placeOf(id) !== -1;
  }

  /** Takes the one that is completed now; null: it is none that is open. */
  end(id: string): Waiter | null {
    const open = this.#open;
    const at = this.#placeOf(id);
    const waiter = open[at];
    if (waiter === undefined) return null;
    // Not by splice, which makes a list of what it takes out.
    for (let next = at + 1; next < open.length; next += 1) open[next - 1] = open[next] as Waiter;
    open.pop();
    this.#ending.push(waiter);
    return waiter;
  }

  values(): Waiter[] {
    return [...this.#ending, ...this.#open];
  }

  /** Lets go of all of which nothing more is to be written. */
  prune(): void {
    this.#ending = this.#ending.filter(({ over }) => !over);
    keepRunning(this.#open);
  }

  #placeOf(id: string): number {
    const open = this.#open;
    for (let at = 0; at < open.length; at += 1) if (open[at]?.opening.id === id) return at;
    return -1;
  }
}

/** In place: the list is as old as the process, and what it leads to is kept as long as it. */
function keepRunning(open: Waiter[]): void {
  let kept = 0;
  for (const waiter of open) {
    if (waiter.over) continue;
    open[kept] = waiter;
    kept += 1;
  }
  open.length = kept;
}
