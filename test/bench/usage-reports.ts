import { existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openForReading } from "../../src/usage/ledger/connect.ts";
import { readReport } from "../../src/usage/report/read.ts";
import type { Dimension } from "../../src/usage/report/report.ts";
import { plausible, writeRecords } from "../doubles/records.ts";

/**
 * What each report takes over a million records of 400 days, in milliseconds of the processor, so that others on the
 * machine do not count: the query and what is made of it, without the start of the program. With a file name, that log is used, or made and kept.
 *   node test/bench/usage-reports.ts [usage.db] [records]
 */
const DAY = 86_400_000;
const now = Date.UTC(2026, 10, 15, 12);
const folder = mkdtempSync(join(tmpdir(), "kb-bench-"));
const file = process.argv[2] ?? join(folder, "usage.db");
const count = Number(process.argv[3] ?? 1_000_000);

const say = (text: string) => process.stdout.write(`${text}\n`);

try {
  if (!existsSync(file)) {
    const began = performance.now();
    writeRecords(file, plausible(count, now - 400 * DAY, 400));
    say(`${count} records written in ${Math.round(performance.now() - began)} ms`);
  }
  const opened = openForReading(file);
  if (!opened.ok) throw new Error(opened.words);
  const { db, close } = opened.connection;
  const cells = db.prepare("SELECT count(*) FROM cells").raw().get() as number[];
  say(`${(statSync(file).size / 1e6).toFixed(0)} MB, ${cells[0]} cells`);

  const all = { since: null, until: null };
  const odd = { since: now - 400 * DAY + 7 * 60_000 + 123, until: now - 7 * 60_000 };
  const reports: [string, Dimension[], { since: number | null; until: number | null }, string[]?][] = [
    ["the last 7 days by tool", ["tool"], { since: now - 7 * DAY, until: null }],
    ["the last 30 days by day", ["day"], { since: now - 30 * DAY, until: null }],
    ["all by tool", ["tool"], all],
    ["all by model", ["model"], all],
    ["all by key", ["key"], all],
    ["all by group", ["group"], all],
    ["all by gateway", ["gateway"], all],
    ["all by day", ["day"], all],
    ["all by tool and model", ["tool", "model"], all],
    ["all by day and tool", ["day", "tool"], all],
    ["all by day and model", ["day", "model"], all],
    ["the last 31 days by hour", ["hour"], { since: now - 31 * DAY, until: null }],
    ["all by hour", ["hour"], all],
    ["400 days with cut edges by tool", ["tool"], odd],
    ["one tool by day", ["day"], all, ["codex"]],
  ];
  for (const [name, by, period, tools = []] of reports) {
    const times: number[] = [];
    let rows = 0;
    for (let round = 0; round < 5; round += 1) {
      const began = process.cpuUsage();
      rows = readReport(db, { by, period, tools, models: [] }, now).rows.length;
      times.push(process.cpuUsage(began).user / 1000);
    }
    times.sort((a, b) => a - b);
    const [best = 0, , median = 0, , worst = 0] = times;
    say(
      `${name.padEnd(34)} ${String(rows).padStart(6)} rows   median ${median.toFixed(0)} ms   ${best.toFixed(0)}-${worst.toFixed(0)} ms`,
    );
  }
  close();
} finally {
  rmSync(folder, { recursive: true, force: true });
}
