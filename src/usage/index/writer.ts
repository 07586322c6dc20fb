import type Database from "libsql";
import { pick } from "../../core/pick.ts";
import {
  AMENDED,
  type AmendedFields,
  type AmendLine,
  type Line,
  parseLine,
  recordOfRefusals,
  type SiblingAmendLine,
} from "../journal/lines.ts";
import type { Position } from "../journal/position.ts";
import {
  COLUMN_NAMES,
  COLUMNS,
  NOT_CLOSED,
  OWN_REQUEST,
  recordOfRow,
  rowOfRecord,
  type UsageRecord,
  wholeRecord,
} from "../record.ts";
import {
  addRecord,
  addToBucket,
  emptyRollup,
  histogramText,
  isSamePlace,
  parseHistogram,
  type Rollup,
  type RollupPlace,
  rollupPlace,
  SERIES,
  SUMS,
} from "../rollups.ts";
import { IndexError } from "./database.ts";
import type { JournalDigest } from "./journal-digest.ts";

/**
 * The names in the table `meta`:
 * - position: a Position
 * - digest: a JournalDigest of the file that the position is in
 * - damaged_lines: how many lines before the position could not be read
 * - oldest_day: of the journal
 * - kept_from: records from before this time were removed; missing: none were
 * - folder: the identity of the journal's folder
 * - complete: the end of the journal was reached since the index was created. Until then, a record that is missing here may
 *   be in the journal.
 */
type MetaName = "position" | "digest" | "damaged_lines" | "oldest_day" | "kept_from" | "folder" | "complete";

/** A record as it is stored, and as the lines of a batch change it. */
interface Entry {
  readonly stored: UsageRecord | null;
  record: UsageRecord;
  day: string;
}

/**
 * Applies journal lines to an open index, in the caller's transaction. Lines apply by id, so applying one twice changes
 * nothing. A batch writes each record once, however many lines it has about it.
 */
export class IndexWriter {
  readonly #db: Database.Database;
  readonly #read: Database.Statement;
  readonly #write: Database.Statement;
  readonly #readRollup: Database.Statement;
  readonly #writeRollup: Database.Statement;
  readonly #dropRollup: Database.Statement;
  readonly #readEarlyAmend: Database.Statement;
  readonly #writeEarlyAmend: Database.Statement;
  readonly #dropEarlyAmend: Database.Statement;
  readonly #writeAck: Database.Statement;
  readonly #writeHeldKey: Database.Statement;
  /** Almost never true. While it is false, records are written without searching the table. */
  #hasEarlyAmends: boolean;
  readonly #readMeta: Database.Statement;
  readonly #writeMeta: Database.Statement;

