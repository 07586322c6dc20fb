import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import t, { type Test } from "tap";
import { UsageQuestions } from "../../src/dashboard/usage-api.ts";
import { Limiter } from "../../src/limits/limiter.ts";
import { systemCalendar } from "../../src/limits/windows.ts";
import { IndexError } from "../../src/usage/index/database.ts";
import { everythingIn } from "../../src/usage/reports/chart.ts";
import { UsageLog } from "../../src/usage/usage-log.ts";
import { longTest } from "../doubles/effort.ts";
import { toolOf } from "../doubles/parsed-config.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { until } from "../doubles/until.ts";
import { indexedRecords, indexFaults, recordsIn } from "../doubles/usage-file.ts";
import {
  closing,
  DAY,
  type HeldTicker,
  heldTicker,
  NOON,
  newFolder,
  opening,
  type SetClock,
  setClock,
} from "./journal/journal-under-test.ts";

interface TestLog {
  readonly usage: UsageLog;
  readonly limiter: Limiter;
  readonly clock: SetClock;
  readonly ticker: HeldTicker;
  readonly folder: string;
  readonly index: string;
}

function startLog(t: Test, state: string, keep: number, clock: SetClock, log = quietLog()): TestLog {
  const ticker = heldTicker();
  const limiter = new Limiter(clock, systemCalendar);
  const [folder, index] = [join(state, "usage"), join(state, "index.db")];
  const usage = new UsageLog({
    folder,
    index,
    clock,
    ticker,
    log,
    sync: "normal",
    keep: () => keep,
    limiter,
  });
  // None of its timers keeps a process alive; in the daemon the ports do.
  const alive = setInterval(() => {}, 1000);
  t.teardown(async () => {
    clearInterval(alive);
    await usage.stop();
  });
  return { usage, limiter, clock, ticker, folder, index };
}

/** Lets the next maintenance run, and waits for its end. */
async function maintain({ usage, clock, ticker }: TestLog, time: number): Promise<void> {
  const before = usage.state().maintainedAt;
  clock.time = time;
  ticker.pass();
  await until("maintenance has run", () => usage.state().maintainedAt !== before);
}

t.test("a stream from yesterday keeps its one record through midnight, gzip and retention", async (t) => {
  const state = newFolder(t);
  const clock = setClock(NOON);
  const it = startLog(t, state, 2 * DAY, clock);
  const { journal } = it.usage;
  const early = opening({ model: "early" });
  const stream = opening({ model: "stream" });
  await journal.open(early);
  journal.close(early.id, closing());
  await journal.open(stream);
  journal.head(stream.id, { status: 200, first_byte_at: NOON + 5, gateway_ids: {} }, true);

  clock.time = NOON + DAY;
  const next = opening({ model: "next", started_at: clock.time });
  await journal.open(next);
  journal.close(next.id, closing());
  await maintain(it, NOON + DAY + 1000);
  t.strictSame(
    readdirSync(it.folder),
    ["2026-11-16.jsonl.gz", "2026-11-17.jsonl"],
    "yesterday is compressed",
  );
  t.equal(recordsIn(it.folder).length, 3);

  await maintain(it, NOON + 3 * DAY + 3_600_000);
  t.strictSame(
    readdirSync(it.folder),
    ["2026-11-17.jsonl.gz", "2026-11-19.jsonl"],
    "and deleted, when it is no longer kept",
  );
  journal.close(stream.id, closing());
  await it.usage.catchUp();
  t.match(
    recordsIn(it.folder)
      .map(({ model, end }) => `${model} ${end}`)
      .sort(),
    ["next complete", "stream complete"],
  );
  t.strictSame(
    indexedRecords(it.index).map(({ id }) => id),
    recordsIn(it.folder)
      .map(({ id }) => id)
      .sort(),
    "the index has what the journal has",
  );
  t.strictSame(indexFaults(it.index), []);
});

t.test(
  "a question is answered with everything that was appended before, also while the index is built",
  async (t) => {
    const it = startLog(t, newFolder(t), 2 * DAY, setClock(NOON));
    const { journal } = it.usage;
    const selection = everythingIn({ since: NOON - DAY, until: NOON + DAY });
    const newest = { before: null, after: null };
    const listed = async () =>
      (await it.usage.ask("page", [selection, newest, 500])).records.map(({ id }) => id);
    const ids: string[] = [];
    for (let number = 0; number < 300; number += 1) {
      const one = opening();
      await journal.open(one);
      journal.close(one.id, closing());
      ids.push(one.id);
    }
    ids.sort();
    t.same(await listed(), ids.toReversed());
    const [, during] = await Promise.all([it.usage.rebuild(), listed()]);
    t.same(during, ids.toReversed());
    const [record, missing] = [
      await it.usage.ask("record", [ids[7] ?? ""]),
      await it.usage.ask("record", ["x"]),
    ];
    t.match(record, { record: { id: ids[7], end: "complete" }, attempts: [] });
    t.equal(missing, null);
    t.same(
      (await it.usage.ask("chart", [{ selection, unit: "day", by: "tool" }, NOON]))?.total.requests,
      300,
    );

    const waiting = t.rejects(it.usage.ask("today", [NOON]), IndexError);
    await it.usage.stop();
    await waiting;
    await t.rejects(it.usage.ask("today", [NOON]), IndexError, "nothing is read once it is stopped");
  },
);

