import { appendFileSync, mkdtempSync, rmSync } from "node:fs";
import { Agent } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Database from "libsql";
import type { Test } from "tap";
import type { Logger } from "../../../src/logger.ts";
import { createSub2apiSession } from "../../../src/mirror/consoles/sub2api/session.ts";
import { createSub2api } from "../../../src/mirror/consoles/sub2api/sub2api.ts";
import { createWire } from "../../../src/mirror/consoles/wire.ts";
import { MirrorDatabase } from "../../../src/mirror/store/database.ts";
import { coverFrom, writeSynced } from "../../../src/mirror/store/facts.ts";
import { holdKeys } from "../../../src/mirror/store/held.ts";
import { linkKeys } from "../../../src/mirror/store/keys.ts";
import { createComparing } from "../../../src/mirror/sync/comparing.ts";
import { Syncer } from "../../../src/mirror/sync/syncer.ts";
import type { MirrorUsage } from "../../../src/mirror/usage.ts";
import { Secret } from "../../../src/secret.ts";
import { UsageIndex } from "../../../src/usage/index/usage-index.ts";
import { journalFiles } from "../../../src/usage/journal/files.ts";
import { startSub2api } from "../../doubles/consoles/sub2api.ts";
import { makeIndex } from "../../doubles/journal.ts";
import { type Day, makeDay } from "../../doubles/mirror-day.ts";
import { median } from "../report/statistics.ts";

/*
 * What the first sync of a day takes over HTTP, and the ones after it: how long the requests beside it wait for a single
 * step, in milliseconds of the processor, so that others on the machine do not count. The console runs in the same
 * process, and its time and memory are in the whole.
 *   node --expose-gc mirror-sync.js <requests>
 */

export interface SyncTimes {
  readonly requests: number;
  readonly rows: number;
  readonly foreign: number;
  readonly foreignFound: number;
  /** The first sync, and the two after it. */
  readonly syncs: readonly {
    readonly ms: number;
    readonly cpuMs: number;
    readonly heapBytes: number;
    readonly writing: StepTimes;
    readonly judging: StepTimes;
  }[];
}

export interface StepTimes {
  readonly steps: number;
  readonly allMs: number;
  readonly medianMs: number;
  readonly longestMs: number;
}

const HOUR = 3_600_000;
const day = makeDay({ requests: Number(process.argv[2] ?? 20_000) });
const now = day.to + HOUR;
const clock = { now: () => now, elapsed: () => performance.now() };
const collect = () => (globalThis as { gc?: () => void }).gc?.();
const ends: (() => unknown)[] = [];
const steps = { writing: [] as number[], judging: [] as number[] };

const spent = (began: NodeJS.CpuUsage) => {
  const { user, system } = process.cpuUsage(began);
  return (user + system) / 1000;
};

async function startConsole({ rows, keys }: Day) {
  const test = { teardown: (end: () => unknown) => ends.push(end) } as unknown as Test;
  const double = await startSub2api(test, { now: clock.now });
  const names = new Map<string, string>();
  const links = [...keys].map(([ref, key], at) => {
    const text = `sk-bench-${at}`.padEnd(40, "0");
    names.set(ref, text);
    return { ref: `id:${double.addKey({ name: `tool ${at}`, key: text, multiplier: 1.5 }).id}`, key };
  });
  // This kind lists no failed attempts.
  const uses = rows.filter(({ kind }) => kind === "use");
  for (const row of uses)
    double.bill({
      key: names.get(row.key_ref ?? "") ?? "",
      model: row.model ?? "",
      stream: true,
      input: row.input_tokens ?? 0,
      cacheRead: row.cache_read_tokens ?? 0,
      cacheWrite: row.cache_write_tokens ?? 0,
      output: row.output_tokens ?? 0,
      dollars: (row.billed_microdollars ?? 0) / 1e6,
      at: row.created_at,
      requestId: row.request_id ?? "",
      duration: row.duration_ms ?? 0,
    });
  return { double, links, listed: uses.length };
}