  constructor(db: Database.Database) {
    this.#db = db;
    this.#read = db
      .prepare(`SELECT ${COLUMN_NAMES}, day FROM usage.records WHERE id IN (SELECT value FROM json_each(?))`)
      .raw();
    this.#write = db.prepare(
      `INSERT OR REPLACE INTO usage.records (${COLUMN_NAMES}, day) VALUES (${marks(COLUMNS.length + 1)})`,
    );
    const series = SERIES.map((name) => `"${name}"`);
    this.#readRollup = db
      .prepare(
        `SELECT ${SUMS.join(", ")}, first_bytes FROM usage.rollups
         WHERE quarter = ? AND ${series.map((name) => `${name} = ?`).join(" AND ")}`,
      )
      .raw();
    this.#writeRollup = db.prepare(
      `INSERT OR REPLACE INTO usage.rollups (quarter, ${series.join(", ")}, ${SUMS.join(", ")}, first_bytes)
       VALUES (${marks(1 + SERIES.length + SUMS.length + 1)})`,
    );
    this.#dropRollup = db.prepare(
      `DELETE FROM usage.rollups WHERE quarter = ? AND ${series.map((name) => `${name} = ?`).join(" AND ")}`,
    );
    this.#readEarlyAmend = db
      .prepare("SELECT line FROM usage.early_amends WHERE id = ? AND machine_id = ?")
      .raw();
    this.#writeEarlyAmend = db.prepare(
      "INSERT OR REPLACE INTO usage.early_amends (id, machine_id, line) VALUES (?, ?, ?)",
    );
    this.#dropEarlyAmend = db.prepare("DELETE FROM usage.early_amends WHERE id = ? AND machine_id = ?");
    this.#writeAck = db.prepare(
      "INSERT OR REPLACE INTO usage.acks (gateway, row, certain, at) VALUES (?, ?, ?, ?)",
    );
    this.#writeHeldKey = db.prepare(
      "INSERT OR REPLACE INTO usage.held_keys (gateway, key, tool, since, until) VALUES (?, ?, ?, ?, ?)",
    );
    this.#hasEarlyAmends = db.prepare("SELECT 1 FROM usage.early_amends LIMIT 1").raw().get() !== undefined;
    this.#readMeta = db.prepare("SELECT value FROM usage.meta WHERE name = ?").raw();
    this.#writeMeta = db.prepare("INSERT OR REPLACE INTO usage.meta (name, value) VALUES (?, ?)");
  }

  /** Returns how many lines are damaged. */
  apply(texts: readonly string[], day: string): number {
    const { lines, damaged } = parseLines(texts);
    const batch = this.#load(lines);
    for (const line of lines) this.#applyLine(line, day, batch);
    const rollups = new Rollups();
    for (const { stored, record, day } of batch.values()) {
      this.#write.run([...rowOfRecord(record), day]);
      rollups.change(stored, record);
    }
    for (const rollup of rollups.all()) this.#addRollup(rollup);
    return damaged;
  }

  /** The stored records that the lines are about, by id. */
  #load(lines: readonly Line[]): Map<string, Entry> {
    const ids = new Set<string>();
    for (const line of lines) {
      if ("id" in line) ids.add(line.id);
      else if (line.kind === "refusals") ids.add(line.first_id);
    }
    const batch = new Map<string, Entry>();
    for (const row of this.#read.all(JSON.stringify([...ids])) as unknown[][]) {
      const stored = recordOfRow(row);
      batch.set(stored.id, { stored, record: stored, day: String(row[COLUMNS.length]) });
    }
    return batch;
  }

  /** Removes the records of all days before this one, also from the rollups. Returns the last of these days. */
  removeBefore(day: string): string | null {
    const last = this.#db.prepare("SELECT max(day) FROM usage.records WHERE day < ?").raw().get(day);
    const gone = this.#db.prepare(`SELECT ${COLUMN_NAMES} FROM usage.records WHERE day < ?`).raw().all(day);
    const rollups = new Rollups();
    for (const row of gone) rollups.change(recordOfRow(row), null);
    for (const rollup of rollups.all()) this.#addRollup(rollup);
    this.#db.prepare("DELETE FROM usage.records WHERE day < ?").run(day);
    this.#db.exec("DELETE FROM usage.rollups WHERE requests = 0");
    return (last as [string | null])[0];
  }

  position(): Position | null {
    return this.#place<Position>("position");
  }

  setPosition(position: Position): void {
    this.setMeta("position", JSON.stringify(position));
  }

  digest(): JournalDigest | null {
    return this.#place<JournalDigest>("digest");
  }

  setDigest(digest: JournalDigest): void {
    this.setMeta("digest", JSON.stringify(digest));
  }

  /** Throws an IndexError if keybearer did not write it. */
  #place<T extends { readonly day: string; readonly offset: number }>(name: MetaName): T | null {
    const text = this.meta(name);
    const found = text === null ? null : storedJson<T>(text);
    if (found === null) return null;
    if (typeof found.day === "string" && Number.isSafeInteger(found.offset) && found.offset >= 0)
      return found;
    throw notOurs();
  }

  meta(name: MetaName): string | null {
    const row = this.#readMeta.get(name) as [string] | undefined;
    return row?.[0] ?? null;
  }

  setMeta(name: MetaName, value: string): void {
    this.#writeMeta.run(name, value);
  }

  #applyLine(line: Line, day: string, batch: Map<string, Entry>): void {
    switch (line.kind) {
      case "open": {
        const entry = batch.get(line.id);
        if (entry === undefined)
          batch.set(line.id, {
            stored: null,
            record: Object.assign(wholeRecord(line, NOT_CLOSED), OWN_REQUEST),
            day,
          });
        else if (entry.record.end === null) entry.day = day;
        return;
      }
      case "sent": {
        const entry = batch.get(line.id);
        if (entry !== undefined && entry.record.end === null)
          entry.record = { ...entry.record, sent_at: line.sent_at };
        return;
      }
      case "head": {
        const entry = batch.get(line.id);
        if (entry === undefined || entry.record.end !== null || entry.record.status !== null) return;
        const { status, first_byte_at, gateway_ids } = line;
        entry.record = { ...entry.record, status, first_byte_at, gateway_ids };
        return;
      }
      case "close": {
        const entry = batch.get(line.id);
        // Only an amend line changes a finished record.
        if (entry !== undefined && entry.record.end !== null) return;
        const amend = this.#takeEarlyAmend(line.id, null);
        const record = amend === null ? line : amended(line, amend);
        batch.set(line.id, { stored: entry?.stored ?? null, record, day });
        return;
      }
      case "refusals": {
        const entry = batch.get(line.first_id);
        // The line with the largest count of its run is right. The record of one request stays as it is.
        if (entry !== undefined && (entry.record.last_id === null || entry.record.requests >= line.count))
          return;
        batch.set(line.first_id, { stored: entry?.stored ?? null, record: recordOfRefusals(line), day });
        return;
      }
      case "sibling": {
        const entry = batch.get(line.id);
        // A verified record replaces one that may be invented. Nothing replaces a record of this machine.
        if (entry !== undefined && !(line.verified && entry.record.verified === false)) return;
        const amend = this.#takeEarlyAmend(line.id, line.machine_id);
        const record = amend === null || !mayAmend(amend, line) ? line : amended(line, amend);
        batch.set(line.id, { stored: entry?.stored ?? null, record, day });
        return;
      }
      case "amend":
      case "sibling-amend": {
        const entry = batch.get(line.id);
        const machineId = line.kind === "amend" ? null : line.machine_id;
        if (entry === undefined) this.#keepEarlyAmend(line, machineId);
        else if (entry.record.machine_id !== machineId || !mayAmend(line, entry.record)) return;
        else if (entry.record.end === null) this.#keepEarlyAmend(line, machineId);
        else entry.record = amended(entry.record, line);
        return;
      }
      case "ack":
        this.#writeAck.run(line.gateway, line.row, Number(line.certain), line.at);
        return;
      case "key-held":
        this.#writeHeldKey.run(line.gateway, line.key, line.tool, line.since, line.until);
        return;
      case "lift":
      case "session-stop":
      case "session-lift":
      case "rename":
      case "carry":
        // Only the limits read these.
        return;
    }
  }

  /** @param machineId null: this machine. */
  #keepEarlyAmend(line: AmendLine | SiblingAmendLine, machineId: string | null): void {
    const before = this.#hasEarlyAmends ? this.#readEarlyAmend.get(line.id, machineId ?? "") : undefined;
    if (before !== undefined && !mayAmend(line, storedJson((before as [string])[0]))) return;
    this.#hasEarlyAmends = true;
    this.#writeEarlyAmend.run(line.id, machineId ?? "", JSON.stringify(line));
  }

  #takeEarlyAmend(id: string, machineId: string | null): AmendLine | SiblingAmendLine | null {
    if (!this.#hasEarlyAmends) return null;
    const row = this.#readEarlyAmend.get(id, machineId ?? "") as [string] | undefined;
    if (row === undefined) return null;
    this.#dropEarlyAmend.run(id, machineId ?? "");
    return storedJson(row[0]);
  }

  #addRollup(added: Rollup): void {
    const place = [added.quarter, ...SERIES.map((name) => added[name])];
    const row = this.#readRollup.get(place) as unknown[] | undefined;
    const sums = SUMS.map((name, at) => Number(row?.[at] ?? 0) + added.sums[name]);
    // Its last record was replaced by one of another series.
    if (sums[SUMS.indexOf("requests")] === 0) {
      this.#dropRollup.run(place);
      return;
    }
    const histogram = parseHistogram(String(row?.[SUMS.length] ?? ""));
    for (const [bucket, count] of added.firstBytes) addToBucket(histogram, bucket, count);
    this.#writeRollup.run([...place, ...sums, histogramText(histogram)]);
  }
}

