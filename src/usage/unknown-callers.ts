/**
 * Refusals of unknown callers are recorded, but not without end: a web page that asks in a loop must not fill
 * the disk. What is not recorded is counted.
 */
export interface UnknownCallers {
  /** Whether one more may be recorded at this time. */
  admit(now: number): boolean;
  /** How many were not. */
  readonly passedOver: number;
}

const MOST_A_MINUTE = 120;
const MINUTE = 60_000;

export function createUnknownCallers(): UnknownCallers {
  let minute = 0;
  let count = 0;
  let passedOver = 0;
  return {
    admit(now) {
      const current = Math.floor(now / MINUTE);
      if (current !== minute) {
        minute = current;
        count = 0;
      }
      count += 1;
      if (count <= MOST_A_MINUTE) return true;
      passedOver += 1;
      return false;
    },
    get passedOver() {
      return passedOver;
    },
  };
}
