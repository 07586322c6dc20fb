import fc from "fast-check";
import t from "tap";
import { cellOf, createTally, SLOT_MS, type Sums } from "../../../src/usage/ledger/cells.ts";
import {
  bucketOf,
  mergeFirstBytes,
  millisecondsOf,
  percentile,
  readFirstBytes,
  writeFirstBytes,
} from "../../../src/usage/ledger/first-bytes.ts";
import type { UsageRecord } from "../../../src/usage/record.ts";
import { closing, opening, REFUSED } from "./ledger-under-test.ts";

function record(given: Partial<UsageRecord> = {}): UsageRecord {
  return { ...opening(), ...closing(), model: "gpt-5.1", billed_microdollars: null, ...given };
}

const NO_TOKENS = {
  input_tokens: null,
  cache_read_tokens: null,
  cache_write_tokens: null,
  output_tokens: null,
  reasoning_tokens: null,
  tokens_from: "none",
  list_microdollars: null,
  cost_microdollars: null,
} as const;

t.test("a record belongs to its quarter of an hour, its lane, and the model asked for", (t) => {
  const at = 1_763_164_800_000 + 5 * SLOT_MS;
  const cell = cellOf(
    record({ started_at: at + SLOT_MS - 1, tool: null, gateway: null, group: null, key: null }),
  );
  t.equal(cell.slot * SLOT_MS, at);
  t.match(cell, { tool: "", gateway: "", group: "", key: "", model: "gpt-5.1" });
  t.equal(cellOf(record({ started_at: at + SLOT_MS })).slot, cell.slot + 1);
  t.equal(cellOf(record({ model: null, model_answered: "answered" })).model, "answered");
  t.equal(cellOf(record({ model: null, model_answered: null })).model, "");
  t.end();
});

t.test("each way a request can end is counted as what it is", (t) => {
  const cases: [string, Partial<UsageRecord>, Partial<Sums>][] = [
    ["served", {}, {}],
    ["refused here", { ...REFUSED, model: "m" }, { refused: 1 }],
    ["failed", { end: "gateway-failed", status: 502, ...NO_TOKENS }, { failed: 1 }],
    ["refused by the gateway", { status: 429, ...NO_TOKENS }, { failed: 1 }],
    ["left", { end: "client-left" }, { client_left: 1 }],
    ["left before the usage came", { end: "client-left", ...NO_TOKENS }, { client_left: 1, unmetered: 1 }],
    [
      "left before any answer",
      { end: "client-left", status: null, ...NO_TOKENS },
      { client_left: 1, unmetered: 1 },
    ],
    [
      "left before anything was sent",
      { end: "client-left", status: null, bytes_in: 0, first_byte_at: null, ...NO_TOKENS },
      { client_left: 1 },
    ],
    ["interrupted", { end: "interrupted", status: null, ...NO_TOKENS }, { interrupted: 1, unmetered: 1 }],
    [
      "failed in the middle of its answer",
      { end: "gateway-failed", status: 200, ...NO_TOKENS },
      { failed: 1, unmetered: 1 },
    ],
    [
      "the gateway fell silent",
      { end: "gateway-failed", status: 504, refusal: "gateway-timeout", ...NO_TOKENS },
      { failed: 1, unmetered: 1 },
    ],
    [
      "never reached the gateway",
      { end: "gateway-failed", status: 502, refusal: "gateway-unreachable", ...NO_TOKENS },
      { failed: 1 },
    ],
    ["cut before its output was told", { output_tokens: null, list_microdollars: null }, { unmetered: 1 }],
    [
      "a websocket",
      { method: "GET", endpoint: "/v1/responses", status: 101, ...NO_TOKENS },
      { unmetered: 1 },
    ],
    ["no usage", NO_TOKENS, { unmetered: 1 }],
    ["no usage, where none is expected", { ...NO_TOKENS, method: "GET", endpoint: "/v1/models" }, {}],
    ["no price", { list_microdollars: null, cost_microdollars: null }, { unpriced: 1 }],
    ["billed", { billed_microdollars: 9 }, { billed_requests: 1, billed_microdollars: 9 }],
    ["billed nothing", { billed_microdollars: 0 }, { billed_requests: 1 }],
  ];
  const counts = ["refused", "failed", "client_left", "interrupted", "unmetered", "unpriced"] as const;
  for (const [name, given, expected] of cases) {
    const { sums } = cellOf(record(given));
    t.equal(sums.requests, 1);
    for (const count of counts) t.equal(sums[count], expected[count] ?? 0, `${name}: ${count}`);
    t.equal(sums.billed_requests, expected.billed_requests ?? 0, name);
    t.equal(sums.billed_microdollars, expected.billed_microdollars ?? 0, name);
  }
  t.end();
});

