import { appendFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import t, { type Test } from "tap";
import { openIndexForReading } from "../../../src/usage/index/database.ts";
import { dayOf } from "../../../src/usage/journal/files.ts";
import { EXPORTED, type UsageRecord } from "../../../src/usage/record.ts";
import { everythingIn } from "../../../src/usage/reports/chart.ts";
import {
  buildConditions,
  countRecords,
  csvPage,
  endedSince,
  exportedRecord,
  findRecords,
  lastEnded,
  pagesOf,
  readMark,
} from "../../../src/usage/reports/records.ts";
import { catchUp, lineOf, makeIndex } from "../../doubles/journal.ts";
import { plausible, record } from "../../doubles/records.ts";

const AT = Date.UTC(2026, 10, 1);
const IN_FLIGHT = { end: null, ended_at: null, first_byte_at: null, status: null } as const;
const ALL = {
  period: { since: null, until: null },
  tools: [],
  models: [],
  machines: [],
  projects: [],
  sessions: [],
};

function indexOf(t: Test, records: Iterable<UsageRecord>) {
  const state = mkdtempSync(join(tmpdir(), "kb-records-"));
  const { db, close } = openIndexForReading(makeIndex(state, records));
  t.teardown(() => {
    close();
    rmSync(state, { recursive: true, force: true });
  });
  const append = (more: readonly UsageRecord[]) => {
    appendFileSync(join(state, "usage", `${dayOf(AT)}.jsonl`), more.map(lineOf).join(""));
    catchUp(state);
  };
  return { db, append };
}

t.test("a file has no record that began after its first part was read", (t) => {
  const before = Array.from({ length: 1500 }, (_, n) => record(n, { started_at: AT + n }));
  const { db, append } = indexOf(t, before);
  const first = csvPage(db, everythingIn(), null);
  append([record(1500, { started_at: AT + 1500 })]);
  const second = csvPage(db, everythingIn(), first.next);
  const lines = (first.text + second.text).split("\r\n").slice(0, -1);
  t.same(
    lines.map((line) => line.slice(0, 26)),
    before.map(({ id }) => id),
  );
  t.equal(second.next, null);
  t.end();
});

t.test("the records of a session are found by the index's own index", (t) => {
  const { db } = indexOf(t, [record(1)]);
  const planFor = (session: readonly string[]) => {
    const selection = { ...everythingIn(), names: { ...everythingIn().names, session } };
    const { sql, values } = buildConditions(selection, "records");
    const rows = db
      .prepare(`EXPLAIN QUERY PLAN SELECT id FROM records WHERE id >= ?${sql}`)
      .all("", ...values);
    return JSON.stringify(rows);
  };
  t.match(planFor(["run-1"]), /records_by_session/);
  t.match(planFor(["run-1", "run-2"]), /records_by_session/);
  t.end();
});

t.test("a record is found by its id, how that begins, the gateway's id, or as the last", async (t) => {
  const first = record(1, { started_at: AT, gateway_ids: { body: "chatcmpl-AbC123" } });
  const second = record(2, { started_at: AT + 5 });
  const last = record(3, { started_at: AT + 86_400_000 });
  const { db } = indexOf(t, [first, second, last]);
  const find = (text: string) => findRecords(db, text, 10).map(({ id }) => id);
  t.same(find(first.id), [first.id]);
  t.same(find(first.id.toLowerCase()), [first.id]);
  t.same(find(last.id.slice(0, 7)), [last.id]);
  t.same(find("last"), [last.id]);
  t.same(find("chatcmpl-AbC123"), [first.id]);
  t.same(find("chatcmpl-AbC12"), [], "an id of the gateway's must be whole");
  t.same(find(first.id.slice(0, 6)), [first.id, second.id]);
  t.same(find("01ZZZZZZ"), []);
  t.same(find("%"), []);
});

t.test("a period, tools and models narrow an export", async (t) => {
  const { db } = indexOf(t, [
    record(1, { started_at: AT - 1 }),
    record(2, { started_at: AT, tool: "c[o]dex?" }),
    record(3, { started_at: AT + 5, model: null, model_answered: "claude-x" }),
    record(4, { started_at: AT + 10, tool: null }),
  ]);
  const numbers = (given: {
    since?: number;
    until?: number;
    tools?: string[];
    models?: string[];
    machines?: string[];
    projects?: string[];
    sessions?: string[];
  }) => {
    const filter = {
      period: { since: given.since ?? null, until: given.until ?? null },
      tools: given.tools ?? [],
      models: given.models ?? [],
      machines: given.machines ?? [],
      projects: given.projects ?? [],
      sessions: given.sessions ?? [],
    };
    const found = [...pagesOf(db, filter)].flat();
    t.equal(countRecords(db, filter), found.length);
    return found.map(({ id }) => Number(id.slice(10)));
  };
  t.same(numbers({}), [1, 2, 3, 4]);
  t.same(numbers({ since: AT }), [2, 3, 4]);
  t.same(numbers({ since: AT, until: AT + 10 }), [2, 3]);
  t.same(numbers({ tools: ["c[o]dex?"] }), [2], "SQLite's own patterns have no meaning here");
  t.same(numbers({ tools: ["c*"] }), [1, 2, 3]);
  t.same(numbers({ tools: ["code?"] }), []);
  t.same(numbers({ tools: [""] }), [4], "unknown callers");
  t.same(numbers({ models: ["claude-*"] }), [3], "without a model in the request, the one that answered");
  t.same(numbers({ models: ["CLAUDE-*"] }), []);
});

t.test("pages hold every record once, as it was written, without what only the limits need", async (t) => {
  const records = [...plausible(4500, AT, 2)];
  const { db } = indexOf(t, records);
  const pages = [...pagesOf(db, ALL)];
  t.same(
    pages.map(({ length }) => length),
    [2000, 2000, 500],
  );
  const wanted = [...records].sort((a, b) => (a.id < b.id ? -1 : 1)).map(exportedRecord);
  // tap takes three seconds to compare 4,500 records.
  t.ok(isDeepStrictEqual(pages.flat().map(exportedRecord), wanted), "they are the records");
  t.same(Object.keys(exportedRecord(record(1))), EXPORTED);
  t.same(
    lastEnded(db, 3).map(({ id }) => id),
    wanted.slice(-3).map(({ id }) => id),
  );
});

t.test("a follower misses nothing that ended since, and sees nothing twice", async (t) => {
  const made = (number: number, given: Partial<UsageRecord> = {}) =>
    record(number, { started_at: AT + number * 1000, ...given });
  const { db, append } = indexOf(t, [made(1), made(2, IN_FLIGHT), made(3), made(5), made(9, IN_FLIGHT)]);
  const nothingSeen = new Set<string>();
  const missed = (mark: ReturnType<typeof readMark>, max: number, seen = nothingSeen) => {
    const { records, more } = endedSince(db, mark, max, seen);
    return { numbers: records.map(({ id }) => Number(id.slice(10))), more };
  };
  const mark = readMark(db);
  t.same(missed(mark, 10), { numbers: [], more: null });

  // 4 began before 5, but waited for a limit until now. 2 was in flight; 9 still is.
  append([made(4), made(2), made(6), made(7), made(8, IN_FLIGHT)]);
  t.same(missed(mark, 10), { numbers: [2, 4, 6, 7], more: null });
  t.same(missed(mark, 10, new Set([made(6).id, made(2).id])), { numbers: [4, 7], more: null });
  t.same(
    missed(mark, 2),
    { numbers: [2, 6, 7], more: { count: 1, since: made(4).started_at } },
    "what was in flight is always shown",
  );

  const later = readMark(db);
  append([made(8), made(9, { end: "interrupted", ended_at: null })]);
  t.same(missed(later, 10), { numbers: [8, 9], more: null }, "with or without a time at which it ended");
});

t.test("a follower of an empty log misses nothing that ends later", async (t) => {
  const { db, append } = indexOf(t, []);
  const mark = readMark(db);
  append([record(1, { started_at: AT })]);
  t.equal(endedSince(db, mark, 10, new Set()).records.length, 1);
});
