import type { Count, Counts, Frames } from "./frames.ts";
import { countedSpan } from "./windows.ts";

/** How much more an ended call used than was counted; negative where it was less. */
export interface Correction {
  /** When the call was let in. */
  readonly at: number;
  readonly tokens: number;
  readonly spend: number;
}

/** Counts the difference wherever the call itself counts: a window that is over needs it no more. */
export function correctCounts(frames: Frames, ever: Counts, { at, tokens, spend }: Correction): void {
  for (const { window, counts } of Object.values(frames)) {
    const { from, to } = countedSpan(window);
    if (at < from || at >= to) continue;
    add(counts.tokens, tokens);
    add(counts.spend, spend);
  }
  add(ever.spend, spend);
}

/** May go below zero for a while, and is shown as zero then: cut off here, a correction back would count twice. */
function add(count: Count, amount: number): void {
  count.used += amount;
}

/** How full it looks: a correction may have taken more than there was. */
export function shown({ used, held }: Count): Count {
  return { used: Math.max(0, used), held };
}
