import { join } from "node:path";
import t, { type Test } from "tap";
import { Spending } from "../../src/events/spending.ts";
import { IndexError, queryIndex } from "../../src/usage/index/database.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { newHome } from "../doubles/command.ts";
import { makeIndex } from "../doubles/journal.ts";
import { CURRENT } from "../doubles/no-usage.ts";
import { record } from "../doubles/records.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
// 2026-11-19 12:30 UTC.
const NOW = 1_795_091_400_000;
const THIS_HOUR = NOW - HOUR / 2;

process.env.TZ = "UTC";

/** One tool, what it spent in this hour, and its records. */
async function scene(t: Test, earlier: readonly Partial<UsageRecord>[], spent: number) {
  const folder = await newHome(t);
  const given = [...earlier, { started_at: THIS_HOUR, cost_microdollars: spent }];
  const records = given.map((one, n) => record(n, one)).toSorted((a, b) => a.started_at - b.started_at);
  const index = makeIndex(join(folder, "state"), records);
  let elapsed = 0;
  let reads = 0;
  const state = { isCurrent: true, readable: Number.POSITIVE_INFINITY };
  const spending = new Spending({
    clock: { now: () => NOW, elapsed: () => elapsed },
    limiter: { countUse: (tool) => (tool === "codex" ? spent : 0) },
    usage: {
      catchUp: async () => ({ ...CURRENT, current: state.isCurrent }),
      readNow: (query) => {
        reads += 1;
        if (reads > state.readable) return null;
        const found = queryIndex(index, query);
        return found instanceof IndexError ? null : found;
      },
    },
  });
  return {
    spending,
    state,
    reads: () => reads,
    pass: (ms: number) => {
      elapsed += ms;
    },
    check: (wasReported = false) => spending.check(["codex", "chat"], () => wasReported),
  };
}

const hours = (cost: number, count: number, step = DAY) =>
  Array.from({ length: count }, (_, n) => ({
    started_at: THIS_HOUR - (n + 1) * step,
    cost_microdollars: cost,
  }));

t.test("an hour is compared with the median of the hours with spending", async (t) => {
  const { check, reads } = await scene(
    t,
    [...hours(200_000, 9), ...hours(90_000_000, 4, 26 * HOUR)],
    1_500_000,
  );
  const [found, ...more] = await check();
  t.same(more, []);
  t.match(found, {
    kind: "spending",
    subject: "tool codex",
    message: /spent \$1\.50 in this hour, 7 times its usual \$0\.20/,
  });
  const before = reads();
  t.same(await check(), [], "it is read once in some minutes");
  t.equal(reads(), before);
});

t.test("only the last 14 days with spending count, of this tool on this machine", async (t) => {
  const { check } = await scene(
    t,
    [
      ...hours(1_000_000, 14, 2 * DAY),
      ...hours(1000, 20, DAY).map((one) => ({ ...one, started_at: one.started_at - 30 * DAY })),
      ...hours(1000, 25, DAY).map((one) => ({ ...one, tool: "chat" })),
      ...hours(0, 25, DAY),
    ],
    4_900_000,
  );
  t.same(await check(), []);
});

t.test("without a usual hour, and for what was reported, nothing is unusual", async (t) => {
  const first = await scene(t, [], 9_000_000);
  t.same(await first.check(), []);
  const second = await scene(t, hours(1000, 3), 9_000_000);
  t.same(await second.check(true), []);
  t.equal(second.reads(), 0);
  t.equal((await second.check()).length, 1);
});

t.test("a tool that spent less than a dollar costs no look at the index", async (t) => {
  const { check, reads, pass } = await scene(t, hours(1000, 3), 999_999);
  t.same(await check(), []);
  pass(HOUR);
  t.same(await check(), []);
  t.equal(reads(), 0);
});

t.test("without a whole index nothing is judged, and nothing is remembered", async (t) => {
  const { check, state, reads, pass } = await scene(t, hours(1000, 3), 9_000_000);
  state.isCurrent = false;
  t.same(await check(), []);
  t.equal(reads(), 0);
  state.isCurrent = true;
  // From the first day on, and later in the middle of the days.
  for (const readable of [0, 2]) {
    state.readable = reads() + readable;
    pass(HOUR / 12);
    t.same(await check(), [], `${readable} days can be read`);
  }
  state.readable = Number.POSITIVE_INFINITY;
  pass(HOUR / 12);
  t.equal((await check()).length, 1);
});
