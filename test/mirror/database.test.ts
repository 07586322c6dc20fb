import {
  appendFileSync,
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import t, { type Test } from "tap";
import { type MirrorDatabase, openMirrorForReading } from "../../src/mirror/store/database.ts";
import { heldTimes, holdKeys } from "../../src/mirror/store/keys.ts";
import { createIndex, transact } from "../../src/usage/index/database.ts";
import { journalFiles } from "../../src/usage/journal/files.ts";
import type { Line } from "../../src/usage/journal/lines.ts";
import { catchUp, makeIndex, writeJournal } from "../doubles/journal.ts";
import { record } from "../doubles/records.ts";
import { AT, all, openMirror, page, row } from "./mirror-file.ts";

function newState(t: Test): string {
  const state = mkdtempSync(join(tmpdir(), "kb-mirror-"));
  t.teardown(() => rmSync(state, { recursive: true, force: true }));
  return state;
}

function opened(t: Test, state: string): MirrorDatabase {
  const database = openMirror(state);
  t.teardown(() => database.close());
  return database;
}

const rowsIn = (database: MirrorDatabase) =>
  database.ask((db) => all(db, "SELECT identity FROM mirror.console_rows").flat());
const recordsIn = (database: MirrorDatabase) =>
  database.ask((db) => all(db, "SELECT count(*) FROM usage.records").flat());
const damaged = (state: string) => readdirSync(state).filter((name) => /\.damaged-\d{8}T\d{6}Z$/.test(name));

t.test("the database cannot be used before the index is complete", async (t) => {
  const state = newState(t);
  const database = opened(t, state);
  t.equal(rowsIn(database), null);
  const index = createIndex(join(state, "index.db"));
  t.equal(rowsIn(database), null, "it is being rebuilt");
  index.close();
  t.notOk(existsSync(join(state, "mirror.db")), "so that nothing is begun without what the journal knows");
  writeJournal(join(state, "usage"), [record(1)]);
  catchUp(state);
  t.same(rowsIn(database), []);
  t.same(recordsIn(database), [1]);
  t.equal(statSync(join(state, "mirror.db")).mode & 0o777, 0o600);
});

t.test("a new mirror.db knows since when keys are held", async (t) => {
  const state = newState(t);
  writeJournal(join(state, "usage"), [record(1)]);
  const line = { kind: "key-held", gateway: "main", tool: "codex" } as const;
  const lines: Line[] = [
    { ...line, key: "…a1b2", since: AT, until: null },
    { ...line, key: "…old1", since: AT - 9, until: AT },
    { ...line, key: "…gone", since: AT, until: AT },
  ];
  const file = journalFiles(join(state, "usage"))[0]?.path ?? "";
  appendFileSync(file, lines.map((one) => `${JSON.stringify(one)}\n`).join(""));
  catchUp(state);
  const held = opened(t, state).ask((db) =>
    [...heldTimes(db, "main")].map(([key, { since }]) => [key, since]),
  );
  t.same(held, [
    ["…a1b2", AT],
    ["…old1", AT - 9],
  ]);
});

t.test("written rows are there after closing, and other connections can read them", async (t) => {
  const state = newState(t);
  makeIndex(state, [record(1)]);
  const first = opened(t, state);
  first.ask((db) => page(db, [row(1)]));
  const files = { file: join(state, "mirror.db"), index: join(state, "index.db") };
  const reader = openMirrorForReading(files);
  const joined = "SELECT identity, id FROM mirror.console_rows, usage.records";
  t.same(all(reader.db, joined), [["row-1", record(1).id]]);
  t.throws(() => reader.db.exec("DELETE FROM mirror.console_rows"));
  reader.close();
  first.close();
  t.equal(rowsIn(first), null, "closed for good");
  t.same(rowsIn(opened(t, state)), ["row-1"]);
});

t.test("the mirror cannot change the usage index", async (t) => {
  const state = newState(t);
  makeIndex(state, [record(1)]);
  const database = opened(t, state);
  t.equal(
    database.ask((db) => db.exec("DELETE FROM usage.records")),
    null,
  );
  t.same(recordsIn(database), [1]);
});

t.test("an index that was rebuilt is opened again, and so is a mirror.db that was deleted", async (t) => {
  const state = newState(t);
  makeIndex(state, [record(1)]);
  const database = opened(t, state);
  database.ask((db) => page(db, [row(1)]));
  t.same(recordsIn(database), [1]);
  for (const name of readdirSync(state)) if (name.startsWith("index.db")) rmSync(join(state, name));
  t.equal(recordsIn(database), null);
  makeIndex(state, [record(2)]);
  t.same(recordsIn(database), [2]);
  t.same(rowsIn(database), ["row-1"]);
  for (const name of readdirSync(state)) if (name.startsWith("mirror.db")) rmSync(join(state, name));
  t.same(rowsIn(database), []);
  t.same(damaged(state), []);
});

for (const [what, spoil] of Object.entries({
  "no database": (file: string) => writeFileSync(file, "x".repeat(9000)),
  "a folder": (file: string) => {
    rmSync(file);
    mkdirSync(file);
  },
  "another program's": (file: string) => {
    rmSync(file);
    const other = new Database(file);
    other.exec("CREATE TABLE notes (text)");
    other.close();
  },
  "of another version": (file: string) => {
    const other = new Database(":memory:");
    other.exec(`ATTACH '${file}' AS it; PRAGMA it.user_version = 99; DETACH it`);
    other.close();
  },
})) {
  t.test(`a mirror.db that is ${what} is kept under another name, and a new one is created`, async (t) => {
    const state = newState(t);
    makeIndex(state, [record(1)]);
    const before = opened(t, state);
    before.ask((db) => page(db, [row(1)]));
    before.close();
    spoil(join(state, "mirror.db"));
    const database = opened(t, state);
    t.same(rowsIn(database), []);
    t.equal(damaged(state).length, 1);
    database.ask((db) => page(db, [row(2)]));
    t.same(rowsIn(database), ["row-2"]);
  });
}

const PAGE_BYTES = 4096;

t.test("damage that shows later leads to a new mirror.db, too", async (t) => {
  const state = newState(t);
  makeIndex(state, [record(1)]);
  const before = opened(t, state);
  const rows = Array.from({ length: 2000 }, (_, number) => row(number));
  before.ask((db) => page(db, rows));
  before.close();
  const file = join(state, "mirror.db");
  // Everything but the first page, which has the header and the schema.
  const { size } = statSync(file);
  const descriptor = openSync(file, "r+");
  writeSync(descriptor, Buffer.alloc(size - PAGE_BYTES, 0x5a), 0, size - PAGE_BYTES, PAGE_BYTES);
  closeSync(descriptor);
  const database = opened(t, state);
  t.equal(rowsIn(database), null, "this question is lost");
  t.same(rowsIn(database), []);
  t.equal(damaged(state).length, 1);
});

t.test(
  "a locked database gives no answer; wrong SQL, or a value that a table refuses, is a bug and throws",
  async (t) => {
    const state = newState(t);
    makeIndex(state, [record(1)]);
    const database = opened(t, state);
    t.same(rowsIn(database), []);
    const other = new Database(":memory:");
    other.exec(`ATTACH '${join(state, "mirror.db")}' AS it; BEGIN IMMEDIATE; DELETE FROM it.facts`);
    const held = [{ gateway: "main", key: "…a1b2", tool: "codex" }];
    t.equal(
      database.ask((db) => holdKeys(db, held, AT)),
      null,
    );
    other.exec("ROLLBACK; DETACH it");
    other.close();
    t.equal(database.ask((db) => holdKeys(db, held, AT))?.length, 1);
    for (const wrong of ["SELECT nothing FROM nowhere", "SELECT nothing FROM mirror.facts", "SELEC"])
      t.throws(() => database.ask((db) => db.exec(wrong)), wrong);
    t.throws(() =>
      database.ask((db) => transact(db, () => db.exec("INSERT INTO mirror.facts VALUES (1, NULL)"))),
    );
    t.same(damaged(state), []);
    t.same(rowsIn(database), [], "and it goes on");
  },
);

t.test("a missing table in an overwritten index is not reported as a bug", async (t) => {
  const state = newState(t);
  makeIndex(state, [record(1)]);
  const database = opened(t, state);
  t.same(recordsIn(database), [1]);
  const other = new Database(":memory:");
  other.exec(`ATTACH '${join(state, "index.db")}' AS it; DROP TABLE it.records; DETACH it`);
  other.close();
  t.equal(recordsIn(database), null);
  t.same(damaged(state), []);
});

t.test("the database cannot be used while its folder is missing", async (t) => {
  const state = newState(t);
  makeIndex(state, [record(1)]);
  const database = opened(t, state);
  t.same(rowsIn(database), []);
  renameSync(state, `${state}-away`);
  t.equal(rowsIn(database), null);
  renameSync(`${state}-away`, state);
  t.same(rowsIn(database), []);
});

t.test("a file that others could read is made private", async (t) => {
  const state = newState(t);
  makeIndex(state, [record(1)]);
  const first = opened(t, state);
  t.same(rowsIn(first), []);
  first.close();
  chmodSync(join(state, "mirror.db"), 0o644);
  t.same(rowsIn(opened(t, state)), []);
  t.equal(statSync(join(state, "mirror.db")).mode & 0o777, 0o600);
});
