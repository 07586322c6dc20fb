import { join } from "node:path";
import type { Test } from "tap";
import { Limiter } from "../../src/limits/limiter.ts";
import { systemCalendar } from "../../src/limits/windows.ts";
import type { RecordStore, StreamEntry } from "../../src/shared/records.ts";
import { RecordPublisher } from "../../src/shared/records-publisher.ts";
import { type PublishingMachine, RecordSubscriber } from "../../src/shared/records-subscriber.ts";
import { openIndexForReading } from "../../src/usage/index/database.ts";
import type { AmendLine } from "../../src/usage/journal/lines.ts";
import { AMENDED } from "../../src/usage/journal/lines.ts";
import type { Closing, Opening, UsageRecord } from "../../src/usage/record.ts";
import { UsageLog } from "../../src/usage/usage-log.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import {
  closing,
  heldTicker,
  NOON,
  newFolder,
  opening,
  type SetClock,
  setClock,
} from "../usage/journal/journal-under-test.ts";

/** The streams and positions of a store. */
export interface TestStore {
  publish(
    machine: string,
    entries: readonly string[],
    from: string | null,
    to: string,
  ): Promise<string | null>;
  read(after: ReadonlyMap<string, string | null>, max: number): Promise<Map<string, StoredEntry[]>>;
  lastEntry(machine: string): Promise<string | null>;
  readonly generation: string;
}

/** Whether it is signed is up to the machine that reads it. */
type StoredEntry = Omit<StreamEntry, "isVerified">;

const FIRST_NUMBER = 1_000_000;

/** A store in memory. It can lose its data. The clock of the server that replaces it is behind. */
export class MemoryStore implements TestStore {
  readonly streams = new Map<string, StoredEntry[]>();
  readonly #positions = new Map<string, string>();
  #losses = 0;
  #number = FIRST_NUMBER;

  get generation(): string {
    return String(this.#losses);
  }

  async publish(machine: string, entries: readonly string[], from: string | null, to: string) {
    const position = this.#positions.get(machine) ?? null;
    if (position !== from) return position;
    for (const text of entries) this.add(machine, text);
    this.#positions.set(machine, to);
    return to;
  }

  async read(after: ReadonlyMap<string, string | null>, max: number) {
    const found = new Map<string, StoredEntry[]>();
    for (const [machine, id] of after) {
      const stream = this.streams.get(machine) ?? [];
      const entries = stream.filter((entry) => id === null || numberOf(entry.id) > numberOf(id));
      found.set(machine, entries.slice(0, max));
    }
    return found;
  }

  async lastEntry(machine: string): Promise<string | null> {
    return this.streams.get(machine)?.at(-1)?.id ?? null;
  }

  add(machine: string, text: string): void {
    this.#number += 1;
    const stream = this.streams.get(machine) ?? [];
    stream.push({ id: `${this.#number}-0`, text });
    this.streams.set(machine, stream);
  }

  loseData(): void {
    this.#losses += 1;
    this.#number = FIRST_NUMBER - 1000 * this.#losses;
    this.streams.clear();
    this.#positions.clear();
  }
}

function numberOf(id: string): number {
  return Number(id.split("-", 1)[0]);
}

/** What can go wrong between a machine and its store. */
export type Fault = "none" | "unreachable" | "lost answer";

/** One machine with a real journal and a real index. */
export class RecordMachine {
  readonly id: string;
  readonly state: string;
  readonly clock: SetClock;
  readonly logLines: string[] = [];
  readonly batches: (readonly string[])[] = [];
  name: string;
  fault: Fault = "none";
  /** The secret of this machine. null: it has none. It counts after a restart. */
  signerId: string | null = "a secret";
  /** Milliseconds that the store's clock is ahead. */
  offset = 0;
  positions: Readonly<Record<string, string>> = {};
  /** false: the process dies before it stores what it read. */
  canSave = true;
  usage: UsageLog;
  publisher: RecordPublisher;
  subscriber: RecordSubscriber;
  readonly #store: TestStore;
  readonly #ticker = heldTicker();

  constructor(t: Test, name: string, store: TestStore, clock: SetClock = setClock(NOON)) {
    this.id = `id-of-${name}`;
    this.name = name;
    this.#store = store;
    this.clock = clock;
    this.state = newFolder(t);
    this.usage = this.#openUsage();
    this.publisher = this.#newPublisher();
    this.subscriber = this.#newSubscriber();
    // None of the log's timers keeps a process alive.
    const alive = setInterval(() => {}, 1000);
    t.teardown(async () => {
      clearInterval(alive);
      await this.usage.stop();
    });
  }

  get folder(): string {
    return join(this.state, "usage");
  }

  get index(): string {
    return join(this.state, "index.db");
  }