t.test("what the quota counts is what was billed, else what was counted, else what was held", (t) => {
  const counted = (given: Partial<UsageRecord>) => cellOf(record(given)).sums.counted_microdollars;
  const all = { billed_microdollars: 0, counted_microdollars: 20, held_microdollars: 300 };
  t.equal(counted(all), 0);
  t.equal(counted({ ...all, billed_microdollars: null }), 20);
  t.equal(counted({ ...all, billed_microdollars: null, counted_microdollars: null }), 300);
  t.equal(counted({ ...all, billed_microdollars: 5, counts: false }), 0);
  t.end();
});

t.test("a correction takes the old out of its cell and puts the new into its own", (t) => {
  const before = record({ ...NO_TOKENS, model: null, model_answered: null, first_byte_at: null });
  const after = record({
    ...before,
    ...closing(),
    model_answered: "m",
    first_byte_at: before.started_at + 500,
  });
  const tally = createTally();
  tally.count(before);
  tally.change(before, after);
  const straight = createTally();
  straight.count(after);
  const kept = [...tally.cells()].filter(({ sums }) => sums.requests !== 0);
  t.same(kept, [...straight.cells()]);
  const left = [...tally.cells()].filter(({ sums }) => sums.requests === 0);
  for (const cell of left)
    t.ok(
      Object.values(cell.sums).every((value) => value === 0),
      "nothing is left behind",
    );
  t.end();
});

t.test("a percentile of the summary is within 5 % of the exact one", (t) => {
  const times = fc.array(fc.integer({ min: 0, max: 700_000 }), { minLength: 1, maxLength: 300 });
  fc.assert(
    fc.property(times, fc.constantFrom(0.5, 0.95, 1), (times, share) => {
      const histogram = new Map<number, number>();
      for (const time of times) mergeFirstBytes(histogram, new Map([[bucketOf(time), 1]]));
      const sorted = times.toSorted((a, b) => a - b);
      const exact = sorted[Math.max(0, Math.ceil(times.length * share) - 1)] ?? 0;
      const found = percentile(histogram, share) ?? Number.NaN;
      return Math.abs(found - exact) <= exact * 0.05 + 0.001;
    }),
  );
  t.equal(percentile(new Map(), 0.5), null);
  t.end();
});

t.test("a summary is the same after it was written and read, and parts add up to the whole", (t) => {
  const times = fc.array(fc.double({ min: -5, max: 1e12, noNaN: false }), { maxLength: 60 });
  const of = (times: readonly number[]) => {
    const histogram = new Map<number, number>();
    for (const time of times) mergeFirstBytes(histogram, new Map([[bucketOf(time), 1]]));
    return histogram;
  };
  fc.assert(
    fc.property(times, times, (some, others) => {
      const sum = readFirstBytes(writeFirstBytes(of(some)));
      mergeFirstBytes(sum, readFirstBytes(writeFirstBytes(of(others))));
      t.equal(writeFirstBytes(sum), writeFirstBytes(of([...some, ...others])));
      mergeFirstBytes(sum, of(others), -1);
      return writeFirstBytes(sum) === writeFirstBytes(of(some));
    }),
  );
  t.end();
});

t.test("a summary that makes no sense is read as far as it does", (t) => {
  t.same(
    [...readFirstBytes("3:4 x:1 9: :2 5:6 nonsense")],
    [
      [3, 4],
      [5, 6],
    ],
  );
  t.equal(millisecondsOf(bucketOf(Number.NaN)), 0);
  t.ok(millisecondsOf(bucketOf(Number.POSITIVE_INFINITY)) < 100_000_000, "bounded");
  t.end();
});
