import type Database from "libsql";
import { meteringOf } from "../../metering/protocols.ts";
import { mayHaveArrived, type RecordEnd, type TokensFrom } from "../../usage/record.ts";
import { FARTHEST_MS, type OurRequest, type OurTokens, type TheirRow } from "../reconcile/context.ts";
import { DAY_MS } from "./changed-days.ts";
import type { CoverageGap } from "./coverage-gaps.ts";
import { readTime } from "./facts.ts";
import { keyLinks } from "./keys.ts";
import { AMONG, byName, columnsOf } from "./query.ts";
import { flagOf, STORED, type StoredVerdict, storedRowOf } from "./rows.ts";
import type { OwnNumbers } from "./verdicts.ts";

export interface CompareOptions {
  readonly gateway: string;
  readonly now: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** See ConsoleAdapter. */
  readonly idNames: readonly string[];
  readonly billsFailures: boolean;
  readonly socketRowsHaveIds: boolean;
  /** Times, by our clock, in which something of ours may not have been recorded. */
  readonly logGaps: readonly CoverageGap[];
}

export interface Their {
  readonly row: TheirRow;
  readonly judged: StoredVerdict;
}

/** A record as far as judging needs it, with what is stored of its verdict. */
export interface Ours {
  readonly request: OurRequest;
  /** When it is judged: where its row would be written. */
  readonly own: number;
  readonly tool: string | null;
  readonly gateway_ids: Readonly<Record<string, string>>;
  /** null: it has none. In the order of VERDICT. */
  readonly verdict: readonly unknown[] | null;
}

/** The columns of oursOf's rows, followed by those of VERDICT and what the record's own numbers were. */
export const RECORD = [
  "id",
  "started_at",
  "waited_ms",
  "ended_at",
  "end",
  "tool",
  "key",
  "model",
  "model_answered",
  "stream",
  "status",
  "refusal",
  "method",
  "endpoint",
  "bytes_in",
  "first_byte_at",
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "tokens_from",
  "gateway_ids",
] as const;
/** What a verdict says, by which it is seen whether it changed. */
export const VERDICT = ["verdict", "how", "row", "reason", "theirs"] as const;

interface LightRecord {
  readonly id: string;
  readonly started_at: number;
  readonly waited_ms: number;
  readonly ended_at: number | null;
  readonly end: RecordEnd | null;
  readonly tool: string | null;
  readonly key: string | null;
  readonly model: string | null;
  readonly model_answered: string | null;
  readonly stream: number | null;
  readonly status: number | null;
  readonly refusal: string | null;
  readonly method: string;
  readonly endpoint: string;
  readonly bytes_in: number;
  readonly first_byte_at: number | null;
  readonly input_tokens: number | null;
  readonly cache_read_tokens: number | null;
  readonly cache_write_tokens: number | null;
  readonly output_tokens: number | null;
  readonly tokens_from: TokensFrom;
  readonly gateway_ids: string;
}

export function oursOf(values: readonly unknown[], idNames: readonly string[]): Ours {
  const record = byName(RECORD, values) as unknown as LightRecord;
  const verdict = values.slice(RECORD.length, RECORD.length + VERDICT.length);
  const ours = values[RECORD.length + VERDICT.length];
  const ids = JSON.parse(record.gateway_ids) as Readonly<Record<string, string>>;
  return {
    request: requestOf(record, idsOf(ids, idNames), typeof ours === "string" ? JSON.parse(ours) : record),
    own: record.ended_at ?? record.started_at,
    tool: record.tool,
    gateway_ids: ids,
    verdict: verdict[0] == null ? null : verdict,
  };
}

function requestOf(
  record: LightRecord,
  ids: readonly string[],
  own: Pick<OwnNumbers, "tokens_from" | keyof OurNumbers>,
): OurRequest {
  const { id, started_at, ended_at, end, key, model, model_answered, stream, status } = record;
  const billable = mayHaveArrived(record);
  return {
    id,
    started_at,
    sent_at: started_at + record.waited_ms,
    ended_at,
    running: end === null,
    key,
    model,
    model_answered,
    stream: flagOf(stream),
    status,
    ids,
    // Decided before each comparison, by what was learned by then.
    own_id: false,
    tokens: tokensOf(own),
    // What was reported of an answer that broke off is what there was up to then.
    exact: own.tokens_from === "reported" && end === "complete",
    expected: billable && isExpected(record, own.tokens_from),
    billable,
    failed: record.refusal === null && status !== null && status >= 400,
    upgraded: status === 101,
  };
}

