/** How far a console's clock is ahead of ours, by what its answers say. */
export interface Skew {
  note(milliseconds: number): void;
  /** null: it never answered. */
  known(): number | null;
}

const REMEMBERED = 9;
/** A Date tells whole seconds, and answers take their time: less than this is no difference. */
const NOTHING_MS = 1500;

export function createSkew(): Skew {
  let last: readonly number[] = [];
  return {
    note(milliseconds) {
      last = [...last.slice(1 - REMEMBERED), milliseconds];
    },
    known() {
      // The one in the middle: one answer that took long says little.
      const middle = last.toSorted((a, b) => a - b)[Math.floor(last.length / 2)];
      if (middle === undefined) return null;
      return Math.abs(middle) < NOTHING_MS ? 0 : middle;
    },
  };
}
