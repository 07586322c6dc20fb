import { join } from "node:path";
import type { OurRequest, TheirRow } from "../../src/mirror/reconcile/context.ts";
import { reconcile } from "../../src/mirror/reconcile/reconcile.ts";
import { openIndexForReading } from "../../src/usage/index/database.ts";
import { type Dimension, readReport } from "../../src/usage/reports/report.ts";
import { catchUp, writeJournal } from "../doubles/journal.ts";
import { contextOf, makeDay, theirsOf } from "../doubles/mirror-day.ts";
import { plausible } from "../doubles/records.ts";
import { median } from "./results.ts";

/*
 * What the usage log and the comparison with a console take, apart from requests, in CPU time.
 *   node usage-log.js <state folder> <records>
 */

const CONSOLE_ROWS = 20_000;
const ROUNDS = 5;
const DAY_MS = 86_400_000;
const DAYS = 400;
const NOW = Date.UTC(2026, 10, 15, 12);

function cpuMs(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1000;
}

/** In parts, because the lines of a million records do not fit into memory. */
function writeRecords(folder: string, count: number): void {
  const days = 40;
  for (let day = 0; day < DAYS; day += days) {
    const from = NOW - (DAYS - day) * DAY_MS;
    writeJournal(folder, plausible(Math.round((count / DAYS) * days), from, days, day + 1));
  }
}

function measureReports(indexFile: string): Record<string, number> {
  const { db, close } = openIndexForReading(indexFile);
  const lastWeek = { since: NOW - 7 * DAY_MS, until: null };
  const ever = { since: null, until: null };
  const reports: { name: string; by: Dimension[]; period: typeof ever | typeof lastWeek }[] = [
    { name: "7 days by tool", by: ["tool"], period: lastWeek },
    { name: "400 days by tool and model", by: ["tool", "model"], period: ever },
    { name: "400 days by day and tool", by: ["day", "tool"], period: ever },
    { name: "400 days by hour", by: ["hour"], period: ever },
  ];
  const measured: Record<string, number> = {};
  for (const { name, by, period } of reports) {
    const rounds: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const began = process.cpuUsage();
      readReport(db, { by, period, tools: [], models: [], machines: [], projects: [], sessions: [] }, NOW);
      rounds.push(cpuMs(began));
    }
    measured[`CPU ms, report ${name}`] = median(rounds);
  }
  close();
  return measured;
}

/** A day as it is, or with all its requests alike, close together and without ids. */
function measureReconcile(isAlike: boolean): number {
  const day = makeDay({ requests: CONSOLE_ROWS, ids: !isAlike });
  const ours = isAlike ? day.ours.map((record, at) => alikeRecord(record, at)) : day.ours;
  const theirs = isAlike ? theirsOf(day).map((row, at) => alikeRow(row, at)) : theirsOf(day);
  const context = contextOf(day);
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const began = process.cpuUsage();
    reconcile(ours, theirs, context);
    rounds.push(cpuMs(began));
  }
  return median(rounds);
}

/** Ten milliseconds apart. */
const ALIKE_MS = 10;

function alikeRecord(record: OurRequest, at: number): OurRequest {
  const sent = NOW - DAY_MS + at * ALIKE_MS;
  const tokens = { input: 1200, cache_read: 0, cache_write: 0, output: 300 };
  const times = { started_at: sent, sent_at: sent, ended_at: sent + 2000 };
  return { ...record, ...times, key: "…a1b2", model: "gpt-5.1", stream: true, tokens, exact: true };
}

function alikeRow(row: TheirRow, at: number): TheirRow {
  const tokens = { input_tokens: 1200, cache_read_tokens: 0, cache_write_tokens: 0, output_tokens: 300 };
  const written = NOW - DAY_MS + at * ALIKE_MS + 2400;
  return { ...row, ...tokens, key: "…a1b2", model: "gpt-5.1", stream: true, at: written, began: null };
}

function main(state: string, records: number): void {
  writeRecords(join(state, "usage"), records);
  const began = process.cpuUsage();
  catchUp(state);
  process.send?.({
    [`CPU ms, rebuild the index of ${records.toLocaleString("en")} records`]: cpuMs(began),
    ...measureReports(join(state, "index.db")),
    [`CPU ms, reconcile ${CONSOLE_ROWS.toLocaleString("en")} console rows`]: measureReconcile(false),
    [`CPU ms, reconcile ${CONSOLE_ROWS.toLocaleString("en")} console rows that are alike`]:
      measureReconcile(true),
  });
  process.disconnect();
}

const [state = "", records] = process.argv.slice(2);
main(state, Number(records));
