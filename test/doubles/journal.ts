import { randomBytes } from "node:crypto";
import { appendFileSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { UsageIndex } from "../../src/usage/index/usage-index.ts";
import { dayOf } from "../../src/usage/journal/files.ts";
import type { UsageRecord } from "../../src/usage/record.ts";

/** The line a record has in the journal: open where it is in flight, close where it has ended, sibling where another machine sent it. */
export function lineOf({ machine, machine_id, requests: _, last_id: __, ...record }: UsageRecord): string {
  if (machine !== null) return `${JSON.stringify({ kind: "sibling", machine, machine_id, ...record })}\n`;
  return `${JSON.stringify({ kind: record.end === null ? "open" : "close", ...record })}\n`;
}

/** Writes records into a journal's folder, each into the file of the day it began, as an earlier run would have left them. */
export function writeJournal(folder: string, records: Iterable<UsageRecord>): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeTrust(dirname(folder));
  const days = new Map<string, string[]>();
  for (const record of records) {
    const day = dayOf(record.started_at);
    const lines = days.get(day) ?? [];
    lines.push(lineOf(record));
    days.set(day, lines);
  }
  for (const [day, lines] of days)
    appendFileSync(join(folder, `${day}.jsonl`), lines.join(""), { mode: 0o600 });
}

/** What an earlier run trusted: nothing yet. A usage log without it would mean that it was lost. */
export function writeTrust(state: string): void {
  const file = join(state, "trust.json");
  if (existsSync(file)) return;
  mkdirSync(state, { recursive: true, mode: 0o700 });
  const pins = {
    version: 1,
    salt: randomBytes(32).toString("hex"),
    lost: false,
    sources: [],
    uses: [],
    keys: [],
  };
  writeFileSync(file, JSON.stringify(pins), { mode: 0o600 });
}

/** Brings the index of a state folder up to date, as a command does while no daemon runs. */
export function catchUp(state: string): void {
  const index = new UsageIndex({ file: join(state, "index.db"), folder: join(state, "usage") }, null);
  for (const _ of index.catchUp());
  index.close();
}

/** An index of these records; returns its file. */
export function makeIndex(state: string, records: Iterable<UsageRecord>): string {
  writeJournal(join(state, "usage"), records);
  catchUp(state);
  return join(state, "index.db");
}