/** The journal of a state folder; its index catches up on this thread, outside of what is measured. */
function openUsage(folder: string, file: string): MirrorUsage & { close(): void } {
  const index = new UsageIndex({ file, folder }, null);
  return {
    catchUp: async () => {
      for (const _ of index.catchUp());
    },
    amend(lines) {
      const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
      appendFileSync(journalFiles(folder).at(-1)?.path ?? "", text);
      return true;
    },
    append: () => {},
    last: () => null,
    lostAt: () => null,
    close: () => index.close(),
  };
}

function syncerFor(database: MirrorDatabase, usage: MirrorUsage, url: string, token: string): Syncer {
  const measured = (times: number[]) => ({
    ask<T>(question: (db: Database.Database) => T): T | null {
      const began = process.cpuUsage();
      const answer = database.ask(question);
      times.push(spent(began));
      return answer;
    },
  });
  const agent = new Agent({ keepAlive: true });
  ends.push(() => agent.destroy());
  const { signal } = new AbortController();
  const wire = createWire({ url, clock, agent: () => agent, signal, onSkew: () => {} });
  const session = createSub2apiSession({
    ...{ wire, now: clock.now, refreshToken: new Secret(token), credentials: null },
    onRefreshToken: async () => {},
  });
  const adapter = createSub2api({ url, wire, now: clock.now, pause: async () => {}, session });
  const shared = { gateway: "main", clock };
  const comparing = createComparing({
    ...{ ...shared, database: measured(steps.judging), usage, skew: () => 0, priceOf: () => null },
    ...{ logEnd: { unwatched: () => [] }, onCorrected: () => {}, onJudged: () => {} },
  });
  const fail = (words: unknown, message: string) => {
    throw new Error(`${message} ${JSON.stringify(words)}`);
  };
  return new Syncer({
    ...{ ...shared, database: measured(steps.writing), onKeys: () => {}, since: () => day.from - HOUR },
    log: { info: () => {}, warn: fail, error: fail } as unknown as Logger,
    prepare: async () => {},
    connect: async () => adapter,
    onFailed: () => {},
    onRows: async () => {
      database.ask((db) => writeSynced(db, "main", now));
      await comparing.compare(adapter);
    },
  });
}

function told(times: number[]): StepTimes {
  const all = times.splice(0);
  return {
    steps: all.length,
    allMs: all.reduce((sum, time) => sum + time, 0),
    medianMs: all.length === 0 ? 0 : median(all),
    longestMs: Math.max(0, ...all),
  };
}

const folder = mkdtempSync(join(tmpdir(), "kb-bench-"));
try {
  const index = makeIndex(folder, day.records);
  const usage = openUsage(join(folder, "usage"), index);
  ends.push(() => usage.close());
  const log = { info: () => {}, warn: () => {}, error: () => {} } as unknown as Logger;
  const database = new MirrorDatabase({ file: join(folder, "mirror.db"), index, log });
  ends.push(() => database.close());
  const { double, links, listed } = await startConsole(day);
  database.ask((db) => {
    const held = links.map(({ ref, key }) => ({ gateway: "main", key, tool: ref }));
    holdKeys(db, held, day.from - HOUR);
    linkKeys(db, "main", links);
    coverFrom(db, "main", day.from - HOUR);
  });
  const syncer = syncerFor(database, usage, double.url, double.refreshToken());
  const syncs: SyncTimes["syncs"][number][] = [];
  for (let round = 0; round < 3; round += 1) {
    collect();
    const before = process.memoryUsage().heapUsed;
    const [began, wall] = [process.cpuUsage(), performance.now()];
    await syncer.sync();
    const [cpuMs, ms] = [spent(began), performance.now() - wall];
    collect();
    const heapBytes = process.memoryUsage().heapUsed - before;
    syncs.push({ ms, cpuMs, heapBytes, writing: told(steps.writing), judging: told(steps.judging) });
  }
  const found = database.ask((db) =>
    db.prepare("SELECT count(*) FROM mirror.console_rows WHERE verdict = 'foreign'").raw().get(),
  );
  const result: SyncTimes = {
    requests: day.records.length,
    rows: listed,
    foreign: day.foreign.size,
    foreignFound: Number((found as number[])[0]),
    syncs,
  };
  process.stdout.write(`${JSON.stringify(result)}\n`);
  await syncer.stop();
} finally {
  for (const end of ends.reverse()) await end();
  rmSync(folder, { recursive: true, force: true });
}