t.test("a question that is given up leaves its place to another one", async (t) => {
  const { usage } = startLog(t, newFolder(t), 2 * DAY, setClock(NOON));
  await usage.catchUp();
  const questions = new UsageQuestions(usage.ask);
  const pages = Array.from({ length: 32 }, () => new AbortController());
  const asked = pages.map(({ signal }) => questions.ask("today", [NOON], signal));
  await t.rejects(questions.ask("today", [NOON]), { status: 503, message: /too many/ });
  for (const page of pages) page.abort();
  for (const one of asked) await t.rejects(one, { status: 503, message: "request canceled" });
  t.match(await questions.ask("today", [NOON]), { total: { requests: 0 } });
});

t.test("a question that fails is logged once, and the next one is answered", async (t) => {
  const lines: string[] = [];
  const { usage } = startLog(t, newFolder(t), 2 * DAY, setClock(NOON), quietLog(lines));
  const wrong = "no such question" as "today";
  for (let time = 0; time < 2; time += 1) await t.rejects(usage.ask(wrong, [NOON]), IndexError);
  t.equal(lines.filter((line) => line.includes("could not answer a question")).length, 1);
  t.match(await usage.ask("today", [NOON]), { total: { requests: 0 } });
});

t.test("what counts against a quota outlives the days it was spent on", async (t) => {
  const state = newFolder(t);
  const clock = setClock(NOON);
  const tool = toolOf("quota: $100");
  const spend = async ({ usage, limiter }: TestLog) => {
    const lease = limiter.takeNow(tool, { tokens: 100, spend: 50 });
    if (lease === null) throw new Error("there is no capacity");
    const one = opening({ tool: tool.name, started_at: clock.time, admitted_at: clock.time });
    await usage.journal.open(one);
    limiter.recorded(lease, one.id);
    usage.journal.close(one.id, closing());
    limiter.settle(lease, { tokens: 2342, spend: 8130 });
  };
  const spent = ({ limiter }: TestLog) => limiter.levels(tool).levels.at(-1)?.used;
  let it = startLog(t, state, DAY, clock);
  for (let day = 0; day < 8; day += 1) {
    clock.time = NOON + day * DAY;
    await spend(it);
    t.equal(spent(it), (day + 1) * 8130);
    if (day % 2 === 0) continue;
    await maintain(it, clock.time + 3_600_000);
    await it.usage.stop();
    it = startLog(t, state, DAY, clock);
    t.equal(spent(it), (day + 1) * 8130, "after a restart, too");
  }
  t.ok(readdirSync(it.folder).length < 8, "some of the days are gone");
});

longTest(t, "a reader finds everything that was appended before it asked", async (t) => {
  const it = startLog(t, newFolder(t), 400 * DAY, setClock());
  const { journal } = it.usage;
  for (let round = 0; round < 5; round += 1) {
    for (let n = 0; n < 20; n += 1) {
      const one = opening({ model: `m-${round}-${n}` });
      await journal.open(one);
      if (n % 3 > 0) journal.close(one.id, closing());
    }
    const { current, damagedLines } = await it.usage.catchUp();
    t.ok(current);
    t.equal(damagedLines, 0);
    t.equal(indexedRecords(it.index).length, recordsIn(it.folder).length);
  }
  t.equal(
    await it.usage.read((db) => db.prepare("SELECT count(*) FROM records").raw().get()?.toString()),
    "100",
  );
  rmSync(it.index);
  t.match(await it.usage.catchUp(), { current: true, share: 1 }, "an index that is gone is rebuilt");
  t.equal(indexedRecords(it.index).length, 100);
  // Many at once, also while a thread that was idle ends.
  const asked = Array.from({ length: 20 }, async (_, n) => {
    await setTimeout(4900 + n * 10);
    return await it.usage.catchUp();
  });
  for (const one of await Promise.all(asked)) t.match(one, { current: true });
  await it.usage.rebuild();
  t.match(await it.usage.catchUp(), { current: true });
  t.equal(indexedRecords(it.index).length, 100);
});