/** The changes of a batch to the rollups, so that each rollup is written once. */
class Rollups {
  readonly #rollups = new Map<string, Rollup>();
  /** Most records belong to the rollup of the one before. To find it by name takes 2 µs. */
  #last: Rollup | null = null;

  change(before: UsageRecord | null, after: UsageRecord | null): void {
    if (before !== null && before.end !== null) this.#add(before, -1);
    if (after !== null && after.end !== null) this.#add(after, 1);
  }

  all(): Iterable<Rollup> {
    return this.#rollups.values();
  }

  #add(record: UsageRecord, times: 1 | -1): void {
    const place = rollupPlace(record);
    if (this.#last === null || !isSamePlace(this.#last, place)) this.#last = this.#find(place);
    addRecord(this.#last, record, times);
  }

  #find(place: RollupPlace): Rollup {
    const name = JSON.stringify([place.quarter, ...SERIES.map((part) => place[part])]);
    const rollup = this.#rollups.get(name) ?? emptyRollup(place);
    this.#rollups.set(name, rollup);
    return rollup;
  }
}

const BEFORE_CLOSE = /^\{"kind":"(?:open|sent|head)","id":"(\w+)"/;

/**
 * A `close` line repeats the whole record, so earlier lines of the same request in a batch need not be parsed. Parsing them
 * makes a rebuild a sixth slower.
 */
function parseLines(texts: readonly string[]): { lines: Line[]; damaged: number } {
  const lines: Line[] = [];
  const closed = new Set<string>();
  let damaged = 0;
  for (const text of texts.toReversed()) {
    if (closed.has(BEFORE_CLOSE.exec(text)?.[1] ?? "")) continue;
    const line = parseLine(text);
    if (line === null) damaged += 1;
    else lines.push(line);
    if (line?.kind === "close") closed.add(line.id);
    // It does not apply to a record of this machine, which the earlier lines show it to be.
    if (line?.kind === "sibling" || line?.kind === "sibling-amend") closed.delete(line.id);
    if (line?.kind === "refusals") closed.delete(line.first_id);
  }
  return { lines: lines.reverse(), damaged };
}

/** A correction that may be invented changes no verified record, and no verified correction. */
function mayAmend(
  line: AmendLine | SiblingAmendLine,
  { verified }: { readonly verified?: boolean | null },
): boolean {
  return line.kind === "amend" || line.verified || verified !== true;
}

function amended(record: UsageRecord, line: AmendedFields): UsageRecord {
  return { ...record, ...pick(line, AMENDED) };
}

function marks(count: number): string {
  return Array(count).fill("?").join(", ");
}

/** Throws an IndexError if it is not JSON: the index is rebuilt then. */
function storedJson<T>(text: string): T {
  try {
    return JSON.parse(text);
  } catch {
    throw notOurs();
  }
}

function notOurs(): IndexError {
  return new IndexError("corrupt", "its contents are not ours");
}
