import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { dayName, MINUTE_MS } from "../../src/core/units.ts";
import { type Recent, readRecent, runningSessions } from "../../src/dashboard/recent.ts";
import { openIndexForReading } from "../../src/usage/index/database.ts";
import type { Ask } from "../../src/usage/index/indexer.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { answerQuestion, type QuestionName } from "../../src/usage/reports/questions.ts";
import { makeIndex } from "../doubles/journal.ts";
import { record } from "../doubles/records.ts";

const NOW = new Date(2026, 10, 19, 14, 20).getTime();

let number = 0;
function sent(minutesAgo: number, given: Partial<UsageRecord>): UsageRecord {
  number += 1;
  return record(number, { started_at: NOW - minutesAgo * MINUTE_MS, cost_microdollars: 100, ...given });
}

async function read(
  t: Test,
  records: readonly UsageRecord[],
  running: Parameters<typeof readRecent>[2] = [],
): Promise<Recent> {
  const folder = mkdtempSync(join(tmpdir(), "kb-recent-"));
  const { db, close } = openIndexForReading(makeIndex(folder, records));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const ask = (async (name: QuestionName, values: unknown[]) => answerQuestion(db, name, values)) as Ask;
  try {
    return await readRecent(ask, NOW, running);
  } finally {
    close();
  }
}

t.test("a session is shown for ten minutes after its last request, with all that it used", async (t) => {
  const { sessions } = await read(t, [
    sent(25 * 60, { session: "long" }),
    sent(120, { session: "long" }),
    sent(9, { session: "long", project: "/home/me/app", branch: "main" }),
    sent(11, { session: "over" }),
    sent(1, { session: "newest", cost_microdollars: null, input_tokens: null, tokens_from: "none" }),
  ]);
  t.match(sessions, [
    { session: "newest", requests: 1, cost_microdollars: 0, unknown_cost: 1 },
    { session: "long", requests: 3, cost_microdollars: 300, project: "/home/me/app", branch: "main" },
  ]);
  t.equal(sessions.length, 2);
});

t.test(
  "a session with a request in flight is shown with all that it used, however old that is",
  async (t) => {
    const inFlight = sent(12, { session: "long", end: null, ended_at: null });
    const { tool, session, started_at } = inFlight;
    const call = { tool: tool ?? "", session: session ?? "", started_at };
    const records = [sent(20, { session: "long" }), sent(11, { session: "over" }), inFlight];
    t.match((await read(t, records, [call])).sessions, [{ session: "long", requests: 1 }]);
    t.same((await read(t, records)).sessions, []);
  },
);

t.test("processes of one token are the one session in which limits count them", async (t) => {
  const { sessions } = await read(t, [
    sent(3, { session: "process-1", token: "laptop" }),
    sent(2, { session: "process-2", token: "laptop" }),
    sent(1, { session: null, token: "laptop" }),
    sent(1, { session: "process-3", token: "desk" }),
  ]);
  t.match(sessions.map(({ session, requests }) => [session, requests]).sort(), [
    [`${dayName(NOW)}/desk`, 1],
    [`${dayName(NOW)}/laptop`, 3],
  ]);
});

t.test(
  "a session whose first request is in flight comes first, and one that was stopped is marked",
  async (t) => {
    const { sessions } = await read(t, [sent(1, { session: "logged" })]);
    const call = (session: string) => ({ tool: "codex", session });
    const stopped = { ...call("logged"), running: 0, stopped: true, limits: [] };
    t.match(runningSessions(sessions, [call("new"), call("logged"), call("new")], [stopped]), [
      { session: "new", requests: 0, last_at: null, stopped: false },
      { session: "logged", requests: 1, stopped: true },
    ]);
  },
);

t.test("a gateway's first byte is the median from when its last requests were sent", async (t) => {
  const took = (gateway: string, ms: number, given: Partial<UsageRecord> = {}) => {
    const minutesAgo = given.waited_ms === undefined ? 5 : 4;
    const sentAt = NOW - minutesAgo * MINUTE_MS + (given.waited_ms ?? 0);
    return sent(minutesAgo, { gateway, sent_at: sentAt, first_byte_at: sentAt + ms, ...given });
  };
  const refused = { end: "refused", refusal: "rate-limited", sent_at: null, first_byte_at: null } as const;
  const { firstBytes } = await read(t, [
    took("main", 100),
    took("main", 300, { waited_ms: 20_000 }),
    took("main", 200),
    took("main", 90_000, { machine: "other" }),
    took("slow", 5000),
    took("never", 0, refused),
    sent(25 * 60, { gateway: "yesterday" }),
  ]);
  t.same(firstBytes, [
    { gateway: "main", median_ms: 200, requests: 3 },
    { gateway: "slow", median_ms: 5000, requests: 1 },
  ]);
});
