import {
  asFields,
  countAt,
  flagAt,
  type JsonObject,
  listAt,
  numberAt,
  objectAt,
  parseObject,
  textAt,
  wholeAt,
} from "../../core/json.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../core/units.ts";
import { isGatewayId } from "../../metering/gateway-ids.ts";
import { STANDARD_TIER, serviceTier } from "../../metering/service-tiers.ts";
import type { ConsoleRow } from "../console-row.ts";
import { cleanAt } from "./clean-text.ts";
import {
  type AccountFacts,
  type ConsoleAdapter,
  ConsoleError,
  type ConsoleKey,
  type KeyActions,
  type Page,
} from "./console.ts";
import { type AdapterDeps, CallHistory, type CallLimit, required } from "./http.ts";
import { readKey } from "./sub2api-key.ts";
import { Sub2apiKeyActions } from "./sub2api-key-actions.ts";
import { readData, type Sub2apiSession } from "./sub2api-session.ts";
import { moneyAt, timeAt } from "./values.ts";

type Sub2apiDeps = Omit<AdapterDeps, "calls"> & { readonly session: Sub2apiSession };

/**
 * The panel allows an account 60 calls a minute under /usage (0.1.179); the rest is left to the owner's browser. Its
 * windows are fixed: what stays below the limit in every minute stays below it in theirs.
 */
const USAGE_LIMIT: CallLimit = { calls: 50, milliseconds: MINUTE_MS };
/** The largest pages of recent versions, and of old ones. A size that is too large is ignored, not reduced. */
const PAGE_SIZE = 1000;
const OLD_PAGE_SIZE = 100;
const KEY_PAGE_SIZE = 100;
const MAX_KEY_PAGES = 50;
const USAGE = "the usage log";
const KEYS = "the list of keys";

export class Sub2api implements ConsoleAdapter {
  readonly kind = "sub2api";
  /** Rows of versions before 0.1.88 have only the second one. */
  readonly idNames = ["x-client-request-id", "x-request-id"];
  readonly billsFailures = false;
  readonly socketRowsHaveIds = false;
  readonly #deps: Sub2apiDeps;
  /** Per account, not per console: the panel counts by user. */
  readonly #calls = new CallHistory();
  #pageSize = PAGE_SIZE;

  constructor(deps: Sub2apiDeps) {
    this.#deps = deps;
  }