function isExpected(record: LightRecord, from: TokensFrom): boolean {
  const { method, endpoint, status, end, refusal } = record;
  if (end !== "complete" || refusal !== null || status === null || status < 200 || status >= 400)
    return false;
  // Nobody knows whether it is billed, but for what its answer tells.
  return meteringOf(method, endpoint) !== "other" || from === "reported";
}

interface OurNumbers {
  readonly input_tokens: number | null;
  readonly cache_read_tokens: number | null;
  readonly cache_write_tokens: number | null;
  readonly output_tokens: number | null;
}

function tokensOf(own: OurNumbers & { readonly tokens_from: TokensFrom }): OurTokens | null {
  const { input_tokens, output_tokens } = own;
  // The console's, without what they took the place of: the verdict was lost with mirror.db.
  if (own.tokens_from === "console" || input_tokens === null || output_tokens === null) return null;
  return {
    input: input_tokens,
    cache_read: own.cache_read_tokens ?? 0,
    cache_write: own.cache_write_tokens ?? 0,
    output: output_tokens,
  };
}

function idsOf(ids: Readonly<Record<string, string>>, names: readonly string[]): string[] {
  return [...new Set(names.flatMap((name) => ids[name] ?? []))];
}

/** So many records that the console never listed are searched for an id; the latest. */
const MAX_MISSING = 1000;
/** Somebody who gives all requests one id must not hold up the others. */
const MAX_ALIKE = 1000;

/** Reads both sides of a day. */
export class Loader {
  readonly ours = new Map<string, Ours>();
  readonly theirs = new Map<string, Their>();
  readonly #db: Database.Database;
  readonly #from: number;
  readonly #options: CompareOptions;
  readonly #keys: ReadonlyMap<string, string | null>;
  /** Before that, another gateway had this name. */
  readonly #begunAt: number;

  constructor(db: Database.Database, from: number, options: CompareOptions) {
    this.#db = db;
    this.#from = from;
    this.#options = options;
    this.#keys = keyLinks(db, options.gateway).keys;
    // A time that is still to come was written before the clock was set back.
    const begunAt = readTime(db, options.gateway, "begun_at") ?? Number.NEGATIVE_INFINITY;
    this.#begunAt = begunAt > options.now ? Number.NEGATIVE_INFINITY : begunAt;
  }

