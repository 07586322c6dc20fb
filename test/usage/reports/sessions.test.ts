import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { openIndexForReading } from "../../../src/usage/index/database.ts";
import type { UsageRecord } from "../../../src/usage/record.ts";
import {
  findSessions,
  readDetails,
  readSession,
  readSessions,
  type SessionRow,
  type SessionsQuery,
} from "../../../src/usage/reports/sessions.ts";
import { sumTokens, unknownCost } from "../../../src/usage/reports/sums.ts";
import { rollUp } from "../../../src/usage/rollups.ts";
import { makeIndex } from "../../doubles/journal.ts";
import { createRandom } from "../../doubles/random.ts";
import { NO_USAGE, plausible, record } from "../../doubles/records.ts";

process.env.TZ = "UTC";
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const NOON = Date.UTC(2026, 10, 19, 12);

function indexOf(t: Test, records: Iterable<UsageRecord>) {
  const folder = mkdtempSync(join(tmpdir(), "kb-sessions-"));
  const { db, close } = openIndexForReading(makeIndex(folder, records));
  t.teardown(() => {
    close();
    rmSync(folder, { recursive: true, force: true });
  });
  return db;
}

function read(db: ReturnType<typeof indexOf>, query: Partial<SessionsQuery> = {}): SessionRow[] {
  return readSessions(db, { since: null, tools: [], projects: [], ...query });
}

const names = (rows: readonly { tool: string; session: string }[]) =>
  rows.map(({ tool, session }) => `${tool} ${session}`);

t.test("every session has the sums of its records, whatever the period", async (t) => {
  const random = createRandom(3);
  const records = [...plausible(3000, NOON - 5 * DAY, 5)].map((one) => ({
    ...one,
    tool: random() < 0.05 ? null : one.tool,
    session: random() < 0.2 ? null : `run-${Math.floor(random() * 40)}`,
    token: random() < 0.3 ? null : random() < 0.5 ? "laptop" : "ci",
    process: random() < 0.5 ? null : "/usr/bin/python3",
  }));
  const db = indexOf(t, records);
  for (const since of [null, NOON - DAY, NOON - 2 * DAY + 12_345, NOON + DAY]) {
    const wanted = new Map<string, { requests: number; tokens: number; cost: number; unknown: number }>();
    const isSeen = new Set<string>();
    for (const one of records) {
      if (one.tool === null) continue;
      const day = new Date(one.started_at).toISOString().slice(0, 10);
      const key = `${one.tool} ${one.session ?? `${day}/${one.token ?? "no-token"}`}`;
      const { sums } = rollUp(one);
      const row = wanted.get(key) ?? { requests: 0, tokens: 0, cost: 0, unknown: 0 };
      row.requests += 1;
      row.tokens += sumTokens(sums);
      row.cost += sums.cost_microdollars;
      row.unknown += unknownCost(sums);
      wanted.set(key, row);
      if (since === null || one.started_at >= since) isSeen.add(key);
    }
    const rows = read(db, { since });
    const found = rows.map((row) => [
      `${row.tool} ${row.session}`,
      {
        requests: row.requests,
        tokens: sumTokens(row),
        cost: row.cost_microdollars,
        unknown: row.unknown_cost,
      },
    ]);
    t.strictSame(
      Object.fromEntries(found),
      Object.fromEntries([...wanted].filter(([key]) => isSeen.has(key))),
    );
    t.strictSame(
      rows.map(({ last_at }) => last_at),
      rows.map(({ last_at }) => last_at).sort((a, b) => b - a),
      "the last one first",
    );
    for (const row of rows) t.strictSame(readSession(db, row), row);
  }
});

t.test("a session is where its last request was, and begins with its first", async (t) => {
  const at = (hours: number, number: number, given: Partial<UsageRecord> = {}) =>
    record(number, { started_at: NOON - hours * HOUR, session: "one", ...given });
  const db = indexOf(t, [
    at(60, 1, { project: "~/code/site", branch: "main" }),
    at(2, 2, { project: "~/code/app", branch: "feature" }),
    at(1, 3),
    at(0, 4, { end: null, ended_at: null, status: null, first_byte_at: null, ...NO_USAGE }),
    at(40, 5, { session: "old", project: "~/code/site" }),
    at(0, 6, { machine: "desk", session: "elsewhere" }),
    at(0, 7, { tool: null, session: null }),
  ]);
  const [row, ...others] = read(db, { since: NOON - DAY });
  t.match(row, {
    session: "one",
    project: "~/code/app",
    branch: "feature",
    started_at: NOON - 60 * HOUR,
    last_at: NOON,
    requests: 3,
  });
  t.same(others, [], "neither other machines' nor unknown callers'");
  t.same(names(read(db)), ["codex one", "codex old"]);
  t.same(names(read(db, { projects: ["*/site"] })), ["codex old"]);
  t.same(names(read(db, { tools: ["cod*"] })), ["codex one", "codex old"]);
  t.same(read(db, { tools: ["nope"] }), []);
});

