/** Seconds to wait; 0: there was room, and it is taken. */
export type RateLimit = (now: number) => number;

/** A window that begins on the clock, whoever asks when. */
export function fixedWindow(most: number, seconds: number): RateLimit {
  let begun = Number.NaN;
  let taken = 0;
  return (now) => {
    const window = Math.floor(now / 1000 / seconds);
    if (window !== begun) {
      begun = window;
      taken = 0;
    }
    if (taken >= most) return Math.max(1, Math.ceil((window + 1) * seconds - now / 1000));
    taken += 1;
    return 0;
  };
}

/** The last so many seconds, at every moment. */
export function slidingWindow(most: number, seconds: number): RateLimit {
  const taken: number[] = [];
  return (now) => {
    while (taken[0] !== undefined && taken[0] <= now - seconds * 1000) taken.shift();
    const oldest = taken[0];
    if (taken.length >= most && oldest !== undefined) {
      return Math.max(1, Math.ceil((oldest + seconds * 1000 - now) / 1000));
    }
    taken.push(now);
    return 0;
  };
}

export const noLimit: RateLimit = () => 0;
