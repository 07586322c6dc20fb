import { closeSync, openSync, readdirSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { mock } from "node:test";
import t, { type Test } from "tap";
import { MirrorReader, MirrorThread, ThreadOnDemand } from "../../src/mirror/sync/mirror-thread.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { record } from "../doubles/records.ts";
import { AT, compareAll, HOUR, mirrorFile, openMirror, page, row } from "./mirror-file.ts";

const REPORT = { now: AT + HOUR, skew: 0, elsewhere: [], multipliers: {}, siblings: [] };
const NO_KEYS: ReadonlySet<string> = new Set();

/** Its threads answer `step` with null, without any database. */
function onDemand(t: Test) {
  const started: MirrorThread[] = [];
  const start = () => {
    const thread = new MirrorThread({ file: "none", index: "none" });
    started.push(thread);
    return thread;
  };
  const threads = new ThreadOnDemand(start, quietLog());
  t.teardown(() => threads.stop());
  return { threads, started, ask: () => threads.use((thread) => thread.ask("step")) };
}

t.test("a thread ends when nothing has used it for a while, and never during a use", async (t) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  const { threads, started, ask } = onDemand(t);
  let goOn = () => {};
  const long = threads.use(async (thread) => {
    await new Promise<void>((resolve) => {
      goOn = resolve;
    });
    return thread.ask("step");
  });
  await ask();
  mock.timers.tick(HOUR);
  goOn();
  t.equal(await long, null, "the thread is there after a shorter use ended");
  t.equal(started.length, 1);
  mock.timers.tick(HOUR);
  t.equal(await ask(), null);
  t.equal(started.length, 2, "an idle thread is not there any more");
});

t.test("a thread that died is replaced at the next use", async (t) => {
  const { started, ask } = onDemand(t);
  t.equal(await ask(), null);
  await started[0]?.end();
  t.equal(await ask(), null);
  t.equal(started.length, 2);
});

t.test("a stop answers what was asked before, waits for the thread and refuses later uses", async (t) => {
  const { threads, started, ask } = onDemand(t);
  const unfinished = ask();
  await threads.stop();
  t.equal(await unfinished, null);
  t.equal(started[0]?.hasEnded, true);
  await t.rejects(ask(), { message: "its thread ended" });
  t.equal(started.length, 1);
});

t.test("reports and alarms are read by a thread, several at once, until it is stopped", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  page(mirror.db, [row(1), row(2)]);
  compareAll(mirror);
  const database = openMirror(mirror.state);
  t.teardown(() => database.close());
  const reader = new MirrorReader(database, quietLog());
  const [report, alarms, diff] = await Promise.all([
    reader.ask("report", "main", REPORT),
    reader.ask("alarms", "main", 0, NO_KEYS),
    reader.ask("diff", "main", { max: 10, skew: 0, quietKeys: NO_KEYS }),
  ]);
  t.match(report?.rows, { total: 2, by_id: 1, foreign_certain: 1 });
  t.match(alarms, [{ key: "…a1b2", certain: true, count: 1 }]);
  t.match(diff, [{ verdict: "foreign", row: { identity: "row-2" } }]);
  const unfinished = reader.ask("report", "main", REPORT);
  await reader.stop();
  t.match(await unfinished, { newest_row: AT + 2333 }, "an earlier question is answered");
  t.equal(await reader.ask("report", "main", REPORT), null);
});

t.test("damage that the thread finds leads to a new mirror.db", async (t) => {
  const { state, db } = mirrorFile(t, [record(1)]);
  page(
    db,
    Array.from({ length: 2000 }, (_, number) => row(number)),
  );
  db.exec("PRAGMA mirror.wal_checkpoint(TRUNCATE)");
  const database = openMirror(state);
  const reader = new MirrorReader(database, quietLog());
  t.teardown(async () => {
    await reader.stop();
    database.close();
  });
  t.equal((await reader.ask("report", "main", REPORT))?.rows.total, 2000);
  // Everything but the first page, which has the header and the schema.
  const file = join(state, "mirror.db");
  const { size } = statSync(file);
  const descriptor = openSync(file, "r+");
  writeSync(descriptor, Buffer.alloc(size - 4096, 0x5a), 0, size - 4096, 4096);
  closeSync(descriptor);
  t.equal(await reader.ask("report", "main", REPORT), null, "this question is lost");
  t.equal((await reader.ask("report", "main", REPORT))?.rows.total, 0);
  t.ok(readdirSync(state).some((name) => /^mirror\.db\.damaged-/.test(name)));
});

t.test("without a usage index there is no answer", async (t) => {
  const { state } = mirrorFile(t);
  const database = openMirror(join(state, "elsewhere"));
  const reader = new MirrorReader(database, quietLog());
  t.teardown(() => reader.stop());
  t.equal(await reader.ask("alarms", "main", 0, NO_KEYS), null);
});
