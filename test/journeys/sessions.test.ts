import t from "tap";
import type { SessionLiftAnswer, SessionStopAnswer } from "../../src/control/routes.ts";
import type { SessionStatus } from "../../src/control/session-status.ts";
import {
  type Answered,
  heldWall,
  type Journey,
  PENNY,
  REPORTED,
  startAfterCrash,
  startLimited,
  tally,
} from "../doubles/limited-journey.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// No day may end during a test.
process.env.TZ = zoneAtNoon();

const of = (session: string) => ({ headers: { "x-session-id": session } });
const sessionsOf = ({ control }: Journey) => control<SessionStatus[]>("GET", "/sessions");
const codes = (answers: readonly Answered[]) =>
  tally(answers.map(({ refusal, status }) => refusal ?? status));

t.test(
  "200 requests at once over 20 sessions: each gets exactly its limit, also after kill -9",
  async (t) => {
    const settings = "limits: { session: { requests: 7, spend: $5 } }";
    const first = await startLimited(t, settings, { clock: heldWall() });
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, nth) =>
        first.call({ ...of(`run-${nth % 20}`), play: nth % 3 === 0 ? "slow" : "finish" }),
      ),
    );
    t.strictSame(codes(answers), { 200: 140, "session-limited": 60 });
    t.equal(first.gateway.arrivals.length, 140);
    await first.quiet();
    const before = await sessionsOf(first);
    t.equal(before.length, 20);
    for (const { limits } of before)
      t.match(limits, [
        { limit: "requests", used: 7, held: 0, most: 7 },
        { limit: "spend", used: 7 * REPORTED, held: 0 },
      ]);
    const again = await startAfterCrash(t, settings, first);
    t.strictSame(byName(await sessionsOf(again)), byName(before));
    t.equal((await again.call(of("run-3"))).refusal, "session-limited");
    t.equal((await again.call(of("run-20"))).status, 200);
  },
);

function byName(sessions: readonly SessionStatus[]): SessionStatus[] {
  return sessions.toSorted((a, b) => a.session.localeCompare(b.session));
}

t.test("requests that a crash interrupted count in their session as they were held", async (t) => {
  const settings = "limits: { session: { tokens: 100 } }";
  const clock = heldWall();
  const first = await startLimited(t, settings, { clock });
  first.call({ ...of("night"), play: "hang" }).catch(() => {});
  await until("it is at the gateway", () => first.gateway.running() === 1);
  const [held] = await sessionsOf(first);
  t.match(held, { session: "night", running: 1, limits: [{ used: 0 }] });
  const again = await startAfterCrash(t, settings, first, { clock });
  t.match(await sessionsOf(again), [{ running: 0, limits: [{ used: held?.limits[0]?.held, held: 0 }] }]);
});

t.test("a refusal says what was spent, of what, and the two ways on, in each protocol", async (t) => {
  const { call } = await startLimited(t, "limits: { session: { requests: 1 } }", { clock: heldWall() });
  for (const path of ["/v1/chat/completions", "/v1/responses", "/v1/messages"]) {
    const asking = { ...of(`run-of-${path.length}`), path };
    t.equal((await call(asking)).status, 200);
    const { status, refusal, headers, text } = await call(asking);
    t.strictSame([status, refusal], [400, "session-limited"]);
    t.equal(headers.get("x-should-retry"), "false");
    t.equal(headers.get("retry-after"), null);
    const { error } = JSON.parse(text);
    t.match(
      error.message,
      `session run-of-${path.length} of tool codex is at its limit of 1 request: 1 of 1 used. ` +
        "begin a new session, or the owner can give this one more: " +
        `keybearer sessions lift run-of-${path.length} --requests 1`,
    );
  }
});

t.test("each client's own header is the session, and what is no id is made one", async (t) => {
  const { call, paths, quiet } = await startLimited(t, "", { clock: heldWall() });
  const secret = `sk-${"a1B2".repeat(12)}`;
  const cases: readonly (readonly [name: string, value: string, session: string | null])[] = [
    [
      "x-claude-code-session-id",
      "45ccde8a-8802-4209-a535-86965a807106",
      "45ccde8a-8802-4209-a535-86965a807106",
    ],
    ["session-id", "01a1f1f3-1899-7781-84ea-6a13834252f2", "01a1f1f3-1899-7781-84ea-6a13834252f2"],
    ["session_id", "older codex", "older-codex"],
    ["conversation_id", "c1", "c1"],
    ["x-session-id", "ses_e0e0cb232ffevUDC7gxi66M2v7", "ses_e0e0cb232ffevUDC7gxi66M2v7"],
    ["x-session-id", "../etc/passwd; $(rm)", "..-etc-passwd-rm-"],
    ["x-session-id", "x".repeat(300), "x".repeat(100)],
    ["x-session-id", secret, null],
    ["x-session-id", "  ", null],
    ["x-session-id", "--all", "all"],
  ];
  for (const [name, value] of cases) t.equal((await call({ headers: { [name]: value } })).status, 200);
  await quiet();
  t.strictSame(
    recordsIn(paths.usage).map(({ session }) => session),
    cases.map(([, , session]) => session),
  );
  t.strictSame(new Set(recordsIn(paths.usage).map(({ token }) => token)).size, 1);
});

t.test("a loop of curl, which names no session, is stopped too, and goes on the next day", async (t) => {
  const clock = heldWall();
  const { call } = await startLimited(t, "limits: { session: { requests: 3 } }", { clock });
  const answers: Answered[] = [];
  for (let nth = 0; nth < 5; nth += 1) answers.push(await call());
  t.strictSame(codes(answers), { 200: 3, "session-limited": 2 });
  clock.pass(24 * 3_600_000);
  t.equal((await call()).status, 200);
});

