import { join } from "node:path";
import t, { type Test } from "tap";
import { Snapshot } from "../../src/config/snapshot.ts";
import { Prices } from "../../src/metering/prices.ts";
import { hasConsole } from "../../src/mirror/consoles/console.ts";
import type { Amendment, Correction } from "../../src/mirror/store/amendments.ts";
import { readFact } from "../../src/mirror/store/facts.ts";
import { forgetConsole } from "../../src/mirror/store/rows.ts";
import { Comparisons, type ComparisonsDeps } from "../../src/mirror/sync/comparisons.ts";
import { MirrorReader, MirrorThread, ThreadOnDemand } from "../../src/mirror/sync/mirror-thread.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { longTest } from "../doubles/effort.ts";
import { makeDay } from "../doubles/mirror-day.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { record } from "../doubles/records.ts";
import {
  AT,
  all,
  content,
  dbOf,
  HOUR,
  type MirrorFile,
  mirrorFile,
  openMirror,
  page,
  recordsIn,
  row,
  unmetered,
  verdicts,
} from "./mirror-file.ts";

const ADAPTER = { idNames: ["x-client-request-id"], billsFailures: false, socketRowsHaveIds: false };

const config = configOf(`gateways:
  main: { base_url: "https://gateway.example.com/v1", console: { kind: new-api, url: "https://gateway.example.com" } }
tools: {}
`);
const gateway = Object.values(config.gateways).find(hasConsole);
if (gateway === undefined) throw new Error("main has no console");
const connection = { gateway, adapter: null, skew: 0 };

/** Compares over a database of its own, with an index that changes only when it catches up. */
function comparingOf(t: Test, mirror: MirrorFile, given: Partial<ComparisonsDeps> = {}) {
  const database = openMirror(mirror.state);
  const stopping = new AbortController();
  const corrections: Correction[] = [];
  const calls: string[] = [];
  const lines: Amendment[] = [];
  const reader = new MirrorReader(database, quietLog());
  const comparing = new Comparisons({
    clock: { now: () => AT + 48 * HOUR, elapsed: () => 0 },
    snapshot: () => new Snapshot(1, config, new Map(), []),
    database,
    reader,
    usage: {
      catchUp: async () => {
        calls.push("catchUp");
        mirror.catchUp();
      },
      amend(some) {
        calls.push("amend");
        lines.push(...some);
        mirror.append(some);
        return true;
      },
      last: () => null,
    },
    prices: new Prices({ models: [] }),
    lostRecords: { gaps: () => [] },
    siblings: () => [],
    connection,
    signal: stopping.signal,
    onCorrected: (correction) => corrections.push(correction),
    onJudged: () => {},
    onCompared: async () => {},
    ...given,
  });
  const stop = async () => {
    stopping.abort();
    await comparing.stop();
  };
  t.teardown(async () => {
    await stop();
    await reader.stop();
    database.close();
  });
  return { comparing, stop, corrections, calls, lines, db: dbOf(database) };
}

/** What the limits of all tools count. */
function spent(records: readonly UsageRecord[]): number {
  const counted = records.map(
    (one) => one.billed_microdollars ?? one.counted_microdollars ?? one.held_microdollars,
  );
  return counted.reduce<number>((sum, one) => sum + (one ?? 0), 0);
}

t.test("the index catches up before the first step, and after each that amends", async (t) => {
  const mirror = mirrorFile(t, [record(1), unmetered(2)]);
  page(mirror.db, [row(1), row(2)]);
  const { comparing, calls, lines, corrections } = comparingOf(t, mirror);
  await comparing.compare(ADAPTER);
  t.same(calls, ["catchUp", "amend", "catchUp", "catchUp"], "twice: ids were learned");
  t.same(
    lines.map(({ id }) => id),
    [record(1).id, record(2).id],
  );
  t.equal(corrections.length, 2);
  await comparing.compare(ADAPTER);
  t.same(calls.slice(4), ["catchUp"], "nothing is amended a second time");
  t.equal(corrections.length, 2);
});

t.test("the state of other machines is read before the index catches up", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  page(mirror.db, [row(1), row(2)]);
  const order: string[] = [];
  const { comparing, db } = comparingOf(t, mirror, {
    siblings: () => {
      order.push("siblings");
      return [{ name: "laptop", seenUntil: AT, keys: ["…a1b2"], isStopped: false, isVerified: true }];
    },
    usage: {
      catchUp: async () => void order.push("catchUp"),
      amend: () => true,
      last: () => null,
    },
  });
  await comparing.compare(ADAPTER);
  t.same(order.slice(0, 2), ["siblings", "catchUp"], "otherwise a record could come in between");
  t.same(
    verdicts(db).map(([identity, verdict]) => [identity, verdict]),
    [
      ["row-1", "matched"],
      ["row-2", "unwatched"],
    ],
  );
});

