import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { createBeat } from "../../../src/beat.ts";
import type { Logger } from "../../../src/logger.ts";
import { UsageIndex } from "../../../src/usage/index/usage-index.ts";
import { Journal } from "../../../src/usage/journal/journal.ts";
import type { UsageRecord } from "../../../src/usage/record.ts";
import { record } from "../../doubles/records.ts";
import { median } from "../report/statistics.ts";

/*
 * What one record costs in the usage journal, as requests write it (open, head and close), and what it costs to index it.
 *   node journal-appends.js <state folder>
 */

export interface JournalTimes {
  readonly appends: readonly {
    readonly atOnce: number;
    readonly records: number;
    readonly perSecond: number;
    /** Of the processor, for one record opened, headed and closed. */
    readonly cpuMicroseconds: number;
  }[];
  /** Applying all of these lines to an empty index. In the daemon a thread of its own does it. */
  readonly indexing: {
    readonly records: number;
    readonly perSecond: number;
    readonly cpuMicroseconds: number;
  };
}

const ROUNDS = 5;
const RECORDS_PER_ROUND = 4000;
const [state = ""] = process.argv.slice(2);
const folder = join(state, "usage");
const fail = (fields: unknown, message: string) => {
  throw new Error(`${message} ${JSON.stringify(fields)}`);
};
const journal = new Journal({
  folder,
  clock: { now: () => Date.now(), elapsed: () => performance.now() },
  beat: createBeat(),
  log: { info: () => {}, debug: () => {}, warn: fail, error: fail } as unknown as Logger,
  sync: "normal",
  carry: () => [],
  replay: () => {},
  startReplay: () => {},
  endReplay: () => {},
  onAppend: () => {},
});

function newRecord(number: number): UsageRecord {
  const made = record(number, { started_at: Date.now() });
  return { ...made, id: made.id.slice(0, 10) + randomBytes(8).toString("hex").toUpperCase() };
}

async function write(atOnce: number): Promise<{ ms: number; cpu: number }> {
  const records = Array.from({ length: RECORDS_PER_ROUND }, (_, number) => newRecord(number));
  const began = performance.now();
  const used = process.cpuUsage();
  const writeSome = async () => {
    for (let next = records.pop(); next !== undefined; next = records.pop()) {
      if (!(await journal.open(next))) throw new Error("a record could not be written");
      // The response of a gateway takes at least a turn of the event loop.
      await new Promise((resolve) => setImmediate(resolve));
      const { first_byte_at, gateway_ids } = next;
      journal.head(next.id, { status: 200, first_byte_at, gateway_ids });
      await new Promise((resolve) => setImmediate(resolve));
      journal.close(next.id, next);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, writeSome));
  const { user, system } = process.cpuUsage(used);
  return { ms: performance.now() - began, cpu: user + system };
}

async function measureAppends(atOnce: number): Promise<JournalTimes["appends"][number]> {
  const rounds = [];
  for (let round = 0; round < ROUNDS; round += 1) rounds.push(await write(atOnce));
  return {
    atOnce,
    records: ROUNDS * RECORDS_PER_ROUND,
    perSecond: RECORDS_PER_ROUND / (median(rounds.map(({ ms }) => ms)) / 1000),
    cpuMicroseconds: median(rounds.map(({ cpu }) => cpu)) / RECORDS_PER_ROUND,
  };
}

function measureIndexing(records: number): JournalTimes["indexing"] {
  const index = new UsageIndex({ file: join(state, "index.db"), folder }, null);
  const began = performance.now();
  const used = process.cpuUsage();
  for (const _ of index.catchUp());
  const { user, system } = process.cpuUsage(used);
  const ms = performance.now() - began;
  const { share, damagedLines } = index.progress();
  index.close();
  if (share !== 1 || damagedLines > 0) throw new Error("not everything could be indexed");
  return { records, perSecond: records / (ms / 1000), cpuMicroseconds: (user + system) / records };
}

const appends: JournalTimes["appends"][number][] = [];
for (const atOnce of [1, 16, 64]) appends.push(await measureAppends(atOnce));
journal.stop();
const written = appends.reduce((sum, { records }) => sum + records, 0);
const result: JournalTimes = { appends, indexing: measureIndexing(written) };
process.stdout.write(`${JSON.stringify(result)}\n`);
process.exit();
