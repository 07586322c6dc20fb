import type { Clock } from "../../clock.ts";

/** new-api allows an address 20 calls with keys in 20 minutes; four are left to the owner, whose logins count too. */
const BUDGET_MS = 20 * 60_000;
const BUDGET_CALLS = 16;

/**
 * The calls to /api/usage/token/ and /api/log/token of one new-api, by everything that keybearer does: the mirror, doctor
 * and questions about a refused key. The mirror's cursor stores the times of the calls across restarts.
 */
export class KeyCallBudget {
  readonly #clock: Pick<Clock, "now">;
  #times: number[] = [];
  #isRestored = false;

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
  }

  /** The calls made before a restart are known. */
  get isRestored(): boolean {
    return this.#isRestored;
  }

  /** The times that still count, oldest first. */
  times(): readonly number[] {
    const now = this.#clock.now();
    // A time in the future is from before the clock was set back; count it from now.
    this.#times = this.#times
      .map((time) => Math.min(time, now))
      .filter((time) => time > now - BUDGET_MS)
      .sort((a, b) => a - b);
    return this.#times;
  }

  left(): number {
    return Math.max(0, BUDGET_CALLS - this.times().length);
  }

  /** Milliseconds until the next call is allowed. */
  wait(): number {
    const blocking = this.times().at(-BUDGET_CALLS);
    return blocking === undefined ? 0 : blocking + BUDGET_MS - this.#clock.now();
  }

  spend(): void {
    this.#times.push(this.#clock.now());
  }

  /** Adds stored times that are not known here yet. */
  restore(stored: readonly number[]): void {
    this.#isRestored = true;
    const known = [...this.times()];
    for (const time of stored) {
      const at = known.indexOf(time);
      if (at === -1) this.#times.push(time);
      else known.splice(at, 1);
    }
  }
}

/** One budget for each console: it counts by the caller's address, whichever gateway of config.yaml is meant. */
export class KeyCallBudgets {
  readonly #clock: Pick<Clock, "now">;
  readonly #budgets = new Map<string, KeyCallBudget>();

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
  }

  /** @param url any address of the console or its gateway */
  of(url: string): KeyCallBudget {
    const { origin } = new URL(url);
    const budget = this.#budgets.get(origin) ?? new KeyCallBudget(this.#clock);
    this.#budgets.set(origin, budget);
    return budget;
  }
}
