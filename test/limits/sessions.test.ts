import t from "tap";
import { Counters } from "../../src/limits/counters.ts";
import { at, DAY, HOUR, MINUTE, utc } from "./limits-under-test.ts";

const NOW = at("2026-11-15T12:00:00Z");
const LIMITS = { requests: [], tokens: [], spend: [], concurrent: null, wait: 0 };

function limited(session: { requests?: number; tokens?: number; spend?: number } | null): Counters {
  const counters = new Counters(utc);
  change(counters, session);
  return counters;
}

function change(
  counters: Counters,
  session: { requests?: number; tokens?: number; spend?: number } | null,
): void {
  const limits = session === null ? null : { requests: null, tokens: null, spend: null, ...session };
  counters.change({ limits: { ...LIMITS, session: limits }, quota: null });
}

const ask = (session: string | null, tokens = 10, spend: number | null = 10) => ({
  tokens,
  spend,
  origin: { session, token: "laptop" },
});

let requests = 0;

/** A request that ends at once. null: it was refused. */
function use(counters: Counters, session: string | null, tokens = 10, now = NOW): string | null {
  const reserved = counters.reserve(ask(session, tokens), now);
  if (!reserved.ok) return JSON.stringify(reserved.shortage.limit);
  requests += 1;
  counters.recorded(reserved.reservation, `r${requests}`);
  counters.settle(reserved.reservation, { tokens, spend: tokens });
  return null;
}

const idsOf = (counters: Counters) => [...counters.sessions.list()].map(({ id }) => id);

t.test("each session has its own limit, and one that reached it is refused", async (t) => {
  const counters = limited({ requests: 2 });
  t.strictSame([use(counters, "a"), use(counters, "a"), use(counters, "b")], [null, null, null]);
  t.equal(use(counters, "a"), '{"kind":"session","of":"requests","session":"a"}');
  t.equal(use(counters, "b"), null);
});

t.test("what requests in flight hold counts, and returns when they end", async (t) => {
  const counters = limited({ tokens: 100 });
  const first = counters.reserve(ask("a", 60), NOW);
  if (!first.ok) return void t.fail("the first was refused");
  t.match(counters.reserve(ask("a", 60), NOW), { ok: false, shortage: { used: 0, held: 60, need: 60 } });
  counters.recorded(first.reservation, "first");
  counters.settle(first.reservation, { tokens: 5, spend: 5 });
  t.ok(counters.reserve(ask("a", 60), NOW).ok);
});

t.test("a request that needs more than the whole limit has an empty session to itself", async (t) => {
  const counters = limited({ tokens: 100 });
  t.equal(use(counters, "a", 1), null);
  t.notOk(counters.reserve(ask("a", 400), NOW).ok);
  t.ok(counters.reserve(ask("b", 400), NOW).ok);
  t.notOk(counters.reserve(ask("b", 400), NOW).ok);
});

t.test("with a limit on a session's money, a request with an unknown price is refused", async (t) => {
  const counters = limited({ spend: 100 });
  t.match(counters.reserve(ask("a", 1, null), NOW), { ok: false, shortage: { limit: { kind: "price" } } });
});

t.test("requests without an id share a session per token and day", async (t) => {
  const counters = limited({ requests: 1 });
  t.equal(use(counters, null), null);
  t.equal(
    use(counters, "process-4711-1794744000"),
    '{"kind":"session","of":"requests","session":"2026-11-15/laptop"}',
  );
  t.equal(use(counters, null, 1, NOW + DAY), null, "the next day has another one");
});

t.test("a correction counts in the session of its request", async (t) => {
  const counters = limited({ tokens: 100 });
  use(counters, "a", 50);
  const change = { tokens: 45, spend: 0, estimated_tokens: 0, estimated_spend: 0 };
  counters.correct({ at: NOW, session: "a", ...change });
  t.notOk(counters.reserve(ask("a", 10), NOW).ok);
  counters.correct({ at: NOW, session: "never seen", ...change });
  t.strictSame(idsOf(counters), ["a"]);
});

t.test("a request that was canceled does not count", async (t) => {
  const counters = limited({ requests: 1 });
  const canceled = counters.reserve(ask("a"), NOW);
  if (!canceled.ok) return void t.fail("it was refused");
  counters.recorded(canceled.reservation, "canceled");
  counters.cancel(canceled.reservation);
  t.equal(use(counters, "a"), null);
});

t.test("what the owner gives counts on top, and can be taken back", async (t) => {
  const counters = limited({ requests: 1 });
  use(counters, "a");
  t.not(use(counters, "a"), null);
  counters.sessions.lift("a", { limit: "requests", amount: 2, given_at: NOW });
  t.strictSame([use(counters, "a"), use(counters, "a")], [null, null]);
  t.match(counters.sessionLevels(), [{ session: { id: "a" }, limits: [{ used: 3, max: 3, extra: 2 }] }]);
  counters.sessions.lift("a", { limit: "requests", amount: 0, given_at: NOW });
  t.match(counters.sessionLevels(), [{ limits: [{ max: 1, extra: 0 }] }]);
  t.not(use(counters, "a"), null);
});