t.test(
  "a session that is stopped is cut, stays stopped over a restart and midnight, and can be allowed",
  async (t) => {
    const clock = heldWall();
    const first = await startLimited(t, "", { clock });
    const running = first.call({ ...of("night"), play: "hang" }).then(
      () => "finished",
      () => "cut",
    );
    const other = first.call({ ...of("day"), play: "hang" });
    await until("both are at the gateway", () => first.gateway.running() === 2);
    t.match(byName(await sessionsOf(first)), [
      { session: "day", running: 1 },
      { session: "night", running: 1 },
    ]);
    const stop = { session: "night", stopped: true };
    t.strictSame(await first.control<SessionStopAnswer>("POST", "/stopsession/codex", stop), {
      cut: 1,
      problem: null,
    });
    t.equal(await running, "cut");
    const refused = await first.call(of("night"));
    t.strictSame([refused.status, refused.refusal], [400, "session-stopped"]);
    t.match(refused.text, "keybearer sessions allow night");
    first.gateway.release();
    t.equal((await other).status, 200);
    await first.quiet();
    await first.daemon.stop(0);

    clock.pass(24 * 3_600_000);
    const again = { clock, home: first.home, gateway: first.gateway, credentials: first };
    const second = await startLimited(t, "", again);
    // This begins a new file of the journal.
    t.equal((await second.call(of("day"))).status, 200);
    await second.daemon.stop(0);
    clock.pass(24 * 3_600_000);
    const third = await startLimited(t, "", again);
    t.equal((await third.call(of("night"))).refusal, "session-stopped");
    await third.control("POST", "/stopsession/codex", { ...stop, stopped: false });
    t.equal((await third.call(of("night"))).status, 200);
    const last = await startAfterCrash(t, "", third, { clock });
    t.equal((await last.call(of("night"))).status, 200);
  },
);

t.test("what the owner gives a session counts once, also after a crash", async (t) => {
  const settings = "limits: { session: { requests: 1 } }";
  const clock = heldWall();
  const first = await startLimited(t, settings, { clock });
  t.equal((await first.call(of("night"))).status, 200);
  t.equal((await first.call(of("night"))).refusal, "session-limited");
  const lift = { session: "night", kind: "requests", amount: 2 };
  t.match(await first.control<SessionLiftAnswer>("POST", "/liftsession/codex", lift), {
    problem: null,
    limits: [{ limit: "requests", used: 1, most: 3, extra: 2 }],
  });
  t.equal((await first.call(of("night"))).status, 200);
  const again = await startAfterCrash(t, settings, first, { clock });
  t.equal((await again.call(of("night"))).status, 200);
  t.equal((await again.call(of("night"))).refusal, "session-limited");
  t.match(await again.control("POST", "/liftsession/codex", { ...lift, kind: "spend" }), {
    problem: "tool codex has no limit on spend for a session",
  });
  for (const wrong of [{}, { ...lift, amount: -1 }, { ...lift, session: "a\nb" }, { ...lift, session: "" }])
    await t.rejects(again.control("POST", "/liftsession/codex", wrong), /send session/);
  await t.rejects(again.control("POST", "/stopsession/nobody", { session: "a", stopped: true }), /nobody/);
});

t.test(
  "an agent with several requests at once is asked to try again when one of them has ended",
  async (t) => {
    // Each request holds 22 micro-dollars before it is sent.
    const { call, gateway } = await startLimited(t, "limits: { session: { spend: $0.00005 } }", {
      clock: heldWall(),
    });
    const running = [0, 1].map(() => call({ ...of("subagents"), play: "hang" }));
    await until("both are at the gateway", () => gateway.running() === 2);
    const third = await call(of("subagents"));
    t.strictSame(
      [third.status, third.refusal, third.headers.get("retry-after")],
      [429, "session-limited", "5"],
    );
    t.match(third.text, "try again when one of its requests in flight has ended");
    gateway.release();
    for (const ended of await Promise.all(running)) t.equal(ended.status, 200);
    t.equal((await call(of("subagents"))).status, 200);
    const last = await call(of("subagents"));
    t.strictSame(
      [last.status, last.refusal, last.headers.get("retry-after")],
      [400, "session-limited", null],
    );
  },
);

t.test("a session's limit does not hold up the requests of other sessions that wait", async (t) => {
  const settings = "limits: { concurrent: 1, wait: 55s, session: { requests: 1 } }";
  const { call, gateway, codex } = await startLimited(t, settings, { clock: heldWall() });
  const first = call({ ...of("a"), play: "hang" });
  await until("the first is there", () => gateway.running() === 1);
  const sameSession = await call(of("a"));
  t.equal(sameSession.refusal, "session-limited", "it is refused at once");
  const waits = call(of("b"));
  await until("it waits", async () => (await codex()).waiting === 1);
  gateway.release();
  t.strictSame([(await first).status, (await waits).status], [200, 200]);
});

t.test("a loop is stopped within one reservation of its session's limit on money", async (t) => {
  // Each request costs 12 micro-dollars, and holds 22 before it is sent.
  const { call, control, gateway } = await startLimited(t, "limits: { session: { spend: $0.001 } }", {
    clock: heldWall(),
  });
  const held = 10 + Math.ceil(PENNY.length / 4);
  let refusal: string | null = null;
  for (let nth = 0; nth < 200 && refusal === null; nth += 1) refusal = (await call(of("loop"))).refusal;
  t.equal(refusal, "session-limited");
  const spent = gateway.arrivals.length * REPORTED;
  t.ok(spent <= 1000 && spent + held > 1000, `$${spent / 1e6} of $0.001 was spent`);
  t.match(await control("GET", "/sessions"), [{ session: "loop", limits: [{ used: spent, most: 1000 }] }]);
});