  walk(cursor: string | null, since: number): AsyncIterable<Page> {
    return walkUsage((page) => this.#readUsage(page), this.#deps.now, cursor, since);
  }

  async keys(): Promise<ConsoleKey[]> {
    const { session } = this.#deps;
    const rates = await this.#readRates();
    // By ref: a key created meanwhile moves others to the next page.
    const keys = new Map<string, ConsoleKey>();
    let read = 0;
    for (let page = 1; page <= MAX_KEY_PAGES; page += 1) {
      const response = await session.get(`/api/v1/keys?page=${page}&page_size=${KEY_PAGE_SIZE}`);
      const data = readData(response, KEYS);
      const items = required(listAt(data, "items"), "items", KEYS);
      for (const item of items) {
        const key = readKey(asFields(item), rates);
        if (key !== null) keys.set(key.ref, key);
      }
      if (items.length > 0 && keys.size === 0) {
        throw new ConsoleError("other-shape", `answered ${KEYS} with keys that have no usable "id"`);
      }
      read += items.length;
      if (items.length === 0 || read >= required(wholeAt(data, "total"), "total", KEYS)) break;
    }
    return [...keys.values()];
  }

  async account(): Promise<AccountFacts> {
    const { session, client } = this.#deps;
    const me = await session.get("/api/v1/auth/me");
    const balance = me.status === 404 ? null : moneyAt(readData(me, "the account"), "balance");
    const settings = await client.send({ path: "/api/v1/settings/public" });
    const body = settings.status === 200 ? parseObject(settings.text) : null;
    const data = objectAt(body, "data");
    return { balance, console_version: cleanAt(data, "version") };
  }

  keyActions(): KeyActions {
    return new Sub2apiKeyActions(this.#deps);
  }

  /** Multipliers of this account by group id, where they differ from the group's. Some versions do not list them. */
  async #readRates(): Promise<JsonObject> {
    try {
      return readData(await this.#deps.session.get("/api/v1/groups/rates"), "the rates");
    } catch {
      // If the console cannot be read at all, listing the keys fails next and says why.
      return {};
    }
  }

  async #readUsage(page: number): Promise<UsagePage> {
    const requested = this.#pageSize;
    let usage = await this.#requestUsage(page);
    if (usage.size < OLD_PAGE_SIZE && requested > OLD_PAGE_SIZE) {
      this.#pageSize = OLD_PAGE_SIZE;
      usage = await this.#requestUsage(page);
    }
    this.#pageSize = usage.size;
    return usage;
  }

  async #requestUsage(page: number): Promise<UsagePage> {
    await this.#calls.wait(USAGE_LIMIT, this.#deps, "rows");
    // By id, not by time: a row that is written late has a higher id than those read before it.
    const query = `page=${page}&page_size=${this.#pageSize}&sort_by=id&sort_order=desc&timezone=UTC`;
    const data = readData(await this.#deps.session.get(`/api/v1/usage?${query}`), USAGE);
    const items = required(listAt(data, "items"), "items", USAGE);
    const total = required(wholeAt(data, "total"), "total", USAGE);
    // The length of page 1 shows the real size; every walk begins with it.
    const isOtherSize = items.length > this.#pageSize || items.length < Math.min(this.#pageSize, total);
    const size = page === 1 && items.length > 0 && isOtherSize ? items.length : this.#pageSize;
    return { page, size, total, rows: readRows(items), last: items.length === 0 || page * size >= total };
  }
}

/** Skips single unreadable rows; if no row is readable, this is another kind of console. */
function readRows(items: readonly unknown[]): NumberedRow[] {
  const rows = items.map((item) => readRow(asFields(item))).filter((row) => row !== null);
  if (rows.length === 0 && items.length > 0) {
    const problem = `answered ${USAGE} with rows that have no usable "id" and "created_at"`;
    throw new ConsoleError("other-shape", problem);
  }
  return rows;
}

function readRow(item: JsonObject): NumberedRow | null {
  const id = countAt(item, "id");
  const created = timeAt(item, "created_at");
  if (id === null || created === null) return null;
  const keyId = wholeAt(item, "api_key_id");
  const duration = countAt(item, "duration_ms");
  const row = {
    identity: String(id),
    // The log has only what was billed.
    kind: "use",
    created_at: created,
    began_at: duration === null ? null : created - duration,
    key_ref: keyId === null ? null : `id:${keyId}`,
    request_id: readRequestId(item),
    upstream_id: null,
    model: cleanAt(item, "model"),
    group: cleanAt(objectAt(item, "group"), "name"),
    multiplier: numberAt(item, "rate_multiplier"),
    service_tier: readTier(item),
    stream: flagAt(item, "stream"),
    endpoint: cleanAt(item, "inbound_endpoint"),
    input_tokens: countAt(item, "input_tokens"),
    cache_read_tokens: countAt(item, "cache_read_tokens"),
    cache_write_tokens: countAt(item, "cache_creation_tokens"),
    output_tokens: countAt(item, "output_tokens"),
    list_microdollars: priceAt(item, "total_cost"),
    billed_microdollars: priceAt(item, "actual_cost"),
    duration_ms: duration,
    ip: cleanAt(item, "ip_address"),
    user_agent: cleanAt(item, "user_agent"),
  } as const;
  return { id, row };
}

/**
 * The id that the response carried: stored as `client:<x-client-request-id>`, or by old versions as the bare
 * x-request-id. Ids with another prefix (web_search:, local:, generated:, grok-video:) and the upstream's ids of
 * WebSocket calls were never sent to the client.
 */
function readRequestId(item: JsonObject): string | null {
  if (flagAt(item, "openai_ws_mode") === true) return null;
  const id = (textAt(item, "request_id") ?? "").replace(/^client:/, "");
  if (id.includes(":")) return null;
  // Not cleaned, because that would make it another id: ids in records have the same restrictions.
  return isGatewayId(id) ? id : null;
}

/** null: the standard tier. */
function readTier(item: JsonObject): string | null {
  const tier = serviceTier(cleanAt(item, "service_tier"));
  return tier === STANDARD_TIER ? null : tier;
}

/** Money that cannot be negative. */
function priceAt(object: JsonObject, name: string): number | null {
  const money = moneyAt(object, name);
  return money !== null && money >= 0 ? money : null;
}

/*
 * Walks sub2api's usage log: from the newest row down, by row id. Pages are counted from the top, and new rows push the
 * others down, so an interrupted walk remembers how many unread rows are below it.
 */

interface UsagePage {
  /** From 1. */
  readonly page: number;
  /** Rows per page. */
  readonly size: number;
  /** Rows in the whole log. */
  readonly total: number;
  /** Newest first. */
  readonly rows: readonly NumberedRow[];
  readonly last: boolean;
}

interface NumberedRow {
  readonly id: number;
  readonly row: ConsoleRow;
}

/** How far the log was read. */
interface Cursor {
  /** The newest row of the last complete walk; null: there was none. */
  readonly complete: Position | null;
  /** When the last complete walk that also looked for late rows began. */
  readonly overlapAt: number;
  /** Rows in the whole log when that newest row was read; null: unknown. */
  readonly total: number | null;
  /** Since then the log had as many more rows as new ones were read: no row was late or deleted. */
  readonly addsUp: boolean;
  /** The walk that was interrupted. */
  readonly going: InterruptedWalk | null;
}

interface Position {
  readonly id: number;
  /** Console time. */
  readonly time: number;
}

interface InterruptedWalk {
  /** The newest row when the walk began. */
  readonly top: Position;
  /** How many rows are older than those read. Stays true however many rows are added above, unlike a page number. */
  readonly below: number;
  /** Whether it also looks for late rows. */
  readonly overlap: boolean;
  readonly began: number;
}

/**
 * A walk goes this far back for late rows, because a lower id can appear after a higher one: once an hour where the number
 * of rows does not add up, else once a day. With 8,000 rows an hour that is 192 pages, and four minutes of the limit.
 */
const OVERLAP_MS = DAY_MS;
/** The next walk reads what is left after this many pages. */
const MAX_PAGES = 500;

/** First finishes an interrupted walk, then reads what was added meanwhile. */
async function* walkUsage(
  readPage: (page: number) => Promise<UsagePage>,
  now: () => number,
  text: string | null,
  since: number,
): AsyncGenerator<Page> {
  const budget = { pages: MAX_PAGES };
  let cursor = readCursor(text);
  do {
    const resumed = cursor.going !== null;
    for await (const step of walkDown(readPage, now(), cursor, since, budget)) {
      cursor = step.cursor;
      yield step.page;
    }
    if (!resumed || cursor.going !== null) return;
  } while (budget.pages > 0);
}

/** Reads downwards until it reaches rows that were read before. */
async function* walkDown(
  readPage: (page: number) => Promise<UsagePage>,
  now: number,
  before: Cursor,
  since: number,
  budget: { pages: number },
): AsyncGenerator<{ readonly page: Page; readonly cursor: Cursor }> {
  // Always starts with page 1, which is the same for every page size, and has the total.
  let usage = await readPage(1);
  budget.pages -= 1;
  const start = isReset(before, usage) ? NEW_CURSOR : before;
  const { top, overlap, began } = start.going ?? {
    top: findNewest(usage) ?? start.complete ?? { id: 0, time: since },
    overlap: isOverlapDue(start, now),
    began: now,
  };
  let below = start.going?.below ?? usage.total;
  const firstTotal = usage.total;
  const added = new Set<number>();
  for (;;) {
    for (const { id } of usage.rows) if (id > (start.complete?.id ?? 0) && id <= top.id) added.add(id);

    const { page, size, total } = usage;
    // Rows above were deleted, so unread rows moved up to an earlier page.
    const isTooFar = (page - 1) * size > Math.max(0, total - below);
    if (!isTooFar) below = Math.max(0, Math.min(below, total - page * size));
    const isComplete = !isTooFar && (below === 0 || reachesReadRows(usage, start, overlap, since));
    const cursor: Cursor = isComplete
      ? {
          complete: top,
          overlapAt: overlap ? began : start.overlapAt,
          total: start.going === null ? firstTotal : null,
          addsUp:
            overlap || (start.addsUp && start.total !== null && start.total + added.size === firstTotal),
          going: null,
        }
      : { ...start, going: { top, below, overlap, began } };
    yield {
      cursor,
      page: {
        rows: usage.rows.map(({ row }) => row),
        cursor: JSON.stringify({ v: VERSION, ...cursor }),
        done: Math.max(0, total - below),
        // How far down a later walk goes is not known in advance.
        total: start.complete === null ? total : null,
        gap: null,
      },
    };
    if (isComplete || budget.pages <= 0) return;
    const unread = Math.floor(Math.max(0, total - below) / size) + 1;
    // After a jump, one page before the unread one is read again.
    usage = await readPage(isTooFar ? unread : Math.max(page + 1, unread - 1));
    budget.pages -= 1;
  }
}

/** The newest row is older than one that was read: the log was reset. */
function isReset(cursor: Cursor, first: UsagePage): boolean {
  const read = Math.max(cursor.complete?.id ?? 0, cursor.going?.top.id ?? 0);
  return (findNewest(first)?.id ?? 0) < read;
}

/** Not simply the first row: old versions sort by time, whatever they are asked for. */
function findNewest({ rows }: UsagePage): Position | null {
  let newest: Position | null = null;
  for (const { id, row } of rows) {
    if (newest === null || id > newest.id) newest = { id, time: row.created_at };
  }
  return newest;
}

function isOverlapDue({ complete, overlapAt, addsUp }: Cursor, now: number): boolean {
  return complete === null || now - overlapAt >= (addsUp ? OVERLAP_MS : HOUR_MS) || overlapAt > now;
}

/** Whether everything on this page, and so below it, was read before or is older than `since`. */
function reachesReadRows(usage: UsagePage, { complete }: Cursor, overlap: boolean, since: number): boolean {
  if (usage.last) return true;
  const areOlderThan = (time: number) => usage.rows.every(({ row }) => row.created_at < time);
  if (complete === null) return areOlderThan(since);
  const wereRead = usage.rows.every(({ id }) => id <= complete.id);
  return wereRead && (!overlap || areOlderThan(complete.time - OVERLAP_MS));
}

const VERSION = 1;
const NEW_CURSOR: Cursor = { complete: null, overlapAt: 0, total: null, addsUp: false, going: null };

/** With an unreadable cursor the walk starts over, which stores nothing twice. */
function readCursor(text: string | null): Cursor {
  const cursor = parseObject(text ?? "");
  const overlapAt = numberAt(cursor, "overlapAt");
  if (overlapAt === null || wholeAt(cursor, "v") !== VERSION) return NEW_CURSOR;
  return {
    complete: positionAt(cursor, "complete"),
    overlapAt,
    total: countAt(cursor, "total"),
    addsUp: flagAt(cursor, "addsUp") === true,
    going: readInterrupted(cursor),
  };
}

function positionAt(value: unknown, name: string): Position | null {
  const position = objectAt(value, name);
  const id = countAt(position, "id");
  const time = numberAt(position, "time");
  return id === null || time === null ? null : { id, time };
}

function readInterrupted(cursor: unknown): InterruptedWalk | null {
  const going = objectAt(cursor, "going");
  const top = positionAt(going, "top");
  const below = countAt(going, "below");
  const overlap = flagAt(going, "overlap");
  const began = numberAt(going, "began");
  if (top === null || below === null || overlap === null || began === null) return null;
  return { top, below, overlap, began };
}