t.test("a session can be stopped without any limit, and only that one is remembered", async (t) => {
  const counters = limited(null);
  t.equal(counters.sessions.areCounted, false);
  use(counters, "a");
  t.strictSame(idsOf(counters), [], "sessions cost nothing");
  counters.sessions.stop("a", { stopped: true, at: NOW });
  t.equal(use(counters, "a"), '{"kind":"session-stopped","session":"a"}');
  t.equal(use(counters, "b"), null);
  t.strictSame(idsOf(counters), ["a"]);
  counters.sessions.stop("a", { stopped: false, at: NOW });
  t.equal(use(counters, "a"), null);
  t.equal(counters.sessions.areCounted, false);
});

t.test("100,000 invented ids stay in bounded memory, and share one session", async (t) => {
  const counters = limited({ requests: 20_000 });
  for (let nth = 0; nth < 30_000; nth += 1) use(counters, `invented-${nth}`);
  t.equal(idsOf(counters).length, 10_001);
  const shared = [...counters.sessions.list()].find(({ id }) => id.includes("overflow"));
  t.equal(shared?.requests, 20_000);
  t.equal(use(counters, "one more"), '{"kind":"session","of":"requests","session":"2026-11-15/+overflow"}');
  for (let nth = 30_000; nth < 100_000; nth += 1) use(counters, `invented-${nth}`);
  t.equal(idsOf(counters).length, 10_001);
  t.equal(use(counters, "invented-5"), null, "sessions that were there first have their own limit");
});

t.test(
  "sessions that are idle for a day make room, but none that is stopped, full or in flight",
  async (t) => {
    const counters = limited({ requests: 2 });
    use(counters, "full");
    use(counters, "full");
    use(counters, "full");
    counters.sessions.stop("stopped", { stopped: true, at: NOW });
    const inFlight = counters.reserve(ask("in flight"), NOW);
    t.ok(inFlight.ok);
    for (let nth = 0; nth < 20_000; nth += 1) use(counters, `invented-${nth}`);
    t.equal(use(counters, "late", 10, NOW + DAY + MINUTE), null);
    t.strictSame(idsOf(counters), ["full", "stopped", "in flight", "late"]);
    t.not(use(counters, "full", 10, NOW + 31 * DAY), null, "it does not get a fresh limit by waiting");
  },
);

t.test("the shared session of a day that is over is forgotten, even if it is full", async (t) => {
  const counters = limited({ requests: 1 });
  use(counters, null);
  use(counters, null);
  counters.carry(NOW + 12 * HOUR);
  t.strictSame(idsOf(counters), ["2026-11-15/laptop"]);
  counters.carry(NOW + 2 * DAY);
  t.strictSame(idsOf(counters), []);
});

t.test("a limit that a save adds counts from then on, and one that comes back goes on", async (t) => {
  const counters = limited(null);
  use(counters, "a");
  change(counters, { requests: 1 });
  t.equal(use(counters, "a"), null);
  t.not(use(counters, "a"), null);
  change(counters, { requests: 3 });
  t.equal(use(counters, "a"), null, "it counts what was used under the limit before");
  change(counters, null);
  t.equal(use(counters, "a"), null);
  change(counters, { requests: 3 });
  t.not(use(counters, "a"), null, "no fresh limit by two saves");
});

t.test("a session at its limit is kept, also if nothing of it was refused yet", async (t) => {
  const counters = limited({ requests: 2 });
  use(counters, "a");
  use(counters, "a");
  counters.carry(NOW + 2 * DAY);
  t.not(use(counters, "a", 1, NOW + 2 * DAY), null);
});

t.test("a request that another limit refuses begins no session", async (t) => {
  const counters = new Counters(utc);
  const rates = { requests: [{ max: 1, per: "day" as const }] };
  const session = { requests: 9, tokens: null, spend: null };
  counters.change({ limits: { ...LIMITS, ...rates, session }, quota: null });
  t.equal(use(counters, "a"), null);
  for (let nth = 0; nth < 100; nth += 1) t.notOk(counters.reserve(ask(`invented-${nth}`), NOW).ok);
  t.strictSame(idsOf(counters), ["a"]);
});

t.test("a correction of a request from before its session was counted does not lower it", async (t) => {
  const counters = limited({ tokens: 1000 });
  use(counters, "a", 300);
  const correction = { tokens: -400, spend: 0, estimated_tokens: 0, estimated_spend: 0 };
  counters.correct({ at: NOW - HOUR, session: "a", ...correction });
  t.match(counters.sessionLevels(), [{ limits: [{ used: 300 }] }]);
});

t.test("only so many sessions that do not run can be stopped", async (t) => {
  const counters = limited(null);
  const stop = { stopped: true, at: NOW };
  for (let nth = 0; nth < 1000; nth += 1) t.ok(counters.sessions.stop(`invented-${nth}`, stop));
  t.notOk(counters.sessions.stop("one more", stop));
});
