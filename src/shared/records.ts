import { firstIdAt } from "../core/ids.ts";
import { type JsonObject, parseObject } from "../core/json.ts";
import { pick } from "../core/pick.ts";
import type { Protocol } from "../core/refusal.ts";
import { DAY_MS } from "../core/units.ts";
import { AMENDED, type AmendedFields } from "../usage/journal/lines.ts";
import {
  COLUMNS,
  EXPORTED,
  type RecordEnd,
  recordOfFields,
  type TokensFrom,
  type UsageRecord,
} from "../usage/record.ts";

/*
 * Records on their way from one machine to the others. Each machine has a stream in the store. Its entries are JSON: a
 * finished record, or a later correction of one, with the fields that `usage export` prints and nothing else. Their times
 * are those of the store's clock. Entries from the store are not trusted: parseEntry() checks them.
 */

/** What the publisher and the subscriber need of the store. All of it throws if the store cannot be reached. */
export interface RecordStore {
  /**
   * Adds the entries to this machine's stream and stores the position, if the stored position still is `from`. Otherwise
   * nothing is added. Returns the position that is stored then: `to`, or where to continue; null: from the beginning.
   */
  publish(entries: readonly string[], from: string | null, to: string): Promise<string | null>;
  /** Up to `max` entries of each stream after the given ids. Both maps are by the machine's id. */
  read(
    after: ReadonlyMap<string, string | null>,
    max: number,
  ): Promise<ReadonlyMap<string, readonly StreamEntry[]>>;
  /** Identifies the secret that entries are signed with; null: there is none. */
  readonly signerId: string | null;
  /** Changes when the store may have lost data; null: not connected. */
  readonly generation: string | null;
  /** Milliseconds to add to this machine's clock to get the store's; 0 if the two agree within 2 seconds. */
  clockOffset(): number;
}

export interface StreamEntry {
  readonly id: string;
  readonly text: string;
  /** The machine signed it with the secret that this one has. */
  readonly isVerified: boolean;
}

/** An entry, as the subscriber reads it. Its times are those of this machine's clock. */
export type Entry =
  | { readonly kind: "record"; readonly record: UsageRecord }
  | { readonly kind: "amend"; readonly id: string; readonly fields: AmendedFields }
  /** It is not valid. The problem quotes nothing of it. */
  | { readonly kind: "bad"; readonly problem: string };

/** For how long entries stay in the store. */
export const KEEP_DAYS = 31;

/** The id of an entry: milliseconds and a number. */
export const ENTRY_ID = /^(\d{1,16})-(\d{1,16})$/;

/** The fields of an entry. */
const PUBLISHED: readonly (keyof UsageRecord)[] = EXPORTED.filter((name) => name !== "machine");
const PUBLISHED_AMENDED = AMENDED.filter((name) => PUBLISHED.includes(name));
const TIMES = ["started_at", "sent_at", "first_byte_at", "ended_at"] as const;
const TEXTS = COLUMNS.filter(({ name, type }) => type === "text" && PUBLISHED.includes(name)).map(
  ({ name }) => name,
);

const MAX_TEXT = 1000;
const MAX_IDS = 16;
/** Of an id that a gateway gave, and of its name. Both are shorter in records that keybearer made. */
const MAX_ID = 300;
/** Characters. What textOfRecord() makes is never longer. */
const MAX_ENTRY = 65_536;

/** @param offset RecordStore.clockOffset() */
export function textOfRecord(record: UsageRecord, offset: number): string {
  const entry: Record<string, unknown> = {};
  for (const name of PUBLISHED) {
    const value = record[name];
    entry[name] = typeof value === "string" ? cleanText(value) : value;
  }
  for (const name of TIMES) {
    const time = record[name];
    if (time !== null) entry[name] = time + offset;
  }
  const ids = Object.entries(record.gateway_ids).slice(0, MAX_IDS);
  entry.gateway_ids = Object.fromEntries(
    ids.map(([name, id]) => [cleanText(name, MAX_ID), cleanText(id, MAX_ID)]),
  );
  return JSON.stringify(entry);
}