t.test("requests without an id are one session for each token and local day", async (t) => {
  process.env.TZ = "America/New_York";
  t.teardown(() => {
    process.env.TZ = "UTC";
  });
  const midnight = new Date(2026, 10, 19).getTime();
  const db = indexOf(t, [
    record(1, { started_at: midnight - 1, token: "laptop" }),
    record(2, { started_at: midnight, token: "laptop" }),
    record(3, { started_at: midnight + 10 * HOUR, token: "laptop" }),
    record(4, { started_at: midnight, process: "/opt/it's/run me" }),
    record(5, { started_at: midnight, tool: "chat" }),
  ]);
  t.strictSame(
    read(db)
      .map(({ tool, session, requests }) => `${tool} ${session} ${requests}`)
      .sort(),
    [
      "chat 2026-11-19/no-token 1",
      "codex 2026-11-18/laptop 1",
      "codex 2026-11-19/laptop 2",
      "codex 2026-11-19/no-token 1",
    ],
  );
  t.match(read(db, { since: midnight + HOUR }), [{ session: "2026-11-19/laptop", requests: 2 }]);
  t.same(names(findSessions(db, "2026-11-19", [], 10)), [
    "codex 2026-11-19/laptop",
    "chat 2026-11-19/no-token",
    "codex 2026-11-19/no-token",
  ]);
  t.same(names(findSessions(db, "2026-11-19", ["chat"], 10)), ["chat 2026-11-19/no-token"]);
  const details = readDetails(db, { tool: "codex", session: "2026-11-19/laptop" }, midnight + DAY);
  t.equal(details?.report.total.sums.requests, 2);
});

t.test("a session is found by the beginning of its id, in any tool", async (t) => {
  const ids = [
    "abc",
    "abcd-1",
    "abcd-2",
    "b",
    "x'--",
    'x"%_*?[',
    "x\\",
    "é",
    "ab\u{1F600}",
    "~",
    "__proto__",
  ];
  const db = indexOf(t, [
    ...ids.map((session, number) => record(number, { session })),
    record(20, { session: "b", tool: "chat" }),
    ...[1, 2, 3, 4, 5].map((each) => record(30 + each, { session: `z${each}` })),
    record(40, { session: "z9", tool: "chat" }),
    record(21, { session: "far", machine: "desk" }),
  ]);
  const found = (text: string, ...tools: string[]) => names(findSessions(db, text, tools, 3));
  for (const id of ids.filter((one) => one !== "b")) t.same(found(id), [`codex ${id}`], id);
  t.same(found("abcd"), ["codex abcd-1", "codex abcd-2"]);
  t.same(found("ab").length, 3, "at most so many");
  t.same(found("b"), ["chat b", "codex b"]);
  t.same(found("b", "chat"), ["chat b"]);
  t.same(found("z", "chat"), ["chat z9"], "after the ids of another tool");
  for (const none of ["nope", "ABC", "a*", "far", "b'", "2026-11-19", "2026-13-99/x", "\0", "%"])
    t.same(found(none), [], none);
  for (const session of ids) t.equal(readSession(db, { tool: "codex", session })?.requests, 1, session);
});

t.test("details have models, refusals and the requests over time", async (t) => {
  const refused = { end: "refused", status: 400, refusal: "session-limited", ...NO_USAGE } as const;
  const db = indexOf(t, [
    record(1, { started_at: NOON, session: "one" }),
    record(2, { started_at: NOON + HOUR, session: "one", model: "claude-opus-4-5" }),
    record(3, { started_at: NOON + 2 * HOUR, session: "one", ...refused }),
    record(4, { started_at: NOON + 2 * HOUR, session: "one", ...refused }),
    record(5, { started_at: NOON, session: "one", tool: "chat" }),
    record(6, { started_at: NOON, session: "two" }),
  ]);
  const details = readDetails(db, { tool: "codex", session: "one" }, NOON + DAY);
  t.match(details, {
    row: { requests: 4, refused: 2, cost_microdollars: 16_260 },
    refusals: [{ code: "session-limited", requests: 2 }],
    report: { total: { sums: { requests: 4 } } },
  });
  t.same(
    details?.report.rows.map(({ names: [model], sums }) => [model, sums.requests]),
    [
      ["gpt-5.1", 3],
      ["claude-opus-4-5", 1],
    ],
  );
  t.same(
    details?.report.trend.map((_, interval) => details.report.total.parts.get(interval)?.requests),
    [1, 1, 2],
  );
  t.equal(readDetails(db, { tool: "codex", session: "none" }, NOON), null);
});

t.test("an empty log has no sessions, and a long list is read whole", async (t) => {
  const empty = indexOf(t, []);
  t.same(read(empty), []);
  t.same(read(empty, { since: NOON }), []);
  t.same(findSessions(empty, "a", [], 5), []);
  const many = Array.from({ length: 3500 }, (_, number) =>
    record(number, { started_at: NOON + number, session: `s${number}` }),
  );
  t.equal(read(indexOf(t, many), { since: NOON }).length, 3500);
});
