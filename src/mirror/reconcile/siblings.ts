/**
 * Another machine with keybearer that shares a store with this one. Its records come into the usage log here, some later
 * than their console rows: it may be offline, or its request may still run.
 */
export interface Sibling {
  readonly name: string;
  /** All its records from before this time are here, by our clock. 0: none came yet. */
  readonly seenUntil: number;
  /** It stopped at that time, and had published everything. It may run again where it cannot reach the store. */
  readonly isStopped: boolean;
  /** Fingerprints of the keys it holds. */
  readonly keys: readonly string[];
  /** It signed this with the secret that the machines share. Otherwise the store may have invented it. */
  readonly isVerified: boolean;
}

/**
 * A row can seem earlier than its request. Both machines ignore a clock offset below 2 s, the console's clock is compared to
 * about a second, and some rows have whole seconds: 6 s in all. Late rows and waits for limits only make a row later than
 * the start of its request, which is safe. Idle machines are up to 20 s behind. Together that is less than
 * FOREIGN_AFTER_MS, so a machine that is online and idle hides no row.
 */
const SIBLING_MARGIN_MS = 8000;

/** How far the times of a sibling's record may be off: twice the offset that is ignored, and the time of measuring it. */
export const SIBLING_CLOCK_MS = 5000;

/**
 * Siblings that run, and may have sent a request whose record is not here yet.
 * @param began when the request began
 */
export function blindSiblings(
  key: string | null,
  began: number,
  siblings: readonly Sibling[],
): readonly Sibling[] {
  return mayHaveSent(key, began, siblings).filter(({ isStopped, isVerified }) => isVerified && !isStopped);
}

/** Siblings that may have sent it: those that stopped may run again, and of those that do not sign nothing is certain. */
export function mayHaveSent(
  key: string | null,
  began: number,
  siblings: readonly Sibling[],
): readonly Sibling[] {
  if (key === null) return [];
  return siblings.filter(
    ({ seenUntil, keys }) => began >= seenUntil - SIBLING_MARGIN_MS && keys.includes(key),
  );
}

/** The reason of every row that waits for a sibling's records begins with this. */
export const CANNOT_SEE = "cannot see: ";

/** Its times are UTC, because it is stored: see formatReason. */
export function cannotSee(blind: readonly Sibling[]): string {
  const names = blind.toSorted((a, b) => (a.name < b.name ? -1 : 1)).map(sinceWhen);
  return `${CANNOT_SEE}${names.join(", ")}`;
}

function sinceWhen({ name, seenUntil }: Sibling): string {
  if (seenUntil <= 0) return `${name} since it joined`;
  return `${name} since ${new Date(seenUntil).toISOString().slice(0, 16)}Z`;
}
