import type { Clock } from "../core/clock.ts";
import { errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { HOUR_MS } from "../core/units.ts";
import { dayOf } from "../usage/journal/files.ts";
import type { Journal } from "../usage/journal/journal.ts";
import { AMENDED, isMachineName, type SiblingAmendLine, type SiblingLine } from "../usage/journal/lines.ts";
import type { UsageRecord } from "../usage/record.ts";
import { recordsById } from "../usage/reports/records.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import { ENTRY_ID, parseEntry, type RecordStore, type StreamEntry } from "./records.ts";

/** Another machine that uses the same store. */
export interface PublishingMachine {
  readonly id: string;
  readonly name: string;
  /** What it says of itself is signed. */
  readonly isVerified: boolean;
  /** What its publisher said, by this machine's clock; null: unknown. */
  readonly publishedUntil: number | null;
  /** The last entry of its stream, read together with publishedUntil or later; null: it has none. */
  readonly lastEntry: string | null;
}

interface SubscriberDeps {
  readonly usage: Pick<UsageLog, "read" | "catchUp">;
  readonly journal: Pick<Journal, "append" | "flush">;
  readonly store: Pick<RecordStore, "read" | "clockOffset" | "generation">;
  /** The last entry that was read of each machine's stream, by the machine's id. */
  readonly positions: {
    get(): Readonly<Record<string, string>>;
    set(positions: Readonly<Record<string, string>>): Promise<void>;
  };
  readonly clock: Clock;
  readonly log: Logger;
}

/** Of all machines, in one step. Entries have 66 KB at most, so the store's answer stays below MAX_REPLY. */
const MAX_ENTRIES = 100;
/** The rest waits for the next call. */
const MAX_STEPS = 40;
/** Of all machines together, in a day. Otherwise a wrong store could fill the disk. */
const MAX_CHARACTERS_PER_DAY = 256 * 1024 * 1024;
const LOG_EVERY_MS = HOUR_MS;

type Line = SiblingLine | SiblingAmendLine;

/**
 * Reads what the other machines publish, and appends it to this machine's journal. A position is stored once its lines are
 * on the disk. So after a crash some entries are read again, which is harmless: lines apply by id.
 */
export class RecordSubscriber {
  readonly #deps: SubscriberDeps;
  #isStopped = false;
  readonly #seenUntil = new Map<string, { readonly until: number; readonly isVerified: boolean }>();
  /** Machines whose stream is read from its beginning, although much of it may be here already. */
  readonly #rereading = new Set<string>();
  /**
   * Records of which a line was appended while a stream was read again. Their corrections that follow must be appended, too,
   * so that the newest one counts.
   */
  readonly #appended = new Set<string>();
  readonly #skipped = new Map<string, { count: number; loggedAt: number }>();
  /** Machines whose position was checked in this generation. */
  readonly #checked = new Set<string>();
  #generation: string | null = null;
  /** How much was read today. */
  #read = { day: "", characters: 0 };
  #problem: string | null = null;

  constructor(deps: SubscriberDeps) {
    this.#deps = deps;
  }

  /**
   * All records of a machine from before this time are in the journal. By this machine's clock. null: unknown.
   * @param isVerified whether the machine signs now. What was known of it before it did does not count.
   */
  seenUntil(machineId: string, isVerified: boolean): number | null {
    const seen = this.#seenUntil.get(machineId);
    return seen?.isVerified === isVerified ? seen.until : null;
  }

  /** What is in flight ends soon, and nothing more is read. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Reads what is new. To be called about each second while the store is connected, one call after the other. */
  async tick(machines: readonly PublishingMachine[]): Promise<void> {
    if (this.#isStopped) return;
    try {
      if (this.#deps.store.generation !== this.#generation) this.#checked.clear();
      this.#generation = this.#deps.store.generation;
      const known = machines.filter(({ id, name }) => isMachineName(id) && isMachineName(name));
      if (await this.#checkPositions(known)) await this.#readAll(known);
      this.#problem = null;
    } catch (error) {
      const problem = errorMessage(error);
      if (problem !== this.#problem)
        this.#deps.log.warn({ problem }, "records of other machines are not read; keybearer tries again");
      this.#problem = problem;
    }
  }

  /**
   * Once after a start, and once in each generation. A machine's stream is read again from its beginning if it no longer has
   * the last entry that was read, because the store lost data, or if this machine's journal does not have that entry's
   * record, because an older copy of the journal was restored. False: that is not known now, so nothing may be read.
   */
  async #checkPositions(machines: readonly PublishingMachine[]): Promise<boolean> {
    const { store, positions } = this.#deps;
    const unchecked = machines.filter(({ id }) => !this.#checked.has(id)).map(({ id }) => id);
    const before = new Map<string, string>();
    for (const id of unchecked) {
      const position = this.#position(id);
      if (position !== null) before.set(id, idBefore(position));
    }
    if (before.size > 0) {
      const found = await store.read(before, 1);
      const records = this.#lastRecords(found);
      const known = await this.#knownRecords([...records.values()]);
      if (known === null) return false;
      const kept = { ...positions.get() };
      for (const { id: machineId, isVerified } of machines) {
        if (!before.has(machineId)) continue;
        const isThere = found.get(machineId)?.[0]?.id === this.#position(machineId);
        const record = records.get(machineId);
        const isKnown = record === undefined || known.has(record);
        if (!(isThere && isKnown)) delete kept[machineId];
        // Also older ones may be missing.
        if (!isKnown) this.#seenUntil.set(machineId, { until: 0, isVerified });
      }
      await positions.set(kept);
    }
    for (const id of unchecked) this.#checked.add(id);
    return true;
  }

  /** The id of the record in each machine's entry. A correction is left out: its record may be older than the stream. */
  #lastRecords(found: ReadonlyMap<string, readonly StreamEntry[]>): ReadonlyMap<string, string> {
    const { store, clock } = this.#deps;
    const records = new Map<string, string>();
    for (const [machineId, [last]] of found) {
      if (last === undefined) continue;
      const entry = parseEntry(last.text, clock.now(), store.clockOffset());
      if (entry.kind === "record") records.set(machineId, entry.record.id);
    }
    return records;
  }

  async #readAll(machines: readonly PublishingMachine[]): Promise<void> {
    for (let step = 0; step < MAX_STEPS; step += 1) {
      this.#checkAmount();
      const hasMore = await this.#readStep(machines);
      this.#noteSeen(machines);
      if (!hasMore || this.#isStopped) return;
    }
  }

  #checkAmount(): void {
    const day = dayOf(this.#deps.clock.now());
    if (day !== this.#read.day) this.#read = { day, characters: 0 };
    if (this.#read.characters > MAX_CHARACTERS_PER_DAY)
      throw new Error("they published more than 256 MB today, and the rest is read tomorrow");
  }

  /** False: nothing more can be read now. */
  async #readStep(machines: readonly PublishingMachine[]): Promise<boolean> {
    const { store, journal, positions } = this.#deps;
    const before = new Map(machines.map(({ id }) => [id, this.#position(id)]));
    // In another generation the positions must be checked first.
    if (before.size === 0 || store.generation !== this.#generation) return false;
    const max = Math.ceil(MAX_ENTRIES / machines.length);
    const found = await store.read(before, max);
    const lines: Line[] = [];
    // Only of machines that are listed: a wrong store could list others all the time.
    const after: Record<string, string> = {};
    let hasMore = false;
    for (const machine of machines) {
      const from = before.get(machine.id) ?? null;
      if (from === null) this.#rereading.add(machine.id);
      else after[machine.id] = from;
      const entries = inOrder((found.get(machine.id) ?? []).slice(0, max), from);
      for (const entry of entries) {
        this.#read.characters += entry.text.length;
        const line = this.#readLine(machine, entry);
        if (line !== null) lines.push(line);
        after[machine.id] = entry.id;
      }
      if (entries.length === max) hasMore = true;
    }
    const added = await this.#withoutKnown(lines);
    if (added === null) return false;
    if (added.length > 0 && !(journal.append(...added) && (await journal.flush()))) return false;
    for (const line of added) if (this.#rereading.has(line.machine_id)) this.#appended.add(line.id);
    if (machines.some(({ id }) => after[id] !== (before.get(id) ?? undefined))) await positions.set(after);
    this.#endRereading(machines, found, max);
    return hasMore;
  }

  #position(machineId: string): string | null {
    const position = this.#deps.positions.get()[machineId];
    return position !== undefined && isEntryId(position) ? position : null;
  }

  #endRereading(
    machines: readonly PublishingMachine[],
    found: ReadonlyMap<string, readonly unknown[]>,
    max: number,
  ): void {
    for (const { id } of machines) if ((found.get(id)?.length ?? 0) < max) this.#rereading.delete(id);
    if (this.#rereading.size === 0) this.#appended.clear();
  }

  #noteSeen(machines: readonly PublishingMachine[]): void {
    for (const { id, publishedUntil, lastEntry, isVerified } of machines) {
      if (publishedUntil === null) continue;
      const position = this.#position(id);
      const isAllRead =
        lastEntry === null || (position !== null && isEntryId(lastEntry) && !isAfter(lastEntry, position));
      if (isAllRead) this.#seenUntil.set(id, { until: publishedUntil, isVerified });
    }
  }

  /** null: the entry is not valid. It is counted, and the entries after it are read. */
  #readLine({ id, name }: PublishingMachine, { text, isVerified }: StreamEntry): Line | null {
    const { clock, store } = this.#deps;
    const entry = parseEntry(text, clock.now(), store.clockOffset());
    const machine = { machine: name, machine_id: id, verified: isVerified };
    if (entry.kind === "record") return { kind: "sibling", ...entry.record, ...machine };
    if (entry.kind === "amend") return { kind: "sibling-amend", ...machine, id: entry.id, ...entry.fields };
    this.#skip(id, name, entry.problem);
    return null;
  }

  #skip(machineId: string, machine: string, problem: string): void {
    const { clock, log } = this.#deps;
    const skipped = this.#skipped.get(machineId) ?? { count: 0, loggedAt: Number.NEGATIVE_INFINITY };
    this.#skipped.set(machineId, skipped);
    skipped.count += 1;
    if (clock.elapsed() - skipped.loggedAt < LOG_EVERY_MS) return;
    skipped.loggedAt = clock.elapsed();
    log.warn(
      { machine, problem, skipped: skipped.count },
      `a record of machine ${machine} was skipped, because it is not valid`,
    );
  }

  /** By id. null: the index cannot be read now, or lacks something. */
  async #knownRecords(ids: readonly string[]): Promise<ReadonlyMap<string, UsageRecord> | null> {
    const { usage } = this.#deps;
    const { current } = await usage.catchUp();
    const records = current ? await usage.read((db) => recordsById(db, ids)) : null;
    return records === null ? null : new Map(records.map((record) => [record.id, record]));
  }

  /** Leaves out what the index has already, where a stream is read from its beginning. null: that is not known now. */
  async #withoutKnown(lines: readonly Line[]): Promise<readonly Line[] | null> {
    const repeated = lines.filter(({ machine_id }) => this.#rereading.has(machine_id));
    if (repeated.length === 0) return lines;
    const known = await this.#knownRecords([...new Set(repeated.map(({ id }) => id))]);
    if (known === null) return null;
    const appended = new Set(this.#appended);
    return lines.filter((line) => {
      const record = known.get(line.id);
      if (record === undefined || !this.#rereading.has(line.machine_id)) return true;
      if (line.kind === "sibling") return line.verified && record.verified === false;
      // An earlier correction was appended, so the later one that the index has must follow it.
      if (!appended.has(line.id) && isAmended(record, line)) return false;
      appended.add(line.id);
      return true;
    });
  }
}

function isAmended(record: UsageRecord, line: SiblingAmendLine): boolean {
  return AMENDED.every((name) => record[name] === line[name]);
}

function isEntryId(text: string): boolean {
  return ENTRY_ID.test(text);
}

function isAfter(id: string, other: string): boolean {
  const [, time = "", number = ""] = ENTRY_ID.exec(id) ?? [];
  const [, otherTime = "", otherNumber = ""] = ENTRY_ID.exec(other) ?? [];
  return Number(time) > Number(otherTime) || (time === otherTime && Number(number) > Number(otherNumber));
}

/** An id between this one and the entry before it. */
function idBefore(id: string): string {
  const [, time = "", number = ""] = ENTRY_ID.exec(id) ?? [];
  return Number(number) > 0
    ? `${time}-${Number(number) - 1}`
    : `${Number(time) - 1}-${Number.MAX_SAFE_INTEGER}`;
}

/** The entries up to the first whose id does not follow. Otherwise a wrong store could return the same ones forever. */
function inOrder(entries: readonly StreamEntry[], from: string | null): StreamEntry[] {
  const followed: StreamEntry[] = [];
  let last = from ?? "0-0";
  for (const entry of entries) {
    if (!isEntryId(entry.id) || !isAfter(entry.id, last)) break;
    followed.push(entry);
    last = entry.id;
  }
  return followed;
}
