import { randomBytes } from "node:crypto";
import { asFields, countAt, parseObject } from "../../core/json.ts";
import { readOwnFile } from "../../core/own-file.ts";
import { writePrivateFile } from "../../core/private-file.ts";
import { MINUTE_MS } from "../../core/units.ts";

/** new-api lets an address ask 20 times in 20 minutes with keys; four are left to the owner, whose logins count too. */
const BUDGET_MS = 20 * MINUTE_MS;
const BUDGET_CALLS = 16;

/** How many of these calls may read rows. The others are for facts about keys, `doctor` and refused keys. */
const ROW_CALLS = 12;

/** Milliseconds between two syncs that read the rows of this many keys: 100 s for each. */
export function intervalFor(keys: number): number {
  return (keys * BUDGET_MS) / ROW_CALLS;
}

/** When calls were made, by an id of each. */
type Calls = Map<string, number>;

/**
 * The calls to each new-api that are made with a key. The mirror, `doctor` and the check of a refused key share them, also
 * across restarts and between the daemon and commands: they are in a file. A damaged file counts as empty.
 */
export class KeyCallBudgets {
  readonly #now: () => number;
  readonly #file: string | null;
  /** The calls of this process by origin, and those that were read. */
  readonly #calls = new Map<string, Calls>();
  #saved: Promise<void> = Promise.resolve();

  /** @param file null: the calls are known to this process alone */
  constructor(now: () => number, file: string | null) {
    this.#now = now;
    this.#file = file;
  }

  of(url: string): KeyCallBudget {
    return new KeyCallBudget(this, new URL(url).origin, this.#now);
  }

  /** The times that still count, oldest first. */
  times(origin: string): readonly number[] {
    this.#read();
    return [...(this.#calls.get(origin)?.values() ?? [])].toSorted((a, b) => a - b);
  }

  spend(origin: string): void {
    const calls = this.#calls.get(origin) ?? new Map();
    this.#calls.set(origin, calls.set(randomBytes(6).toString("hex"), this.#now()));
    this.#saved = this.#saved.then(() => this.#write());
  }

  /** Resolves when every call is in the file. */
  saved(): Promise<void> {
    return this.#saved;
  }

  /** Adds the calls of other processes, and drops those that no longer count. */
  #read(): void {
    const stored = parseObject(this.#file === null ? "" : readText(this.#file)) ?? {};
    for (const [origin, value] of Object.entries(stored)) {
      const calls = this.#calls.get(origin) ?? new Map();
      const found = asFields(value);
      for (const id of Object.keys(found)) {
        const at = countAt(found, id);
        if (at !== null && !calls.has(id)) calls.set(id, at);
      }
      this.#calls.set(origin, calls);
    }
    const now = this.#now();
    for (const [origin, calls] of this.#calls) {
      for (const [id, at] of calls) {
        // A time in the future is from before the clock was set back: count it from now.
        if (at > now) calls.set(id, now);
        else if (at <= now - BUDGET_MS) calls.delete(id);
      }
      if (calls.size === 0) this.#calls.delete(origin);
    }
  }

  async #write(): Promise<void> {
    if (this.#file === null) return;
    this.#read();
    const origins = [...this.#calls].map(([origin, calls]) => [origin, Object.fromEntries(calls)]);
    try {
      await writePrivateFile(this.#file, `${JSON.stringify(Object.fromEntries(origins))}\n`);
    } catch {
      // The disk is full or read-only. This process still counts its calls; the next call tries to write again.
    }
  }
}

/** The calls to one new-api: gateways of one origin share them. */
export class KeyCallBudget {
  readonly #budgets: KeyCallBudgets;
  readonly #origin: string;
  readonly #now: () => number;

  constructor(budgets: KeyCallBudgets, origin: string, now: () => number) {
    this.#budgets = budgets;
    this.#origin = origin;
    this.#now = now;
  }

  left(): number {
    return Math.max(0, BUDGET_CALLS - this.#budgets.times(this.#origin).length);
  }

  /** False: no call is left. */
  take(): boolean {
    if (this.left() === 0) return false;
    this.spend();
    return true;
  }

  /** Milliseconds until the next call is allowed; 0: now. */
  wait(): number {
    const blocking = this.#budgets.times(this.#origin).at(-BUDGET_CALLS);
    return blocking === undefined ? 0 : Math.max(0, blocking + BUDGET_MS - this.#now());
  }

  spend(): void {
    this.#budgets.spend(this.#origin);
  }
}

const MAX_BYTES = 1024 * 1024;

function readText(file: string): string {
  try {
    return readOwnFile(file, MAX_BYTES) ?? "";
  } catch {
    // It cannot be read.
    return "";
  }
}