  load(): void {
    const { gateway, skew } = this.#options;
    const from = this.#from;
    const to = from + DAY_MS;
    const first = from - FARTHEST_MS;
    const last = to + FARTHEST_MS;
    const place = "coalesce(r.ended_at, r.started_at)";
    this.#addOurs(
      `r.end IS NOT NULL AND r.gateway = ? AND r.started_at >= ? AND r.started_at < ? AND ${place} >= ?
       AND (v.how IS NOT 'id' OR (${place} >= ? AND ${place} < ?))`,
      gateway,
      Math.min(first - DAY_MS, this.#longestSince()),
      last,
      first,
      from,
      to,
    );
    // The plus keeps SQLite from reading all that ever began: few run at a time, and they have an index of their own.
    this.#addOurs("r.end IS NULL AND +r.gateway = ? AND +r.started_at < ?", gateway, last);
    this.#addTheirs(
      `gateway = ? AND created_at >= ? AND created_at < ?
       AND (how IS NOT 'id' OR (created_at >= ? AND created_at < ?))`,
      gateway,
      first + skew,
      last + skew,
      from + skew,
      to + skew,
    );
    this.#addFar();
    this.#addSocketRows(first);
  }

  /** A request that lasts longer than a day belongs to the day of its end. */
  #longestSince(): number {
    return readTime(this.#db, this.#options.gateway, "running_since") ?? this.#from - FARTHEST_MS - DAY_MS;
  }

  /**
   * What belongs to the loaded rows and records by its id, however far away: a console can write hours late, and one whose
   * clock was wrong has rows at hours at which nothing of ours was.
   */
  #addFar(): void {
    const known = new Set([...this.ours.values()].flatMap(({ request }) => request.ids));
    const unknown = [...this.theirs.values()]
      .flatMap(({ row }) => [row.request_id, row.upstream_id])
      .filter((id): id is string => id !== null && !known.has(id));
    this.#addRowsWith(unknown);
    this.#addRecords([...this.#linked(), ...this.#missingWith(unknown)]);
    this.#addRowsWith([...this.ours.values()].flatMap(({ request }) => request.ids));
    const mains = [...this.ours.values()].flatMap(({ verdict }) =>
      typeof verdict?.[2] === "string" && !this.theirs.has(verdict[2]) ? [verdict[2]] : [],
    );
    if (mains.length > 0)
      this.#addTheirs(`gateway = ? AND identity IN ${AMONG}`, this.#options.gateway, JSON.stringify(mains));
    this.#addRecords(this.#linked());
  }

  /**
   * A WebSocket can be open for hours and have rows all the time. Its record's numbers are the sums of all of them, so those
   * that the days before gave to it are read again.
   */
  #addSocketRows(first: number): void {
    const { gateway, skew } = this.#options;
    for (const { request } of this.ours.values()) {
      if (!request.upgraded || request.started_at >= first) continue;
      this.#addTheirs(
        "gateway = ? AND created_at >= ? AND created_at < ? AND record = ?",
        gateway,
        request.started_at - FARTHEST_MS + skew,
        first + skew,
        request.id,
      );
    }
  }

  /** The records with which the loaded rows were matched, and which are not loaded. */
  #linked(): string[] {
    return [...this.theirs.values()].flatMap(({ judged: { record } }) =>
      record === null || this.ours.has(record) ? [] : [record],
    );
  }

  #addRecords(ids: readonly string[]): void {
    if (ids.length > 0) this.#addOurs(`r.id IN ${AMONG}`, JSON.stringify(ids));
  }

  #addRowsWith(ids: readonly string[]): void {
    if (ids.length === 0) return;
    const { gateway } = this.#options;
    // Left to itself, SQLite looks for a request id through all rows of the gateway.
    this.#addTheirs(
      `gateway = ? AND identity IN (SELECT identity FROM mirror.console_rows INDEXED BY console_rows_by_id
         WHERE gateway = ? AND request_id IN ${AMONG} LIMIT ?)`,
      gateway,
      gateway,
      JSON.stringify(ids),
      ids.length + MAX_ALIKE,
    );
  }

  #missingWith(ids: readonly string[]): string[] {
    if (ids.length === 0) return [];
    const found = this.#db
      .prepare(
        `SELECT DISTINCT r.id FROM (SELECT record FROM mirror.verdicts WHERE gateway = ? AND verdict IN ('missing', 'pending')
           ORDER BY started_at DESC LIMIT ${MAX_MISSING}) m
         JOIN usage.records r ON r.id = m.record, json_each(r.gateway_ids) one WHERE one.value IN ${AMONG}`,
      )
      .raw()
      .all(this.#options.gateway, JSON.stringify(ids));
    return found.map((row) => String(columnsOf(row)[0]));
  }

  #addOurs(where: string, ...values: (string | number)[]): void {
    const columns = [
      ...RECORD.map((name) => `r."${name}"`),
      ...VERDICT.map((name) => `v."${name}"`),
      "v.ours",
    ];
    const rows = this.#db
      .prepare(
        `SELECT ${columns.join(", ")} FROM usage.records r LEFT JOIN mirror.verdicts v ON v.record = r.id WHERE ${where}`,
      )
      .raw()
      .all(...values);
    for (const row of rows) {
      const one = oursOf(columnsOf(row), this.#options.idNames);
      const isEarlier = one.request.started_at < this.#begunAt;
      this.ours.set(one.request.id, isEarlier ? withIdOnly(one) : one);
    }
  }

  #addTheirs(where: string, ...values: (string | number)[]): void {
    const { skew } = this.#options;
    const rows = this.#db
      .prepare(`SELECT ${STORED.join(", ")} FROM mirror.console_rows WHERE ${where}`)
      .raw()
      .all(...values);
    for (const raw of rows) {
      const { row, judged } = storedRowOf(raw);
      const key = row.key_ref === null ? null : (this.#keys.get(row.key_ref) ?? null);
      const began = row.began_at === null ? null : row.began_at - skew;
      this.theirs.set(row.identity, { row: { ...row, at: row.created_at - skew, began, key }, judged });
    }
  }
}

/** It may have gone to another gateway that had this name: only its id can say that a row is its own. */
function withIdOnly(one: Ours): Ours {
  return { ...one, request: { ...one.request, billable: false, expected: false } };
}
