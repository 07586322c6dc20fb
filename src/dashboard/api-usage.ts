import type { ComparedRow } from "../mirror/report/shape.ts";
import type { ExportedRecord } from "../usage/reports/records.ts";

/* What the page asks of the usage log; the rest of what crosses the port, and how, is in api.ts. */

/** A record as it is exported. */
export type ShownRecord = ExportedRecord;

/** A refusal in a few words, and what to do about it. */
export interface RefusalWords {
  /** In English; the page has its own for each `refusal` code. */
  readonly words: string;
  /** What to type or change; null: nothing, or it was the caller's mistake. In English, mostly a command. */
  readonly next: string | null;
}

export type Bin = "hour" | "day" | "month";
export type By = "tool" | "model" | "group" | "key";

/**
 * What records are meant, as a query: since= and until= in milliseconds (until is not part of it), tool=, model=, group=,
 * key= each an exact name, and may come several times; an empty one (`tool=`) means those that have none.
 */
export interface FilterQuery {
  readonly since?: number;
  readonly until?: number;
  readonly tool?: readonly string[];
  readonly model?: readonly string[];
  readonly group?: readonly string[];
  readonly key?: readonly string[];
}

/** GET /api/usage?<filter>&bin=&by= */
export interface UsageChart {
  /** As asked; null: without a bound on that side. */
  readonly since: number | null;
  readonly until: number | null;
  readonly bin: Bin;
  readonly by: By;
  /**
   * Where each bin begins in the daemon's calendar, without gaps: all of the period, from the first record on where there
   * is no since=, up to now where there is no until=. At most 2,000: hours of some eighty days (else 400).
   */
  readonly bins: readonly number[];
  /** Where the last bin ends; null: there is none. */
  readonly bins_end: number | null;
  /** What cost most comes first, at most 60. Each list has one number for each bin. */
  readonly series: readonly UsageSeries[];
  /** All beyond these together; null: there are no more. Its name is null. */
  readonly others: UsageSeries | null;
  readonly total: UsageSums;
  /** Every name, in the order of `series`; at most 1,000. */
  readonly rows: readonly UsageRow[];
  readonly unpriced: readonly { readonly model: string; readonly requests: number }[];
  /** The daemon's time zone, as Asia/Shanghai. */
  readonly zone: string;
  /** exact: percentiles from each record; else from sums, within 5 %. */
  readonly first_byte_exact: boolean;
  /** Everything there is to filter by, at any time; at most 1,000 of each. */
  readonly names: Readonly<Record<By, readonly (string | null)[]>>;
}

export interface UsageSeries {
  /** null: unknown, such as the tool of a caller that nobody recognised. */
  readonly name: string | null;
  readonly requests: readonly number[];
  /** In all. */
  readonly tokens: readonly number[];
  readonly input_tokens: readonly number[];
  readonly cache_read_tokens: readonly number[];
  readonly cache_write_tokens: readonly number[];
  readonly output_tokens: readonly number[];
  readonly cost_microdollars: readonly number[];
}

export interface UsageSums {
  readonly requests: number;
  readonly refused: number;
  readonly failed: number;
  readonly client_left: number;
  readonly interrupted: number;
  readonly tokens: number;
  readonly input_tokens: number;
  readonly cache_read_tokens: number;
  readonly cache_write_tokens: number;
  readonly output_tokens: number;
  readonly reasoning_tokens: number;
  readonly list_microdollars: number;
  readonly cost_microdollars: number;
  /** null: no console has told of any of them. */
  readonly billed_microdollars: number | null;
  readonly billed_requests: number;
  /** Requests whose tokens nobody knows. */
  readonly unmetered: number;
  /** Requests whose tokens are known, but no price. */
  readonly unpriced: number;
  /** How much of what went in came out of a cache, 0 to 1; null: nothing went in. */
  readonly cache_share: number | null;
  readonly first_byte_p50_ms: number | null;
  readonly first_byte_p95_ms: number | null;
}

export interface UsageRow extends UsageSums {
  readonly name: string | null;
}

/**
 * GET /api/records?<filter>&end=&before=&limit= — newest first. end= is a RecordEnd, may come several times; before= the
 * `next` of the page before this one; limit= at most 500, default 100.
 */
export interface RecordsPage {
  readonly records: readonly ShownRecord[];
  /** null: there are no more. */
  readonly next: string | null;
  /** How many the filter finds in all, those of other pages too; null: that takes too long to find out. */
  readonly count: number | null;
}

/** GET /api/records/<id> */
export interface RecordAnswer {
  readonly record: ShownRecord;
  /** null: it was not refused. */
  readonly refusal: RefusalWords | null;
  /** Its console row beside it; null: no console, or none is known yet. */
  readonly compared: ComparedRow | null;
}

/* GET /api/csv?<filter>&end= answers text/csv; charset=utf-8: every field of every record, oldest first. */
