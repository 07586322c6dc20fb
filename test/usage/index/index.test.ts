import {
  appendFileSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import Database from "libsql";
import t, { type Test } from "tap";
import { createIndex, IndexError, openIndexForReading } from "../../../src/usage/index/database.ts";
import { UsageIndex } from "../../../src/usage/index/usage-index.ts";
import { AMENDED, parseLine } from "../../../src/usage/journal/lines.ts";
import type { UsageRecord } from "../../../src/usage/record.ts";
import { repeats } from "../../doubles/effort.ts";
import { lineOf, writeJournal } from "../../doubles/journal.ts";
import { record } from "../../doubles/records.ts";
import { faultsIn, indexFaults } from "../../doubles/usage-file.ts";
import { newFolder } from "../journal/journal-under-test.ts";

const RUNS = repeats("KEYBEARER_PROPERTY_RUNS", 6, 120);
const DAYS = ["2026-11-14", "2026-11-15", "2026-11-16"];

interface TestJournal {
  readonly folder: string;
  readonly file: string;
}

function newJournal(t: Test): TestJournal {
  const state = newFolder(t);
  mkdirSync(join(state, "usage"));
  return { folder: join(state, "usage"), file: join(state, "index.db") };
}

function append({ folder }: TestJournal, day: string, text: string): void {
  appendFileSync(join(folder, `${day}.jsonl`), text);
}

function catchUp(journal: TestJournal): UsageIndex {
  const index = new UsageIndex(journal, null);
  for (const _ of index.catchUp());
  index.close();
  return index;
}

function rebuild(journal: TestJournal): void {
  const index = new UsageIndex(journal, null);
  for (const _ of index.rebuild());
  index.close();
}

/** Everything in an index but where it stands in the journal. */
function contentOf(file: string): unknown {
  const { db, close } = openIndexForReading(file);
  const all = (table: string) => db.prepare(`SELECT * FROM usage.${table}`).raw().all();
  try {
    return ["records", "rollups", "early_amends", "acks", "held_keys"].map(all);
  } finally {
    close();
  }
}

/** A few ids, so that lines meet, in any order, whole and damaged. */
const anyLine: fc.Arbitrary<string> = fc
  .record({
    kind: fc.constantFrom(
      "open",
      "head",
      "close",
      "close",
      "refusals",
      "amend",
      "sibling",
      "sibling-amend",
      "ack",
      "key-held",
      "lift",
      "carry",
      "damaged",
    ),
    number: fc.nat(5),
    tokens: fc.nat(1000),
    model: fc.constantFrom("gpt-5.1", "claude", null),
    machine: fc.constantFrom("laptop", "desktop"),
    end: fc.constantFrom("complete", "client-left", "interrupted", "refused"),
    first: fc.option(fc.nat(5000)),
  })
  .map(({ kind, number, tokens, model, machine, end, first }) => {
    const whole = record(number, {
      started_at: Date.parse(`${DAYS[number % 3]}T10:00:00Z`) + number,
      model,
      end: end as UsageRecord["end"],
      input_tokens: tokens,
    });
    const about = { kind, id: whole.id };
    switch (kind) {
      case "open":
        return lineOf({ ...whole, end: null });
      case "close":
        return lineOf(whole);
      case "refusals":
        return refusalsLine(whole, tokens, { tool: model });
      case "head":
        return `${JSON.stringify({ ...about, status: 200 + (tokens % 2), first_byte_at: first, gateway_ids: { a: "1" } })}\n`;
      case "sibling":
        return siblingLine(machine, whole);
      case "sibling-amend":
        return siblingAmend(machine, { ...whole, billed_microdollars: tokens });
      case "amend": {
        const fields = Object.fromEntries(AMENDED.map((name) => [name, whole[name]]));
        return `${JSON.stringify({ ...about, ...fields, billed_microdollars: tokens, limits: null })}\n`;
      }
      case "ack":
        return `${JSON.stringify({ kind, gateway: "main", row: `r${number}`, at: tokens })}\n`;
      case "key-held":
        return `${JSON.stringify({ kind, gateway: "main", key: `k${number}`, tool: "codex", since: tokens, until: first })}\n`;
      case "lift":
      case "carry":
        return `${JSON.stringify({ kind, tool: "codex", limit: "spend", amount: 1, given_at: 1, tools: 0 })}\n`;
      default:
        return lineOf(whole)
          .slice(0, 20 + (tokens % 100))
          .concat("\n");
    }
  });

function refusalsLine({ id, started_at }: UsageRecord, count: number, more: object = {}): string {
  const minute = Math.floor(started_at / 60_000) * 60_000;
  const line = { tool: null, gateway: null, code: "token-unknown", minute, first_id: id, last_id: `${id}Z` };
  return `${JSON.stringify({ kind: "refusals", ...line, count, ...more })}\n`;
}

function siblingLine(machine: string, whole: UsageRecord): string {
  return lineOf({ ...whole, machine, machine_id: `id-of-${machine}` });
}

function siblingAmend(machine: string, whole: UsageRecord): string {
  const fields = Object.fromEntries(AMENDED.map((name) => [name, whole[name]]));
  const line = { kind: "sibling-amend", machine, machine_id: `id-of-${machine}`, id: whole.id, ...fields };
  return `${JSON.stringify(line)}\n`;
}

t.test("any lines give the same index: in one batch, in many, twice, or by a rebuild", async (t) => {
  const days = fc.array(fc.tuple(fc.constantFrom(...DAYS), anyLine), { maxLength: 30 });
  fc.assert(
    fc.property(days, (lines) => {
      // Lines are appended to the newest file only.
      const inOrder = lines.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
      const once = newJournal(t);
      const bit = newJournal(t);
      const twice = newJournal(t);
      for (const one of [once, bit, twice]) append(one, DAYS[0] ?? "", "");
      catchUp(bit);
      for (const [day, text] of inOrder) {
        append(once, day, text);
        append(bit, day, text.slice(0, 10));
        catchUp(bit);
        append(bit, day, text.slice(10));
        catchUp(bit);
        append(twice, day, text + text);
      }
      catchUp(once);
      catchUp(twice);
      const content = JSON.stringify(contentOf(once.file));
      const found = [JSON.stringify(contentOf(bit.file))];
      rebuild(once);
      found.push(JSON.stringify(contentOf(once.file)));
      catchUp(once);
      found.push(JSON.stringify(contentOf(once.file)));
      found.push(JSON.stringify(contentOf(twice.file)));
      return found.every((other) => other === content) && indexFaults(once.file).length === 0;
    }),
    { numRuns: RUNS },
  );
});

t.test(
  "an index that is missing, empty, damaged, another program's or of another version is rebuilt",
  async (t) => {
    const there = newJournal(t);
    writeJournal(
      there.folder,
      Array.from({ length: 300 }, (_, n) => record(n)),
    );
    catchUp(there);
    const content = JSON.stringify(contentOf(there.file));
    const good = readFileSync(there.file);
    const noise = Buffer.from(Array.from({ length: 4096 }, (_, n) => (n * 7919 + 13) % 251));
    const damages: Readonly<Record<string, () => void>> = {
      missing: () => rmSync(there.file),
      empty: () => truncateSync(there.file, 0),
      "half of it missing": () => truncateSync(there.file, Math.floor(good.length / 8192) * 4096),
      "a part of a page missing": () => truncateSync(there.file, good.length - 100),
      "noise in its header": () =>
        writeFileSync(there.file, Buffer.concat([noise.subarray(0, 100), good.subarray(100)])),
      "noise in the middle": () => {
        const at = Math.floor(good.length / 8192) * 4096;
        writeFileSync(there.file, Buffer.concat([good.subarray(0, at), noise, good.subarray(at + 4096)]));
      },
      "no database": () => writeFileSync(there.file, "hello\n".repeat(2000)),
      "a folder in its place": () => {
        rmSync(there.file);
        mkdirSync(there.file);
      },
      "another program's": () => otherDatabase(there.file),
      "a newer version": () => {
        writeFileSync(there.file, good);
        const db = new Database(there.file);
        db.exec("PRAGMA user_version = 99");
        db.close();
      },
    };
    for (const [what, damage] of Object.entries(damages)) {
      damage();
      catchUp(there);
      t.equal(JSON.stringify(contentOf(there.file)), content, what);
      t.equal(statSync(there.file).mode & 0o777, 0o600, "and private");
    }
  },
);

function otherDatabase(file: string): void {
  rmSync(file);
  const db = new Database(file);
  db.exec("CREATE TABLE theirs (a); PRAGMA application_id = 7");
  db.close();
}

t.test(
  "a machine's lines change its own records only, and a record keeps the name it came with",
  async (t) => {
    const it = newJournal(t);
    const [own, theirs] = [record(1), record(3)];
    const billed = (whole: UsageRecord, billed_microdollars: number) => ({ ...whole, billed_microdollars });
    append(it, "2026-11-14", lineOf({ ...own, end: null }));
    append(it, "2026-11-14", siblingLine("laptop", { ...own, model: "hostile" }));
    append(it, "2026-11-14", siblingAmend("laptop", billed(own, 666)));
    append(it, "2026-11-14", lineOf(own));
    append(it, "2026-11-14", siblingAmend("laptop", billed(own, 667)));
    append(
      it,
      "2026-11-15",
      siblingAmend("laptop", billed(theirs, 10)) + siblingAmend("desktop", billed(theirs, 668)),
    );
    append(it, "2026-11-15", siblingLine("laptop", theirs));
    append(it, "2026-11-15", siblingLine("desktop", { ...theirs, model: "hostile" }));
    append(it, "2026-11-15", siblingAmend("desktop", billed(theirs, 669)));
    const columns = () => {
      catchUp(it);
      const { db, close } = openIndexForReading(it.file);
      const rows = db
        .prepare("SELECT id, machine, model, billed_microdollars FROM usage.records")
        .raw()
        .all();
      close();
      return rows;
    };
    t.strictSame(columns(), [
      [own.id, null, "gpt-5.1", null],
      [theirs.id, "laptop", "gpt-5.1", 10],
    ]);
    const renamed = { ...billed(theirs, 20), machine: "new-name", machine_id: "id-of-laptop" };
    append(
      it,
      "2026-11-16",
      lineOf(renamed) + siblingAmend("laptop", renamed).replace('"laptop"', '"new-name"'),
    );
    t.strictSame(columns()[1], [theirs.id, "laptop", "gpt-5.1", 20], "a machine is known by its id");
    t.strictSame(indexFaults(it.file), []);
    t.strictSame(faultsIn(it.folder), []);
  },
);

t.test("a sibling line without its machine, or with a name that is too long, is damaged", async (t) => {
  const line = JSON.parse(siblingLine("laptop", record(1)));
  t.match(parseLine(JSON.stringify(line)), {
    kind: "sibling",
    machine: "laptop",
    machine_id: "id-of-laptop",
  });
  const long = "x".repeat(65);
  for (const bad of [
    { machine: null },
    { machine: "" },
    { machine: long },
    { machine_id: 7 },
    { machine_id: long },
  ]) {
    t.equal(parseLine(JSON.stringify({ ...line, ...bad })), null);
    t.equal(parseLine(JSON.stringify({ ...line, ...bad, kind: "sibling-amend" })), null);
  }
  t.equal(parseLine(JSON.stringify({ ...line, end: null })), null, "only finished records are published");
  const own = parseLine(JSON.stringify({ ...line, kind: "close" }));
  t.match(own, { machine: null, machine_id: null }, "an own line cannot name another machine");
});

t.test("the index of another journal is rebuilt", async (t) => {
  const mine = newJournal(t);
  const theirs = newJournal(t);
  writeJournal(mine.folder, [record(1)]);
  writeJournal(theirs.folder, [record(2), record(3)]);
  catchUp(mine);
  catchUp(theirs);
  const content = JSON.stringify(contentOf(mine.file));
  writeFileSync(mine.file, readFileSync(theirs.file));
  catchUp(mine);
  t.equal(JSON.stringify(contentOf(mine.file)), content);
});

t.test(
  "a journal file that is replaced or shortened is read again, and nothing is there twice",
  async (t) => {
    const it = newJournal(t);
    const day = "2025-11-15";
    append(it, day, lineOf(record(1)) + lineOf(record(2)));
    catchUp(it);
    rmSync(join(it.folder, `${day}.jsonl`));
    append(it, day, lineOf(record(2)) + lineOf(record(3)));
    catchUp(it);
    t.equal(idsIn(it.file).length, 3, "what was read stays");
    t.strictSame(indexFaults(it.file), []);
  },
);

t.test("gzipped days are read like plain ones, and a plain file goes before its gzipped copy", async (t) => {
  const it = newJournal(t);
  writeFileSync(join(it.folder, "2026-11-14.jsonl.gz"), gzipSync(lineOf(record(1)) + lineOf(record(2))));
  append(it, "2026-11-15", lineOf(record(3)));
  writeFileSync(join(it.folder, "2026-11-15.jsonl.gz"), gzipSync(lineOf(record(9))));
  append(it, "2026-11-16", lineOf(record(4)));
  catchUp(it);
  const numbers = idsIn(it.file).map((id) => Number(id.slice(-3)));
  t.strictSame(numbers, [1, 2, 3, 4]);
});

t.test("a gzipped day that is damaged or cut off is counted, and the days after it are read", async (t) => {
  const packed = gzipSync(Array.from({ length: 50 }, (_, n) => lineOf(record(n))).join(""));
  const damages = {
    "cut off": packed.subarray(0, packed.length / 2),
    noise: Buffer.concat([packed.subarray(0, 20), Buffer.alloc(200, 7)]),
    "no gzip": Buffer.from("hello"),
  };
  for (const [what, bytes] of Object.entries(damages)) {
    const it = newJournal(t);
    writeFileSync(join(it.folder, "2026-11-14.jsonl.gz"), bytes);
    append(it, "2026-11-15", lineOf(record(90)));
    append(it, "2026-11-16", lineOf(record(91)));
    const index = new UsageIndex(it, null);
    for (const _ of index.catchUp());
    t.ok(index.progress().damagedLines > 0, what);
    t.equal(index.progress().share, 1);
    index.close();
    t.match(
      idsIn(it.file)
        .map((id) => Number(id.slice(-3)))
        .slice(-2),
      [90, 91],
    );
  }
});

t.test("refusals that share a record are counted once, however often their line is there", async (t) => {
  const it = newJournal(t);
  const [first, second, own] = [record(1), record(2), record(3)];
  append(it, "2026-11-14", refusalsLine(first, 7) + refusalsLine(first, 40) + refusalsLine(first, 7));
  append(it, "2026-11-14", refusalsLine(second, 5, { code: "client-left", tool: "codex" }));
  append(it, "2026-11-14", lineOf(own) + refusalsLine(own, 1000));
  catchUp(it);
  // The minute ended on the next day.
  append(it, "2026-11-15", refusalsLine(first, 55).repeat(2));
  catchUp(it);
  const read = (sql: string) => {
    const { db, close } = openIndexForReading(it.file);
    const rows = db.prepare(sql).raw().all();
    close();
    return rows;
  };
  t.strictSame(
    read(`SELECT requests, "end", refusal, tool FROM usage.records ORDER BY id`),
    [
      [55, "refused", "token-unknown", null],
      [5, "client-left", null, "codex"],
      [1, "complete", null, "codex"],
    ],
    "the largest count is right, and a request's own record stays",
  );
  t.strictSame(read("SELECT sum(requests), sum(refused), sum(client_left) FROM usage.rollups"), [
    [61, 55, 5],
  ]);
  for (const bad of [{ count: 0 }, { count: null }, { code: 1 }, { minute: "x" }, { last_id: null }])
    t.equal(parseLine(refusalsLine(first, 7, bad)), null, JSON.stringify(bad));

  rmSync(join(it.folder, "2026-11-14.jsonl"));
  catchUp(it);
  t.strictSame(indexFaults(it.file), []);
  t.strictSame(read("SELECT requests FROM usage.records"), [[55]]);
  const content = JSON.stringify(contentOf(it.file));
  rebuild(it);
  t.equal(JSON.stringify(contentOf(it.file)), content, "as a rebuild has it");
});

t.test("a day that is deleted takes its records and their sums with it", async (t) => {
  const it = newJournal(t);
  append(it, "2026-11-14", lineOf(record(1)) + lineOf(record(2)));
  // Opened on one day, closed on the next: its record belongs to the day of its close line.
  append(it, "2026-11-14", lineOf({ ...record(3), end: null }));
  append(it, "2026-11-15", lineOf(record(3)) + lineOf(record(4)));
  catchUp(it);
  rmSync(join(it.folder, "2026-11-14.jsonl"));
  catchUp(it);
  t.strictSame(
    idsIn(it.file).map((id) => Number(id.slice(-3))),
    [3, 4],
  );
  t.strictSame(indexFaults(it.file), []);
  const content = JSON.stringify(contentOf(it.file));
  rebuild(it);
  t.equal(JSON.stringify(contentOf(it.file)), content, "as a rebuild has it");
});

t.test("damaged lines are counted, and a line without its end is read once it is whole", async (t) => {
  const it = newJournal(t);
  const [first, second] = [lineOf(record(1)), lineOf(record(2))];
  append(it, "2026-11-15", `${first.slice(0, 50)}\nnoise\n${second}`);
  append(it, "2026-11-16", first.slice(0, 70));
  const index = new UsageIndex(it, null);
  for (const _ of index.catchUp());
  t.equal(index.progress().damagedLines, 2);
  append(it, "2026-11-16", first.slice(70));
  for (const _ of index.catchUp());
  t.equal(index.progress().damagedLines, 2);
  index.close();
  t.strictSame(
    idsIn(it.file).map((id) => Number(id.slice(-3))),
    [1, 2],
  );
  t.match(faultsIn(it.folder), [/2 lines are damaged/]);
});

t.test("an index that another program has locked waits, and continues where it was", async (t) => {
  const it = newJournal(t);
  append(it, "2026-11-16", lineOf(record(1)));
  catchUp(it);
  append(it, "2026-11-16", lineOf(record(2)));
  const other = new Database(it.file);
  other.exec("BEGIN EXCLUSIVE");
  const index = new UsageIndex(it, null);
  t.throws(() => [...index.catchUp()], IndexError);
  t.throws(() => [...index.catchUp()], { kind: "busy" } as unknown as Error);
  other.exec("ROLLBACK");
  other.close();
  for (const _ of index.catchUp());
  index.close();
  t.equal(idsIn(it.file).length, 2);
});

t.test("an empty index is private from its first moment", async (t) => {
  const file = join(newFolder(t), "index.db");
  const before = process.umask(0);
  t.teardown(() => process.umask(before));
  createIndex(file).close();
  t.equal(statSync(file).mode & 0o777, 0o600);
});

function idsIn(file: string): string[] {
  const { db, close } = openIndexForReading(file);
  try {
    return (db.prepare("SELECT id FROM usage.records ORDER BY id").raw().all() as [string][]).map(
      ([id]) => id,
    );
  } finally {
    close();
  }
}
