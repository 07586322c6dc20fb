import type { KeyOptions, Use } from "./console-double.ts";

/** A key of the account, as every kind keeps it. */
export interface BookedKey extends KeyOptions {
  readonly id: number;
  readonly group: string;
  readonly createdAt: number;
  usedDollars: number;
  lastUsedAt: number | null;
}

/** One row of the log, before a kind gives it its own shape. */
export interface BookedRow {
  /** The order in which rows were written; no console but sub2api shows it. */
  readonly id: number;
  /** Milliseconds by the console's clock. */
  readonly createdAt: number;
  readonly type: "use" | "error" | "refund" | "topup" | "manage" | "login" | "test";
  /** null: it belongs to no key. */
  readonly key: BookedKey | null;
  readonly use: Use | null;
  /** In the row; what the client was handed may be another. */
  readonly requestId: string;
  readonly upstreamId: string | null;
  readonly multiplier: number;
  readonly listDollars: number;
}

export interface Group {
  readonly id: number;
  readonly name: string;
  multiplier: number;
}

/** Keys, groups, rows and money of one account. */
export interface Book {
  readonly keys: readonly BookedKey[];
  readonly groups: readonly Group[];
  /** In the order in which they were written, the oldest first. */
  readonly rows: readonly BookedRow[];
  /** Dollars. */
  balance: number;
  addKey(options: KeyOptions): BookedKey;
  /** By its whole text. */
  find(key: string): BookedKey | null;
  write(row: Omit<BookedRow, "id">): void;
  hold(): void;
  release(): void;
}

export function createBook(now: () => number, balance: number): Book {
  const keys: BookedKey[] = [];
  const groups: Group[] = [];
  const rows: BookedRow[] = [];
  let held: Omit<BookedRow, "id">[] | null = null;
  // Numbers of an installation that has others: nobody's first row is 1.
  let last = 4_000;

  const put = (row: Omit<BookedRow, "id">) => {
    last += 1 + (last % 3);
    rows.push({ ...row, id: last });
  };

  function groupFor(name: string, multiplier: number | undefined): void {
    const known = groups.find((group) => group.name === name);
    if (known === undefined) groups.push({ id: groups.length + 3, name, multiplier: multiplier ?? 1 });
    else if (multiplier !== undefined) known.multiplier = multiplier;
  }

  return {
    keys,
    groups,
    rows,
    balance,
    addKey(options) {
      // Two of one name are no mistake: consoles allow it.
      if (keys.some(({ key }) => key === options.key)) {
        throw new Error(`the account has the key of ${options.name} already`);
      }
      const group = options.group ?? "default";
      groupFor(group, options.multiplier);
      const key = {
        ...options,
        id: 11 + keys.length,
        group,
        createdAt: now(),
        usedDollars: 0,
        lastUsedAt: null,
      };
      keys.push(key);
      return key;
    },
    find: (text) => keys.find(({ key }) => key === text) ?? null,
    write(row) {
      if (held === null) put(row);
      else held.push(row);
    },
    hold() {
      held ??= [];
    },
    release() {
      for (const row of held ?? []) put(row);
      held = null;
    },
  };
}