t.test("the corrections of the limits add up to what the records say", async (t) => {
  const day = makeDay({ requests: 200, seed: 3, from: AT - (AT % (24 * HOUR)) });
  const mirror = mirrorFile(t, day.records);
  const { comparing, corrections, lines, db } = comparingOf(t, mirror);
  const before = spent(recordsIn(db));
  const half = day.rows.length / 2;
  for (const rows of [day.rows.slice(0, half), day.rows.slice(half)]) {
    page(db, rows);
    // One after the other, also where they are begun together.
    await Promise.all([comparing.compare(ADAPTER), comparing.compare(ADAPTER)]);
  }
  const corrected = corrections.reduce((sum, { spend }) => sum + spend, 0);
  t.equal(spent(recordsIn(db)) - before, corrected);
  t.ok(lines.length > 150, `${lines.length} amendments`);
  t.equal(new Set(lines.map((line) => JSON.stringify(line))).size, lines.length, "none of them twice");
});

t.test(
  "a comparison that cannot write the journal changes nothing, and the next one completes it",
  async (t) => {
    const mirror = mirrorFile(t, [record(1)]);
    page(mirror.db, [row(1)]);
    const full = comparingOf(t, mirror, {
      usage: { catchUp: async () => mirror.catchUp(), amend: () => false, last: () => null },
    });
    const before = content(mirror.db);
    await t.rejects(full.comparing.compare(ADAPTER), { message: /could not be compared/ });
    t.same(content(mirror.db), before);
    t.same(full.corrections, []);
    const { comparing, corrections } = comparingOf(t, mirror);
    await comparing.compare(ADAPTER);
    t.match(corrections, [{ tool: "codex", at: AT, tokens: 0, spend: 9000 }]);
    t.same(verdicts(mirror.db)[0]?.slice(0, 2), ["row-1", "matched"]);
  },
);

t.test("a comparison that cannot read the databases fails with the reason", async (t) => {
  const mirror = mirrorFile(t);
  const usage = { amend: () => true, last: () => null };
  const behind = comparingOf(t, mirror, {
    usage: { ...usage, catchUp: () => Promise.reject(new Error("another program has locked it")) },
  });
  await t.rejects(behind.comparing.compare(ADAPTER), { message: /could not be compared.*locked/ });
  const away = comparingOf(t, mirror, { database: { ask: () => null } });
  await t.rejects(away.comparing.compare(ADAPTER), { message: /could not be compared/ });
});

longTest(t, "a comparison that is stopped ends, and the next one completes it", async (t) => {
  const day = makeDay({ requests: 200, seed: 3, from: AT - (AT % (24 * HOUR)) });
  const mirror = mirrorFile(t, day.records);
  page(mirror.db, day.rows);
  const { comparing, stop } = comparingOf(t, mirror);
  const running = comparing.compare(ADAPTER).catch(() => {});
  await stop();
  await running;
  const again = comparingOf(t, mirror);
  await again.comparing.compare(ADAPTER);
  t.same(all(mirror.db, "SELECT count(*) FROM mirror.console_rows WHERE verdict IS NULL"), [[0]]);
});

t.test("a thread that cannot read its databases fails the comparison", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const files = { file: join(mirror.state, "mirror.db"), index: join(mirror.state, "nothing.db") };
  const { comparing, stop } = comparingOf(t, mirror, {
    reader: {
      ask: async () => null,
      createThread: () => new ThreadOnDemand(() => new MirrorThread(files), quietLog()),
    },
  });
  await t.rejects(comparing.compare(ADAPTER), { message: /could not be compared/ });
  await stop();
});

t.test("a comparison writes nothing any more when another console has the gateway's name", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  page(mirror.db, [row(1)]);
  const { comparing, db } = comparingOf(t, mirror, {
    usage: {
      catchUp: async () => {
        forgetConsole(db, "main", AT + 48 * HOUR, true);
        comparing.forget();
      },
      amend: () => true,
      last: () => null,
    },
  });
  await comparing.compare(ADAPTER);
  t.same(all(mirror.db, "SELECT record FROM mirror.verdicts"), []);
  t.equal(readFact(db, "main", "compared_at"), null, "the next one begins from the start");
});

t.test("rows older than the usage log are deleted after a comparison", async (t) => {
  const mirror = mirrorFile(t);
  const old = Array.from({ length: 600 }, (_, number) => row(number, { created_at: AT - 100 * 24 * HOUR }));
  page(mirror.db, [...old, row(700)]);
  const { comparing } = comparingOf(t, mirror);
  await comparing.compare(ADAPTER);
  t.same(all(mirror.db, "SELECT identity FROM mirror.console_rows"), [["row-700"]]);
});
