import { closeSync, openSync, readdirSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { MirrorReader } from "../../src/mirror/sync/mirror-thread.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { record } from "../doubles/records.ts";
import { AT, compareAll, HOUR, mirrorFile, openMirror, page, row } from "./mirror-file.ts";

const REPORT = { now: AT + HOUR, skew: 0, elsewhere: [], multipliers: {}, siblings: [] };
const NO_KEYS: ReadonlySet<string> = new Set();

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
  t.match(await unfinished, { newest_row: AT + 2333 }, "what was asked before is answered");
  t.equal(await reader.ask("report", "main", REPORT), null);
});

t.test("damage that the thread finds ends in a new mirror.db", async (t) => {
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
