/** Questions that need only a key: 20 in 20 minutes are allowed to an address, all of them together. */
const WITHIN_MS = 20 * 60_000;
/** Four are left to the owner, whose logins count there too. */
const MOST = 16;

/** Counts over a restart too: what the mark remembers is taken in at the next walk. */
export interface CallBudget {
  /** How many questions may be asked now. */
  room(): number;
  /** Milliseconds until a question may be asked again. */
  wait(): number;
  spend(): void;
  /** The times that still count, for the mark. */
  times(): readonly number[];
  take(times: readonly number[]): void;
  /** What the mark remembers was taken in. */
  isKnown(): boolean;
}

export function createBudget(now: () => number): CallBudget {
  let spent: number[] = [];
  let known = false;
  const counting = () => {
    const at = now();
    // A time to come is one from before the clock was set back: it cannot be told when it stops to count.
    spent = spent.map((time) => Math.min(time, at)).filter((time) => time > at - WITHIN_MS);
    return spent;
  };
  return {
    room: () => Math.max(0, MOST - counting().length),
    wait() {
      const full = counting()
        .toSorted((a, b) => a - b)
        .at(-MOST);
      return full === undefined ? 0 : full + WITHIN_MS - now();
    },
    spend: () => void spent.push(now()),
    times: () => [...counting()],
    isKnown: () => known,
    take(times) {
      known = true;
      const own = [...counting()];
      for (const time of times) {
        const at = own.indexOf(time);
        if (at === -1) spent.push(time);
        else own.splice(at, 1);
      }
    },
  };
}
