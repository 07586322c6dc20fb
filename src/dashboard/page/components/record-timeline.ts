/** The times of a record. */
export interface Timed {
  readonly started_at: number;
  readonly waited_ms: number;
  readonly first_byte_at: number | null;
  readonly ended_at: number | null;
}

/** One piece of a request's time. */
export interface Stretch {
  /** waited: for room under a limit. asked: until the gateway's first byte, or its failure. answered: from then on. */
  readonly what: "waited" | "asked" | "answered";
  /** Milliseconds from the beginning. */
  readonly from: number;
  readonly to: number;
}

/** A request's time from its beginning to its end; while it runs, to now. Pieces that took no time are not there. */
export function stretchesOf(record: Timed, now: number): Stretch[] {
  const begun = record.started_at;
  const total = Math.max(0, (record.ended_at ?? now) - begun);
  // Clocks are set, even between two moments of one request: a piece never ends before it begins.
  const within = (ms: number, from: number) => Math.min(total, Math.max(from, ms));
  const waited = within(record.waited_ms, 0);
  const firstByte = record.first_byte_at === null ? total : within(record.first_byte_at - begun, waited);
  const stretches: Stretch[] = [
    { what: "waited", from: 0, to: waited },
    { what: "asked", from: waited, to: firstByte },
    { what: "answered", from: firstByte, to: total },
  ];
  return stretches.filter(({ from, to }) => to > from);
}

/** As parts of a bar of this width, none so narrow that it is not seen. */
export function barsOf(
  stretches: readonly Stretch[],
  width: number,
): { readonly what: Stretch["what"]; readonly x: number; readonly width: number }[] {
  const total = stretches.at(-1)?.to ?? 0;
  if (total === 0) return [];
  const least = Math.min(3, width / Math.max(1, stretches.length));
  const wished = stretches.map(({ from, to }) => Math.max(least, ((to - from) / total) * width));
  const scale = width / wished.reduce((all, one) => all + one, 0);
  let x = 0;
  return stretches.map(({ what }, at) => {
    const bar = { what, x, width: (wished[at] ?? 0) * scale };
    x += bar.width;
    return bar;
  });
}
