import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { Controls } from "../../src/control/routes.ts";
import type { SessionStatus } from "../../src/control/session-status.ts";
import { dayName, MINUTE_MS } from "../../src/core/units.ts";
import { NowView } from "../../src/dashboard/now.ts";
import { openIndexForReading } from "../../src/usage/index/database.ts";
import type { Ask } from "../../src/usage/index/indexer.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { answerQuestion, type QuestionName } from "../../src/usage/reports/questions.ts";
import type { SessionName } from "../../src/usage/reports/sessions.ts";
import { makeIndex } from "../doubles/journal.ts";
import { record } from "../doubles/records.ts";

const NOW = new Date(2026, 10, 19, 14, 20).getTime();

let number = 0;
function sent(minutesAgo: number, given: Partial<UsageRecord>): UsageRecord {
  number += 1;
  return record(number, { started_at: NOW - minutesAgo * MINUTE_MS, cost_microdollars: 100, ...given });
}

interface Daemon {
  /** Calls in flight. */
  readonly running?: readonly (SessionName & { readonly started_at: number })[];
  /** What it knows of sessions beside those that run. */
  readonly known?: readonly SessionStatus[];
  readonly elapsed?: () => number;
}

/** What pages see of these records. */
function viewOf(
  t: Test,
  records: readonly UsageRecord[],
  { running = [], known = [], elapsed = () => 0 }: Daemon = {},
): NowView {
  const folder = mkdtempSync(join(tmpdir(), "kb-now-"));
  const { db, close } = openIndexForReading(makeIndex(folder, records));
  t.teardown(() => {
    close();
    rmSync(folder, { recursive: true, force: true });
  });
  const unknown = { model: null, waiting: false, output_tokens: null, tokens_by: null };
  const calls = () => running.map((call) => ({ ...call, ...unknown }));
  const isRunning = { running: 1, stopped: false, limits: [] };
  const sessions = () => running.map(({ tool, session }) => ({ tool, session, ...isRunning }));
  const deps = {
    clock: { now: () => NOW, elapsed },
    controls: () =>
      ({ status: async () => ({}), sessions: () => [...known, ...sessions()] }) as unknown as Controls,
    inFlight: { list: calls, size: running.length },
  };
  const ask = (async (name: QuestionName, values: unknown[]) => answerQuestion(db, name, values)) as Ask;
  return new NowView(deps, ask);
}

const read = (...given: Parameters<typeof viewOf>) => viewOf(...given).read();

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
    t.match((await read(t, records, { running: [call] })).sessions, [{ session: "long", requests: 1 }]);
    t.same((await read(t, records)).sessions, []);
  },
);

t.test("a session with a request in flight is shown before fifty newer ones, with its sums", async (t) => {
  const old = sent(9, { session: "old" });
  const newer = Array.from({ length: 60 }, (_, at) => sent(1, { session: `newer-${at}` }));
  const call = { tool: old.tool ?? "", session: "old", started_at: NOW };
  const { sessions } = await read(t, [old, ...newer], { running: [call] });
  t.match(sessions[0], { session: "old", running: 1, requests: 1, cost_microdollars: 100 });
  t.equal(sessions.length, 50);
});

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
    const logged = sent(1, { session: "logged" });
    const stopped = { tool: logged.tool ?? "", session: "logged", running: 0, stopped: true, limits: [] };
    const limited = { ...stopped, session: "yesterday's", stopped: false };
    const running = [{ tool: "codex", session: "new", started_at: NOW }];
    const { sessions } = await read(t, [logged], { running, known: [stopped, limited] });
    t.match(sessions, [
      { session: "new", requests: null, last_at: null, stopped: false },
      { session: "logged", requests: 1, stopped: true },
    ]);
    t.equal(sessions.length, 2);
  },
);

t.test("a session whose first request has just ended stays until the log has it", async (t) => {
  const running = [{ tool: "codex", session: "new", started_at: NOW }];
  let elapsed = 0;
  const view = viewOf(t, [], { running, elapsed: () => elapsed });
  t.match((await view.read()).sessions, [{ session: "new", running: 1 }]);
  running.pop();
  elapsed = 1000;
  t.match((await view.read()).sessions, [{ session: "new", running: 0 }]);
  elapsed = 15_000;
  t.same((await view.read()).sessions, [], "the log was read, and does not have it");
});

t.test("a gateway's first byte is the median from when its last requests were sent", async (t) => {
  const took = (gateway: string, ms: number, given: Partial<UsageRecord> = {}) => {
    const minutesAgo = given.waited_ms === undefined ? 5 : 4;
    const sentAt = NOW - minutesAgo * MINUTE_MS + (given.waited_ms ?? 0);
    return sent(minutesAgo, { gateway, sent_at: sentAt, first_byte_at: sentAt + ms, ...given });
  };
  const refused = { end: "refused", refusal: "rate-limited", sent_at: null, first_byte_at: null } as const;
  const { first_bytes } = await read(t, [
    took("main", 100),
    took("main", 300, { waited_ms: 20_000 }),
    took("main", 200),
    took("main", 90_000, { machine: "other" }),
    took("slow", 5000),
    took("never", 0, refused),
    sent(25 * 60, { gateway: "yesterday" }),
  ]);
  t.same(first_bytes, [
    { gateway: "main", median_ms: 200, requests: 3 },
    { gateway: "slow", median_ms: 5000, requests: 1 },
  ]);
});
