import type Database from "libsql";

/** What comparing came to on one day, by our clock: of the rows, and of the records that have none. */
export interface VerdictDay {
  readonly gateway: string;
  /** When it begins. */
  readonly day: number;
  readonly matched: number;
  readonly differs: number;
  readonly pending: number;
  readonly foreign_certain: number;
  readonly foreign_suspected: number;
  /** Ours alone. */
  readonly missing: number;
  /** before, unwatched, companion, duplicate, and rows of keys that are used elsewhere on purpose: never an alarm. */
  readonly other: number;
}

export interface Day {
  readonly from: number;
  /** Not part of it. */
  readonly to: number;
}

export interface DaysMeans {
  /** How far the console's clock is ahead. */
  readonly skew: number;
  readonly quiet: (key: string) => boolean;
}

type Counted = [verdict: string | null, certain: number, key: string | null, count: number];

/** One day a step. Days with nothing in them are left out. */
export function* readDays(
  db: Database.Database,
  gateway: string,
  days: readonly Day[],
  { skew, quiet }: DaysMeans,
): Generator<undefined, VerdictDay[]> {
  const rows = db
    .prepare(
      `SELECT verdict, certain, key, count(*) FROM mirror.console_rows
       WHERE gateway = ? AND created_at >= ? AND created_at < ? GROUP BY verdict, certain, key`,
    )
    .raw();
  const alone = db
    .prepare(
      `SELECT verdict, 0, NULL, count(*) FROM mirror.verdicts
       WHERE gateway = ? AND verdict IN ('missing', 'pending') AND started_at >= ? AND started_at < ? GROUP BY verdict`,
    )
    .raw();
  const found: VerdictDay[] = [];
  for (const { from, to } of days) {
    const counted = [
      ...rows.all(gateway, Math.round(from + skew), Math.round(to + skew)),
      ...alone.all(gateway, from, to),
    ] as Counted[];
    yield;
    if (counted.length === 0) continue;
    const sums = {
      matched: 0,
      differs: 0,
      pending: 0,
      foreign_certain: 0,
      foreign_suspected: 0,
      missing: 0,
      other: 0,
    };
    for (const [verdict, certain, key, count] of counted) {
      const loud = key === null || !quiet(key);
      sums[fieldOf(verdict ?? "pending", certain === 1, loud)] += count;
    }
    found.push({ gateway, day: from, ...sums });
  }
  return found;
}

function fieldOf(
  verdict: string,
  certain: boolean,
  loud: boolean,
): keyof Omit<VerdictDay, "gateway" | "day"> {
  switch (verdict) {
    case "matched":
    case "differs":
    case "pending":
    case "missing":
      return verdict;
    case "foreign":
      if (!loud) return "other";
      return certain ? "foreign_certain" : "foreign_suspected";
    default:
      return "other";
  }
}
