/** new-api lets an address ask 20 times in 20 minutes with keys; four are left to the owner, whose logins count too. */
const BUDGET_MS = 20 * 60_000;
const BUDGET_CALLS = 16;

/**
 * Calls to one new-api that are made with a key. The mirror, `doctor` and the check of a refused key share it. Counts across
 * restarts: the mirror's cursor stores the times, and the mirror spends nothing until it was read.
 */
export class KeyCallBudget {
  readonly #now: () => number;
  #isRestored = false;
  #times: number[] = [];

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Adds the calls of an earlier run. Later ones are known. */
  restore(stored: readonly number[]): void {
    if (this.#isRestored) return;
    this.#isRestored = true;
    this.#times.push(...stored);
  }

  /** The times that still count, oldest first. */
  times(): readonly number[] {
    const now = this.#now();
    // A time in the future is from before the clock was set back: count it from now.
    const past = this.#times.map((time) => Math.min(time, now));
    this.#times = past.filter((time) => time > now - BUDGET_MS).toSorted((a, b) => a - b);
    return this.#times;
  }

  /** How many calls the mirror may make now. */
  left(): number {
    return this.#isRestored ? Math.max(0, BUDGET_CALLS - this.times().length) : 0;
  }

  /** Takes one call, also where no mirror reads this console. False: none is left. */
  take(): boolean {
    if (this.times().length >= BUDGET_CALLS) return false;
    this.spend();
    return true;
  }

  /** Milliseconds until the next call is allowed. */
  wait(): number {
    const blocking = this.times().at(-BUDGET_CALLS);
    return blocking === undefined ? 0 : blocking + BUDGET_MS - this.#now();
  }

  spend(): void {
    this.#times.push(this.#now());
  }
}

/** One budget for each origin: gateways of one origin share it. */
export class KeyCallBudgets {
  readonly #now: () => number;
  readonly #budgets = new Map<string, KeyCallBudget>();

  constructor(now: () => number) {
    this.#now = now;
  }

  of(url: string): KeyCallBudget {
    const { origin } = new URL(url);
    const budget = this.#budgets.get(origin) ?? new KeyCallBudget(this.#now);
    this.#budgets.set(origin, budget);
    return budget;
  }
}
