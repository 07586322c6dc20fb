import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createBeat } from "../../src/beat.ts";
import type { Logger } from "../../src/logger.ts";
import { judge } from "../../src/mirror/match/judge.ts";
import { openIndexForReading } from "../../src/usage/index/database.ts";
import { Journal } from "../../src/usage/journal/journal.ts";
import { type Dimension, readReport } from "../../src/usage/reports/report.ts";
import { catchUp, writeJournal } from "../doubles/journal.ts";
import { makeDay, sceneOf, theirsOf } from "../doubles/mirror-day.ts";
import { plausible, record } from "../doubles/records.ts";
import { median } from "./statistics.ts";

/*
 * What the usage log and the comparison with a console take, apart from requests. All times are CPU time.
 *   node usage-log.js <folder> <records> <console rows>
 */

export interface UsageLogResult {
  readonly records: number;
  /** Appending the open, head and close lines of one record. */
  readonly appendMicroseconds: number;
  /** Making the index of all records from the journal. */
  readonly rebuildMs: number;
  readonly reports: readonly { readonly name: string; readonly ms: number }[];
  readonly consoleRows: number;
  /** Comparing that many console rows with as many records. */
  readonly reconcileMs: number;
}

const ROUNDS = 5;
const DAY_MS = 86_400_000;
const DAYS = 400;
const NOW = Date.UTC(2026, 10, 15, 12);

function cpuMs(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1000;
}

function failingLog(): Logger {
  const fail = (fields: unknown, message: string) => {
    throw new Error(`${message} ${JSON.stringify(fields)}`);
  };
  return { info: () => {}, debug: () => {}, warn: fail, error: fail } as unknown as Logger;
}

async function measureAppends(folder: string): Promise<number> {
  const journal = new Journal({
    folder,
    clock: { now: () => Date.now(), elapsed: () => performance.now() },
    beat: createBeat(),
    log: failingLog(),
    sync: "normal",
    carry: () => [],
    replay: () => {},
    startReplay: () => {},
    endReplay: () => {},
    onAppend: () => {},
  });
  const recordsPerRound = 5000;
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const records = Array.from({ length: recordsPerRound }, (_, number) => {
      const made = record(number, { started_at: Date.now() });
      return { ...made, id: made.id.slice(0, 10) + randomBytes(8).toString("hex").toUpperCase() };
    });
    const began = process.cpuUsage();
    for (const one of records) {
      if (!(await journal.open(one))) throw new Error("a record could not be appended");
      const { first_byte_at, gateway_ids } = one;
      journal.head(one.id, { status: 200, first_byte_at, gateway_ids });
      journal.close(one.id, one);
    }
    rounds.push((cpuMs(began) * 1000) / recordsPerRound);
  }
  journal.stop();
  return median(rounds);
}

/** In parts, because the lines of a million records do not fit into memory. */
function writeRecords(folder: string, count: number): void {
  const days = 40;
  for (let day = 0; day < DAYS; day += days) {
    const from = NOW - (DAYS - day) * DAY_MS;
    writeJournal(folder, plausible(Math.round((count / DAYS) * days), from, days, day + 1));
  }
}

function measureReports(indexFile: string): { name: string; ms: number }[] {
  const { db, close } = openIndexForReading(indexFile);
  const lastWeek = { since: NOW - 7 * DAY_MS, until: null };
  const ever = { since: null, until: null };
  // Rollups are per quarter hour. The edges of this period are in the middle of one, so records are read for them.
  const oddPeriod = { since: NOW - DAYS * DAY_MS + 420_123, until: NOW - 420_000 };
  const reports: {
    name: string;
    by: Dimension[];
    period: typeof ever | typeof lastWeek | typeof oddPeriod;
  }[] = [
    { name: "7 days by tool", by: ["tool"], period: lastWeek },
    { name: "400 days by tool and model", by: ["tool", "model"], period: ever },
    { name: "400 days by day and tool", by: ["day", "tool"], period: ever },
    { name: "400 days by hour", by: ["hour"], period: ever },
    { name: "400 days with odd edges by tool", by: ["tool"], period: oddPeriod },
  ];
  const measured = reports.map(({ name, by, period }) => {
    const rounds: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const began = process.cpuUsage();
      readReport(db, { by, period, tools: [], models: [] }, NOW);
      rounds.push(cpuMs(began));
    }
    return { name, ms: median(rounds) };
  });
  close();
  return measured;
}

function measureReconcile(rows: number): number {
  const day = makeDay({ requests: rows, ids: true });
  const theirs = theirsOf(day);
  const context = sceneOf(day);
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const began = process.cpuUsage();
    judge(day.ours, theirs, context);
    rounds.push(cpuMs(began));
  }
  return median(rounds);
}

async function main(folder: string, records: number, consoleRows: number): Promise<void> {
  const appendFolder = join(folder, "appends");
  mkdirSync(appendFolder, { recursive: true, mode: 0o700 });
  const appendMicroseconds = await measureAppends(appendFolder);
  const state = join(folder, "state");
  writeRecords(join(state, "usage"), records);
  const began = process.cpuUsage();
  catchUp(state);
  const result: UsageLogResult = {
    records,
    appendMicroseconds,
    rebuildMs: cpuMs(began),
    reports: measureReports(join(state, "index.db")),
    consoleRows,
    reconcileMs: measureReconcile(consoleRows),
  };
  process.send?.(result);
  process.disconnect();
}

const [folder = "", records, consoleRows] = process.argv.slice(2);
await main(folder, Number(records), Number(consoleRows));
