import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import type Database from "libsql";
import { openIndexForReading } from "../../../src/usage/index/database.ts";
import type { Dimension } from "../../../src/usage/reports/report.ts";
import { readReport } from "../../../src/usage/reports/report.ts";
import { catchUp, writeJournal } from "../../doubles/journal.ts";
import { plausible } from "../../doubles/records.ts";
import { median } from "../report/statistics.ts";

/*
 * What each report takes over so many records of 400 days: the query and what is made of it, without the start of the
 * program. The index is made where there is none, and kept.
 *   node usage-reports.js <state folder> <records>
 */

export interface ReportTimes {
  readonly records: number;
  readonly rollups: number;
  readonly megabytes: number;
  /** What it took to make the index from the journal; null: it was there already. */
  readonly rebuiltMs: number | null;
  readonly reports: readonly {
    readonly name: string;
    readonly rows: number;
    readonly ms: number;
    /** Of the processor, so that others on the machine do not count. */
    readonly cpuMs: number;
  }[];
}

const DAY = 86_400_000;
const ROUNDS = 5;
const NOW = Date.UTC(2026, 10, 15, 12);

type Wish = readonly [string, Dimension[], { since: number | null; until: number | null }, string[]?];

function wishes(): Wish[] {
  const all = { since: null, until: null };
  const odd = { since: NOW - 400 * DAY + 7 * 60_000 + 123, until: NOW - 7 * 60_000 };
  return [
    ["the last 7 days by tool", ["tool"], { since: NOW - 7 * DAY, until: null }],
    ["the last 30 days by day", ["day"], { since: NOW - 30 * DAY, until: null }],
    ["all by tool", ["tool"], all],
    ["all by model", ["model"], all],
    ["all by key", ["key"], all],
    ["all by group", ["group"], all],
    ["all by gateway", ["gateway"], all],
    ["all by day", ["day"], all],
    ["all by tool and model", ["tool", "model"], all],
    ["all by day and tool", ["day", "tool"], all],
    ["all by day and model", ["day", "model"], all],
    ["the last 31 days by hour", ["hour"], { since: NOW - 31 * DAY, until: null }],
    ["all by hour", ["hour"], all],
    ["400 days with cut edges by tool", ["tool"], odd],
    ["one tool by day", ["day"], all, ["codex"]],
  ];
}

function timed(db: Database.Database, [name, by, period, tools = []]: Wish) {
  const times: number[] = [];
  const cpu: number[] = [];
  let rows = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const [began, used] = [performance.now(), process.cpuUsage()];
    rows = readReport(db, { by, period, tools, models: [] }, NOW).rows.length;
    times.push(performance.now() - began);
    const { user, system } = process.cpuUsage(used);
    cpu.push((user + system) / 1000);
  }
  return { name, rows, ms: median(times), cpuMs: median(cpu) };
}

/** In parts: the lines of a million records do not fit into memory. */
function makeYear(state: string, count: number): void {
  const days = 40;
  for (let day = 0; day < 400; day += days) {
    const records = plausible(Math.round((count / 400) * days), NOW - (400 - day) * DAY, days, day + 1);
    writeJournal(join(state, "usage"), records);
  }
}

function rebuild(state: string): number {
  const began = performance.now();
  catchUp(state);
  return performance.now() - began;
}

const [state = "", count = "1000000"] = process.argv.slice(2);
const file = join(state, "index.db");
const isThere = existsSync(file);
if (!isThere) makeYear(state, Number(count));
const rebuiltMs = isThere ? null : rebuild(state);
const { db, close } = openIndexForReading(file);
const counted = (table: string) =>
  Number((db.prepare(`SELECT count(*) FROM ${table}`).raw().get() as number[])[0]);
const result: ReportTimes = {
  records: counted("records"),
  rollups: counted("rollups"),
  megabytes: statSync(file).size / 1e6,
  rebuiltMs,
  reports: wishes().map((wish) => timed(db, wish)),
};
close();
process.stdout.write(`${JSON.stringify(result)}\n`);
