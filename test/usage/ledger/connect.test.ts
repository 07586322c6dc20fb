import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import Database from "libsql";
import t from "tap";
import { openForReading, openForWriting } from "../../../src/usage/ledger/connect.ts";
import { faultOf } from "../../../src/usage/ledger/fault.ts";
import { APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION } from "../../../src/usage/ledger/schema.ts";
import { readLastUses, readSpent } from "../../../src/usage/ledger/spent.ts";
import { newFolder } from "./ledger-under-test.ts";

const NORMAL = { sync: "normal" } as const;

function kindOf(work: () => unknown): string {
  try {
    work();
    return "nothing was thrown";
  } catch (error) {
    return faultOf(error).kind;
  }
}

function pragma(db: Database.Database, name: string): unknown {
  return [db.prepare(`PRAGMA ${name}`).raw().get()].flat()[0];
}

function bytesOf(folder: string): Record<string, string> {
  const files = readdirSync(folder).filter((name) => !name.endsWith("-shm"));
  return Object.fromEntries(files.map((name) => [name, readFileSync(join(folder, name)).toString("base64")]));
}

t.test("the writer's pragmas took", (t) => {
  const file = join(newFolder(t), "usage.db");
  for (const [sync, level] of [
    ["normal", 1],
    ["full", 2],
  ] as const) {
    const { db, close } = openForWriting(file, { sync });
    t.equal(pragma(db, "log.journal_mode"), "wal");
    t.equal(pragma(db, "log.synchronous"), level);
    t.equal(pragma(db, "fullfsync"), sync === "full" ? 1 : 0);
    t.equal(pragma(db, "checkpoint_fullfsync"), sync === "full" ? 1 : 0);
    t.equal(pragma(db, "foreign_keys"), 1);
    t.ok(Number(pragma(db, "log.journal_size_limit")) > 0);
    t.ok(Number(pragma(db, "wal_autocheckpoint")) > 0);
    t.equal(pragma(db, "log.auto_vacuum"), 2, "freed pages can be given back");
    t.ok(Number(pragma(db, "busy_timeout")) <= 20, "it runs on the event loop");
    t.equal(pragma(db, "log.user_version"), SCHEMA_VERSION);
    t.equal(pragma(db, "log.application_id"), APPLICATION_ID);
    close();
  }
  t.end();
});

t.test("a log whose every record is in every index keeps them all and what was asked of it", (t) => {
  const file = join(newFolder(t), "usage.db");
  writeFileSync(file, "", { mode: 0o600 });
  const old = new Database(":memory:");
  old.exec(`ATTACH '${file}' AS log; PRAGMA log.auto_vacuum = incremental; PRAGMA log.journal_mode = wal;
    ${MIGRATIONS.slice(0, 3).join(";")};
    PRAGMA log.application_id = ${APPLICATION_ID}; PRAGMA log.user_version = 3;
    INSERT INTO log.records (id, started_at, multiplier, protocol, method, endpoint, tool, gateway, end, admitted_at,
      counts, counted_tokens, counted_microdollars) VALUES
      ('a', 1000, 1, 'openai', 'POST', '/', 'codex', 'main', 'complete', 1001, 1, 5, 50),
      ('b', 2000, 1, 'openai', 'POST', '/', 'codex', 'main', 'refused', NULL, 0, NULL, NULL),
      ('c', 3000, 1, 'openai', 'POST', '/', 'chat', 'main', 'refused', NULL, 0, NULL, NULL),
      ('d', 4000, 1, 'openai', 'POST', '/', 'chat', 'main', 'refused', NULL, 0, NULL, NULL),
      ('e', 5000, 1, 'openai', 'POST', '/', 'codex', 'main', NULL, 5001, NULL, NULL, NULL)`);
  const all = "SELECT * FROM log.records ORDER BY seq";
  const before = old.prepare(all).raw().all();
  old.exec("DETACH log");
  old.close();
  const { db, close } = openForWriting(file, NORMAL);
  t.equal(pragma(db, "log.user_version"), SCHEMA_VERSION);
  t.same(db.prepare(all).raw().all(), before);
  t.equal(pragma(db, "log.integrity_check"), "ok");
  const [ever, short] = [
    { from: 0, to: 9000 },
    { from: 1001, to: 1002 },
  ];
  const spent = readSpent(db, "codex", { second: short, minute: short, hour: short, day: ever, month: ever });
  t.same(
    spent.sums.day,
    { requests: 2, tokens: 5, spend: 50 },
    "what runs is one, and holds its amounts itself",
  );
  t.same(spent.sums.hour, { requests: 1, tokens: 5, spend: 50 });
  t.same(Object.fromEntries(readLastUses(db)), { codex: 1000, chat: 4000 });
  close();
  t.end();
});

t.test("only its owner can read the log, whatever the umask", (t) => {
  const before = process.umask();
  t.teardown(() => process.umask(before));
  for (const umask of [0o000, 0o377]) {
    const file = join(newFolder(t), "usage.db");
    process.umask(umask);
    const { db, close } = openForWriting(file, NORMAL);
    db.exec("INSERT INTO log.facts VALUES ('a', 'b')");
    for (const side of ["", "-wal", "-shm"]) {
      t.equal(statSync(file + side).mode & 0o777, 0o600, `usage.db${side} under umask ${umask.toString(8)}`);
    }
    close();
    process.umask(before);
  }
  t.end();
});

