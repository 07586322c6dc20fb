import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import type { Test } from "tap";
import type { Clock } from "../../../src/core/clock.ts";
import { requestId } from "../../../src/core/ids.ts";
import type { Ticker } from "../../../src/core/ticker.ts";
import type { ToolCarry } from "../../../src/limits/limiter.ts";
import { NO_IDS } from "../../../src/metering/gateway-ids.ts";
import { journalFiles, readLines } from "../../../src/usage/journal/files.ts";
import { Journal } from "../../../src/usage/journal/journal.ts";
import { type Line, parseLine } from "../../../src/usage/journal/lines.ts";
import { type Closing, type Opening, OWN_REQUEST } from "../../../src/usage/record.ts";

export const DAY = 86_400_000;
/** 2026-11-16, at noon UTC. */
export const NOON = Date.UTC(2026, 10, 16, 12);

/** A clock that stands still until it is set. */
export interface SetClock extends Clock {
  time: number;
}

export function setClock(time: number = NOON): SetClock {
  return {
    time,
    now() {
      return this.time;
    },
    elapsed() {
      return this.time;
    },
  };
}

/** Seconds that pass only when the test says so. */
export interface HeldTicker extends Ticker {
  pass(): void;
}

export function heldTicker(): HeldTicker {
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

export interface JournalUnderTest {
  readonly journal: Journal;
  readonly folder: string;
  readonly ticker: HeldTicker;
  /** What was replayed at its start. */
  readonly replayed: readonly Line[];
  log(): string;
}

export interface Options {
  readonly folder?: string;
  readonly clock?: Clock;
  readonly sync?: "normal" | "full";
  readonly carry?: () => readonly ToolCarry[];
}

export function newFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), "kb-journal-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A journal on real files, stopped when the test ends. */
export function startJournal(t: Test, options: Options = {}): JournalUnderTest {
  const folder = options.folder ?? join(newFolder(t), "usage");
  const lines: string[] = [];
  const replayed: Line[] = [];
  const ticker = heldTicker();
  const journal = new Journal({
    folder,
    clock: options.clock ?? setClock(),
    ticker,
    log: pino({ level: "debug" }, { write: (line: string) => void lines.push(line) }),
    sync: options.sync ?? "normal",
    limiter: {
      carry: () => [...(options.carry?.() ?? [])],
      renames: () => [],
    },
    replay: {
      start: () => void replayed.splice(0),
      read: (line) => void replayed.push(line),
      close: (record) => void replayed.push({ kind: "close", ...OWN_REQUEST, ...record }),
      end: () => {},
    },
    onAppend: () => {},
  });
  t.teardown(() => journal.stop());
  return { journal, folder, ticker, replayed, log: () => lines.join("") };
}

/** The whole lines of a journal, in order. */
export function linesIn(folder: string): Line[] {
  const lines: Line[] = [];
  for (const file of journalFiles(folder)) {
    for (const { texts } of readLines(file, 0, true)) {
      for (const text of texts) {
        const line = parseLine(text);
        if (line !== null) lines.push(line);
      }
    }
  }
  return lines;
}

/** `open codex`, `close complete`, `carry`: enough to see what is there. */
export function shapesIn(folder: string): string[] {
  return linesIn(folder).map((line) => {
    if (line.kind === "open") return `open ${line.model}`;
    if (line.kind === "close") return `close ${line.model} ${line.end}`;
    if (line.kind === "carry") return "tool" in line ? `carry ${line.tool}` : `carry of ${line.tools}`;
    return line.kind;
  });
}

export function textIn(folder: string, day: string): string {
  return readFileSync(join(folder, `${day}.jsonl`), "utf8");
}

export function opening(given: Partial<Opening> = {}): Opening {
  const startedAt = given.started_at ?? NOON;
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
    user_agent: null,
    session: null,
    token: null,
    waited_ms: 0,
    held_tokens: null,
    held_microdollars: null,
    admitted_at: startedAt,
    counted_session: null,
    sent_at: startedAt,
    gateway_ids: NO_IDS,
    ...given,
  };
}

export function closing(given: Partial<Closing> = {}): Closing {
  return {
    sent_at: NOON,
    first_byte_at: null,
    ended_at: NOON + 1000,
    model: null,
    session: null,
    project: null,
    branch: null,
    model_answered: "gpt-5.1-2026",
    stream: true,
    status: 200,
    end: "complete",
    cause: null,
    cause_detail: null,
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
    counts: true,
    counted_tokens: 2342,
    counted_microdollars: 8130,
    seen_tokens: null,
    bytes_out: 18_231,
    gateway_ids: { "x-client-request-id": "0123" },
    ...given,
  };
}
