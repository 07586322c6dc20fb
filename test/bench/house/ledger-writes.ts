import { randomBytes } from "node:crypto";
import type { Logger } from "../../../src/logger.ts";
import { createLedger } from "../../../src/usage/ledger/ledger.ts";
import type { UsageRecord } from "../../../src/usage/record.ts";
import { record } from "../../doubles/records.ts";
import { median } from "../report/statistics.ts";

/*
 * What one record costs as requests write it, opened on disk and completed later, behind all that is in the log already.
 *   node ledger-writes.js <usage.db>
 */

export interface LedgerWrites {
  readonly atOnce: number;
  readonly records: number;
  readonly perSecond: number;
  /** Of the processor, for one record opened and completed. */
  readonly cpuMicroseconds: number;
}

const ROUNDS = 5;
const A_ROUND = 4000;
const [file = ""] = process.argv.slice(2);
const trouble = (words: unknown, message: string) => {
  throw new Error(`${message} ${JSON.stringify(words)}`);
};
const ledger = createLedger({
  file,
  clock: { now: () => Date.now(), elapsed: () => performance.now() },
  log: { info: () => {}, debug: () => {}, warn: trouble, error: trouble } as unknown as Logger,
  keep: () => 4000 * 86_400_000,
  sync: "normal",
});

function fresh(number: number): UsageRecord {
  const made = record(number, { started_at: Date.now() });
  return { ...made, id: made.id.slice(0, 10) + randomBytes(8).toString("hex").toUpperCase() };
}

async function write(lanes: number): Promise<{ ms: number; cpu: number }> {
  const records = Array.from({ length: A_ROUND }, (_, number) => fresh(number));
  const [began, used] = [performance.now(), process.cpuUsage()];
  const lane = async () => {
    for (let one = records.pop(); one !== undefined; one = records.pop()) {
      if (!(await ledger.open(one))) throw new Error("a record could not be written");
      // The answer of a gateway takes at least a turn of the event loop.
      await new Promise((resolve) => setImmediate(resolve));
      ledger.close(one.id, one);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  // What is finished may wait to be written with others: that belongs to the time, too.
  if (ledger.ask(() => true) !== true) throw new Error("what was finished could not be written");
  const { user, system } = process.cpuUsage(used);
  return { ms: performance.now() - began, cpu: user + system };
}

const results: LedgerWrites[] = [];
for (const atOnce of [1, 16, 64]) {
  const rounds = [];
  for (let round = 0; round < ROUNDS; round += 1) rounds.push(await write(atOnce));
  results.push({
    atOnce,
    records: ROUNDS * A_ROUND,
    perSecond: A_ROUND / (median(rounds.map(({ ms }) => ms)) / 1000),
    cpuMicroseconds: median(rounds.map(({ cpu }) => cpu)) / A_ROUND,
  });
}
await ledger.stop();
process.stdout.write(`${JSON.stringify(results)}\n`);