t.test("a log that others could read is closed to them", (t) => {
  const file = join(newFolder(t), "usage.db");
  openForWriting(file, NORMAL).close();
  chmodSync(file, 0o644);
  openForWriting(file, NORMAL).close();
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.end();
});

t.test("names with spaces, quotes and signs of an address are names", (t) => {
  const folder = join(newFolder(t), "it's 100% ?mode=memory #1 ü");
  mkdirSync(folder);
  const file = join(folder, "usage.db");
  const writer = openForWriting(file, NORMAL);
  writer.db.exec("INSERT INTO log.facts VALUES ('a', 'b')");
  t.ok(existsSync(file));
  const reader = openForReading(file);
  t.ok(reader.ok);
  if (reader.ok) {
    t.same(reader.connection.db.prepare("SELECT value FROM facts").raw().all(), [["b"]]);
    reader.connection.close();
  }
  writer.close();
  t.end();
});

t.test("the log of a newer keybearer is refused and left byte for byte as it is", (t) => {
  for (const state of ["closed well", "with a WAL"]) {
    const folder = newFolder(t);
    const file = join(folder, "usage.db");
    const writer = openForWriting(file, NORMAL);
    writer.db.exec(`PRAGMA log.user_version = ${SCHEMA_VERSION + 1}`);
    const other = new Database(file);
    other.prepare("SELECT count(*) FROM records").raw().get();
    // The second connection keeps the WAL from being taken over.
    if (state === "closed well") other.close();
    else writer.db.exec("INSERT INTO log.facts VALUES ('only in the WAL', 'b')");
    if (state === "closed well") writer.close();
    const before = bytesOf(folder);
    t.equal(
      kindOf(() => openForWriting(file, NORMAL)),
      "newer",
      state,
    );
    const reader = openForReading(file);
    t.match(reader, { ok: false, why: "newer", words: /newer keybearer.*update keybearer/ });
    const after = bytesOf(folder);
    t.same(after["usage.db"], before["usage.db"], "the file");
    t.same(after["usage.db-wal"] ?? "", before["usage.db-wal"] ?? "", "the WAL");
    if (state !== "closed well") writer.close();
  }
  t.end();
});

t.test("another program's database is not touched", (t) => {
  const folder = newFolder(t);
  const file = join(folder, "usage.db");
  const other = new Database(file);
  other.exec("CREATE TABLE music (title TEXT); INSERT INTO music VALUES ('x')");
  other.close();
  const before = bytesOf(folder);
  t.equal(
    kindOf(() => openForWriting(file, NORMAL)),
    "foreign",
  );
  t.match(openForReading(file), { ok: false, why: "foreign", words: /another program/ });
  t.same(bytesOf(folder)["usage.db"], before["usage.db"]);
  t.end();
});

t.test("what is no database is told apart from one that cannot be opened", (t) => {
  const folder = newFolder(t);
  const file = join(folder, "usage.db");
  writeFileSync(file, "this is a text of more than a hundred bytes. ".repeat(10));
  t.equal(
    kindOf(() => openForWriting(file, NORMAL)),
    "corrupt",
  );
  t.match(openForReading(file), { ok: false, why: "corrupt" });
  const nowhere = join(folder, "nowhere", "usage.db");
  t.equal(
    kindOf(() => openForWriting(nowhere, NORMAL)),
    "disk",
  );
  t.match(openForReading(nowhere), { ok: false, why: "missing" });
  t.end();
});

t.test("an empty file with a WAL is damaged; without one it is new", (t) => {
  const folder = newFolder(t);
  const file = join(folder, "usage.db");
  writeFileSync(file, "");
  writeFileSync(`${file}-wal`, Buffer.alloc(5000, 1));
  t.equal(
    kindOf(() => openForWriting(file, NORMAL)),
    "corrupt",
  );
  t.equal(statSync(`${file}-wal`).size, 5000, "the WAL is still there");
  t.match(openForReading(file), { ok: false, why: "corrupt" });
  const fresh = join(folder, "fresh.db");
  writeFileSync(fresh, "");
  t.match(openForReading(fresh), { ok: false, why: "missing" });
  openForWriting(fresh, NORMAL).close();
  t.end();
});

t.test("a reader makes nothing and changes nothing", (t) => {
  const folder = newFolder(t);
  const file = join(folder, "usage.db");
  t.match(openForReading(file), { ok: false, why: "missing", words: /no usage log yet/ });
  t.same(readdirSync(folder), []);
  openForWriting(file, NORMAL).close();
  const before = bytesOf(folder)["usage.db"];
  const reader = openForReading(file);
  if (!reader.ok) throw new Error(reader.words);
  t.throws(() => reader.connection.db.exec("DELETE FROM log.facts"));
  t.throws(() => reader.connection.db.exec("CREATE TABLE log.more (a)"));
  reader.connection.close();
  t.equal(bytesOf(folder)["usage.db"], before);
  t.end();
});

t.test("closing is at once, although statements are still held", (t) => {
  const file = join(newFolder(t), "usage.db");
  const { db, close } = openForWriting(file, NORMAL);
  const insert = db.prepare("INSERT INTO log.facts VALUES (?, 'b')");
  const select = db.prepare("SELECT name FROM log.facts").raw();
  for (let i = 0; i < 300; i += 1) insert.run(`n${i}`);
  select.get();
  close();
  t.notOk(existsSync(`${file}-wal`), "the WAL was taken over and removed");
  t.throws(() => insert.run("late"), "and nothing can be written any more");
  close();
  t.end();
});