export function textOfAmend(id: string, fields: AmendedFields): string {
  const entry: Record<string, unknown> = { id };
  for (const name of PUBLISHED_AMENDED) entry[name] = fields[name];
  return JSON.stringify(entry);
}

/** Control characters, and half a surrogate pair, which is no character. */
const UNWRITABLE = /[\p{Cc}\p{Cs}]/gu;

/** A text that isCleanText() accepts. */
function cleanText(text: string, maxLength = MAX_TEXT): string {
  return text.slice(0, maxLength).replace(UNWRITABLE, "\ufffd");
}

function isCleanText(text: string): boolean {
  return text === cleanText(text);
}

/**
 * @param now this machine's time.
 * @param offset RecordStore.clockOffset()
 */
export function parseEntry(text: string, now: number, offset: number): Entry {
  if (text.length > MAX_ENTRY) return bad("it is too long");
  const fields = parseObject(text);
  if (fields === null) return bad("it is not a JSON object");
  if (typeof fields.id !== "string" || !ULID.test(fields.id)) return bad("its id is not a ULID");
  return "started_at" in fields ? parseRecord(fields, now, offset) : parseAmend(fields);
}

const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/;

const ENDS: readonly (RecordEnd | null)[] = [
  "complete",
  "client-left",
  "gateway-failed",
  "refused",
  "interrupted",
];
const PROTOCOLS: readonly Protocol[] = ["openai", "messages", "gemini"];
const SOURCES: readonly TokensFrom[] = ["reported", "console", "estimated", "none"];
const MAX_MULTIPLIER = 1_000_000;

function parseRecord(fields: JsonObject, now: number, offset: number): Entry {
  const record = recordOfFields(withOwnTimes(ownFields(fields, PUBLISHED), offset));
  if (!ENDS.includes(record.end)) return bad("its end is unknown");
  if (!PROTOCOLS.includes(record.protocol)) return bad("its protocol is unknown");
  if (!SOURCES.includes(record.tokens_from)) return bad("the source of its tokens is unknown");
  if (!(record.multiplier >= 0 && record.multiplier <= MAX_MULTIPLIER)) return bad("its multiplier is wrong");
  if (!hasPlausibleTimes(record, now)) return bad("its times are wrong");
  const texts = [...TEXTS.map((name) => record[name]), ...Object.entries(record.gateway_ids).flat()];
  if (!texts.every((value) => typeof value !== "string" || isCleanText(value)))
    return bad("a text in it is too long or has control characters");
  if (Object.keys(record.gateway_ids).length > MAX_IDS) return bad("it has too many ids");
  return { kind: "record", record };
}

function parseAmend(fields: JsonObject): Entry {
  const record = recordOfFields(ownFields(fields, ["id", ...PUBLISHED_AMENDED]));
  if (!SOURCES.includes(record.tokens_from)) return bad("the source of its tokens is unknown");
  return { kind: "amend", id: record.id, fields: pick(record, AMENDED) };
}

/** Only own properties: `__proto__` and the like are not fields. */
function ownFields(fields: JsonObject, names: readonly string[]): Record<string, unknown> {
  const picked: Record<string, unknown> = {};
  for (const name of names) if (Object.hasOwn(fields, name)) picked[name] = fields[name];
  return picked;
}

function withOwnTimes(fields: Record<string, unknown>, offset: number): JsonObject {
  for (const name of TIMES) {
    const time = fields[name];
    if (typeof time === "number") fields[name] = time - offset;
  }
  return fields;
}

const OLDEST = Date.UTC(2020, 0, 1);
/** The time in an id is by the other machine's clock. Both clocks may be a day from the store's. */
const MAX_ID_DIFFERENCE_MS = 2 * DAY_MS;

function hasPlausibleTimes(record: UsageRecord, now: number): boolean {
  const isPlausible = (time: number | null) => time === null || (time >= OLDEST && time <= now + DAY_MS);
  if (!TIMES.every((name) => isPlausible(record[name]))) return false;
  const { id, started_at } = record;
  return (
    id >= firstIdAt(started_at - MAX_ID_DIFFERENCE_MS) && id < firstIdAt(started_at + MAX_ID_DIFFERENCE_MS)
  );
}

function bad(problem: string): Entry {
  return { kind: "bad", problem };
}
