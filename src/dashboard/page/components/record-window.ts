/** Which of many rows of one height are to be drawn. */
export interface Window {
  readonly first: number;
  /** After the last. */
  readonly end: number;
}

export interface Scroll {
  readonly top: number;
  /** Of what is seen. */
  readonly height: number;
  readonly rowHeight: number;
  readonly count: number;
}

/** Drawn above and below what is seen, so that a fast scroll shows no holes. */
const BEYOND = 12;
/** Rows are drawn in steps of this many, so that a slow scroll does not draw with every row. */
const STEP = 6;
/** With fewer than this left below, the next page is fetched before the reader gets there. */
const AHEAD = 150;
/** A browser lays no taller element out than some 17 million pixels, and a person reads no further either. */
export const MOST_ROWS = 50_000;

export function windowOf({ top, height, rowHeight, count }: Scroll): Window {
  // The position may be outside of the list: it became shorter, or the scroll bounces at its end.
  const firstSeen = Math.min(Math.max(0, Math.floor(top / rowHeight)), Math.max(0, count - 1));
  const seen = Math.ceil(height / rowHeight) + 1;
  const from = firstSeen - (firstSeen % STEP);
  return {
    first: Math.max(0, from - BEYOND),
    end: Math.min(count, from + STEP + seen + BEYOND),
  };
}

/** As long as it is the same, so are the rows to be drawn. */
export function stepOf(top: number, rowHeight: number): number {
  return Math.floor(Math.max(0, top) / (rowHeight * STEP));
}

export function wantsMore({ end }: Window, loaded: number): boolean {
  return loaded < MOST_ROWS && end + AHEAD >= loaded;
}

/** Where to scroll so that a row is seen whole; null: it is. */
export function scrollFor(row: number, { top, height, rowHeight }: Scroll, head: number): number | null {
  const above = row * rowHeight;
  const below = (row + 1) * rowHeight;
  if (above < top) return above;
  return below > top + height - head ? below - height + head : null;
}

/** The row a key moves to from the current one; null: the key moves nowhere. */
export function rowAfterKey(key: string, row: number, count: number, page: number): number | null {
  const target = targetOf(key, row, count, page);
  return target === null || count === 0 ? null : Math.min(count - 1, Math.max(0, target));
}

function targetOf(key: string, row: number, count: number, page: number): number | null {
  switch (key) {
    case "ArrowDown":
      return row + 1;
    case "ArrowUp":
      return row - 1;
    case "PageDown":
      return row + page;
    case "PageUp":
      return row - page;
    case "Home":
      return 0;
    case "End":
      return count - 1;
    default:
      return null;
  }
}