  #openUsage(): UsageLog {
    const { clock } = this;
    return new UsageLog({
      folder: this.folder,
      index: this.index,
      clock,
      ticker: this.#ticker,
      log: quietLog(this.logLines),
      sync: "normal",
      keep: () => 400 * 86_400_000,
      limiter: new Limiter(clock, systemCalendar),
    });
  }

  #recordStore(): RecordStore {
    const store = this.#store;
    return {
      get generation() {
        return store.generation;
      },
      signerId: this.signerId,
      publish: async (entries, from, to) => {
        if (this.fault === "unreachable") throw new Error("the store cannot be reached");
        if (entries.length > 0) this.batches.push(entries);
        const answer = await this.#store.publish(this.id, entries, from, to);
        if (this.fault === "lost answer") throw new Error("the store did not answer");
        return answer;
      },
      read: async (after, max) => {
        if (this.fault !== "none") throw new Error("the store cannot be reached");
        const found = await this.#store.read(after, max);
        const signed = (entries: readonly StoredEntry[]) =>
          entries.map((entry) => ({ ...entry, isVerified: this.signerId !== null }));
        return new Map([...found].map(([id, entries]) => [id, signed(entries)]));
      },
      clockOffset: () => this.offset,
    };
  }

  #newPublisher(): RecordPublisher {
    const { clock } = this;
    const { journal } = this.usage;
    return new RecordPublisher({
      journalFolder: this.folder,
      journal,
      store: this.#recordStore(),
      clock,
      log: quietLog(this.logLines),
    });
  }

  #newSubscriber(): RecordSubscriber {
    const { usage, clock } = this;
    return new RecordSubscriber({
      // One tick has to be enough, also on a slow machine. The product tries again each second.
      usage: { read: (query) => usage.read(query), catchUp: () => usage.catchUp(60_000) },
      journal: usage.journal,
      store: this.#recordStore(),
      positions: {
        get: () => this.positions,
        set: async (positions) => {
          if (!this.canSave) throw new Error("the process was killed");
          this.positions = positions;
        },
      },
      clock,
      log: quietLog(this.logLines),
    });
  }

  /** A second of the usage log, which writes what waits for the disk. */
  second(): void {
    this.#ticker.pass();
  }

  /** As after kill -9: nothing is left but the files. */
  async restart(): Promise<void> {
    await this.usage.stop();
    this.usage = this.#openUsage();
    this.publisher = this.#newPublisher();
    this.subscriber = this.#newSubscriber();
    this.canSave = true;
  }

  async begin(given: Partial<Opening> = {}): Promise<Opening> {
    const begun = opening({ started_at: this.clock.time, ...given });
    if (!(await this.usage.journal.open(begun))) throw new Error("the journal cannot be written");
    return begun;
  }

  /** Sends a request that ends at once. Returns its id. */
  async send(given: Partial<Opening> = {}, end: Partial<Closing> = {}): Promise<string> {
    const { id } = await this.begin(given);
    this.usage.journal.close(id, closing({ ended_at: this.clock.time + 1000, ...end }));
    return id;
  }

  /** The console corrects a record of this machine. */
  bill(id: string, billed_microdollars: number): void {
    const record = { ...closing(), billed_microdollars } as unknown as UsageRecord;
    const fields = Object.fromEntries(AMENDED.map((name) => [name, record[name]]));
    this.usage.journal.append({ kind: "amend", id, ...fields, limits: null } as AmendLine);
  }

  /** As the other machines see it. */
  async published(): Promise<PublishingMachine> {
    const { id, name } = this;
    const publishedUntil = this.publisher.publishedUntil();
    return { id, name, isVerified: true, publishedUntil, lastEntry: await this.#store.lastEntry(id) };
  }

  async subscribe(others: readonly RecordMachine[]): Promise<void> {
    const machines = others.filter((other) => other !== this).map((other) => other.published());
    await this.subscriber.tick(await Promise.all(machines));
  }

  /** Every record in its index, by id. */
  async records(): Promise<UsageRecord[]> {
    const { current } = await this.usage.catchUp(60_000);
    if (!current) throw new Error("the index is not up to date");
    return recordsOf(this.index);
  }
}

export function recordsOf(index: string): UsageRecord[] {
  const { db, close } = openIndexForReading(index);
  try {
    const rows = db.prepare("SELECT * FROM usage.records ORDER BY id").all() as Record<string, unknown>[];
    return rows.map((row) => row as unknown as UsageRecord);
  } finally {
    close();
  }
}

/** Everything is published, and everything is read. */
export async function exchange(machines: readonly RecordMachine[]): Promise<void> {
  for (const machine of machines) await machine.publisher.tick();
  for (const machine of machines) await machine.subscribe(machines);
}
