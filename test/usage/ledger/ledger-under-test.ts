import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import type { Test } from "tap";
import type { Beat } from "../../../src/beat.ts";
import { type Clock, systemClock } from "../../../src/clock.ts";
import { requestId } from "../../../src/request-id.ts";
import { openForReading } from "../../../src/usage/ledger/connect.ts";
import { createLedger, type Ledger } from "../../../src/usage/ledger/ledger.ts";
import { RECORD_COLUMNS, recordOf } from "../../../src/usage/ledger/rows.ts";
import type { Closing, Opening, UsageRecord } from "../../../src/usage/record.ts";

export interface LedgerUnderTest {
  readonly ledger: Ledger;
  readonly file: string;
  /** Everything it logged. */
  log(): string;
}

export interface UnderTestOptions {
  readonly file?: string;
  readonly clock?: Clock;
  readonly keep?: () => number;
  readonly sync?: "normal" | "full";
  readonly beat?: Beat;
}

export const DAY = 86_400_000;

export function newFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), "kb-ledger-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A ledger on a real file, stopped when the test ends. */
export function startLedger(t: Test, options: UnderTestOptions = {}): LedgerUnderTest {
  const file = options.file ?? join(newFolder(t), "usage.db");
  const lines: string[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => void lines.push(line) });
  const ledger = createLedger({
    file,
    clock: options.clock ?? systemClock,
    log,
    keep: options.keep ?? (() => 400 * DAY),
    sync: options.sync ?? "normal",
    ...(options.beat === undefined ? {} : { beat: options.beat }),
  });
  // None of its timers keeps a process alive; in the daemon the ports do.
  const alive = setInterval(() => {}, 1000);
  t.teardown(() => {
    clearInterval(alive);
    return ledger.stop();
  });
  return { ledger, file, log: () => lines.join("") };
}

/** Seconds that pass only when told to: at each, a ledger looks at its file and tries what it could not do. */
export function heldBeat(): Beat & { pass(): void } {
  const works = new Set<() => void>();
  return {
    every(_beats, work) {
      works.add(work);
      return () => works.delete(work);
    },
    pass() {
      for (const work of works) work();
    },
  };
}

export function opening(given: Partial<Opening> = {}): Opening {
  const startedAt = given.started_at ?? Date.now();
  return {
    id: requestId(startedAt),
    started_at: startedAt,
    tool: "codex",
    gateway: "main",
    group: "coding",
    multiplier: 1.5,
    key: "…a1b2",
    protocol: "openai",
    method: "POST",
    endpoint: "/v1/chat/completions",
    model: "gpt-5.1",
    process: null,
    waited_ms: 0,
    held_tokens: null,
    held_microdollars: null,
    admitted_at: null,
    ...given,
  };
}

export function closing(given: Partial<Closing> = {}): Closing {
  return {
    first_byte_at: null,
    ended_at: Date.now(),
    model: null,
    model_answered: "gpt-5.1-2026",
    stream: true,
    status: 200,
    end: "complete",
    cause: null,
    refusal: null,
    input_tokens: 1200,
    cache_read_tokens: 800,
    cache_write_tokens: 0,
    output_tokens: 342,
    reasoning_tokens: 128,
    tokens_from: "reported",
    list_microdollars: 5420,
    cost_microdollars: 8130,
    bytes_in: 40_192,
    counts: null,
    counted_tokens: null,
    counted_microdollars: null,
    bytes_out: 18_231,
    gateway_ids: { "x-client-request-id": "0123" },
    ...given,
  };
}

export const REFUSED = closing({
  end: "refused",
  refusal: "rate-limited",
  status: 429,
  stream: null,
  input_tokens: null,
  cache_read_tokens: null,
  cache_write_tokens: null,
  output_tokens: null,
  reasoning_tokens: null,
  tokens_from: "none",
  list_microdollars: null,
  cost_microdollars: null,
  gateway_ids: {},
});

/** What another program sees in the file. */
export function ask(file: string, sql: string): unknown[][] {
  const opened = openForReading(file);
  if (!opened.ok) throw new Error(opened.words);
  const { db, close } = opened.connection;
  try {
    return db.prepare(sql).raw().all() as unknown[][];
  } finally {
    close();
  }
}

export function recordsIn(file: string): UsageRecord[] {
  return ask(file, `SELECT ${RECORD_COLUMNS} FROM records ORDER BY seq`).map(recordOf);
}

export function isSound(file: string): boolean {
  return ask(file, "PRAGMA log.integrity_check").flat()[0] === "ok";
}

/**
 * After everything queued until now was tried. What is finished may wait for 50 ms until it is written; that timer was set
 * earlier, and timers go off in order.
 */
export function turn(): Promise<void> {
  return new Promise((done) => setImmediate(() => setTimeout(done, 51)));
}
