import type { Cost, Tokens } from "./billing.ts";

/** One billed request. Times in milliseconds, money in dollars. */
export interface UsageRow {
  /** Goes up by one with each row, and is never reused. */
  readonly id: number;
  readonly keyId: number;
  readonly groupId: number;
  /** `client:` and the X-Client-Request-ID of the answer. */
  readonly requestId: string;
  readonly model: string;
  readonly endpoint: string;
  readonly stream: boolean;
  readonly tokens: Tokens;
  readonly cost: Cost;
  readonly multiplier: number;
  readonly durationMs: number;
  /** null where the answer was not streamed, or nothing of it was sent. */
  readonly firstTokenMs: number | null;
  readonly userAgent: string | null;
  readonly sessionId: string | null;
  readonly ipAddress: string | null;
  /** When the request was over. */
  readonly createdAt: number;
}

export interface UsageLog {
  add(row: Omit<UsageRow, "id">): void;
  /** From now on rows wait, and have no id yet. */
  hold(): void;
  /** Writes the rows that wait, in the order they came. */
  release(): void;
  /** Oldest first. */
  list(): readonly UsageRow[];
  withId(id: number): UsageRow | null;
}

/** The oldest rows are forgotten beyond this, so that a sandbox left running does not grow for ever. */
const MOST_ROWS = 20_000;

export function createUsageLog(): UsageLog {
  let rows: UsageRow[] = [];
  let waiting: Omit<UsageRow, "id">[] | null = null;
  let lastId = 0;

  function write(fields: Omit<UsageRow, "id">): void {
    lastId += 1;
    rows.push({ id: lastId, ...fields });
    if (rows.length >= MOST_ROWS * 2) rows = rows.slice(-MOST_ROWS);
  }

  return {
    add(fields) {
      if (waiting === null) write(fields);
      else waiting.push(fields);
    },
    hold() {
      waiting ??= [];
    },
    release() {
      for (const fields of waiting ?? []) write(fields);
      waiting = null;
    },
    list: () => rows,
    withId: (id) => rows.find((row) => row.id === id) ?? null,
  };
}
