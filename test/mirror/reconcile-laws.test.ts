import { deepStrictEqual } from "node:assert";
import fc from "fast-check";
import t from "tap";
import {
  type Context,
  FARTHEST_MS,
  type OurRequest,
  type TheirRow,
} from "../../src/mirror/reconcile/context.ts";
import { reconcile } from "../../src/mirror/reconcile/reconcile.ts";
import type { JudgedRecord, JudgedRow } from "../../src/mirror/verdict.ts";
import { runs } from "../doubles/effort.ts";
import { contextOf, makeDay, theirsOf } from "../doubles/mirror-day.ts";
import { HOUR, left, MINUTE, matchContext, NOW, request, row, THEN } from "./reconcile-samples.ts";

/** So few values of everything that they meet all the time. */
const time = fc.oneof(
  fc.integer({ min: -60, max: 60 }).map((seconds) => THEN + seconds * 1000),
  fc.integer({ min: -120, max: 200 }).map((minutes) => THEN + minutes * MINUTE),
);
const id = fc.constantFrom("x", "y", "z", "v", "w");
const key = fc.constantFrom("…a1b2", "…a1b2", "…c3d4", null);
const model = fc.constantFrom("gpt-5.1", "GPT-5.1", "claude", null);
const count = fc.constantFrom(1, 2, 3);

const someRequest: fc.Arbitrary<Omit<OurRequest, "id">> = fc
  .record({
    ended_at: fc.option(time, { freq: 8 }),
    started: time,
    lasting: fc.constantFrom(500, 20_000, 20 * MINUTE),
    clock_error: fc.constantFrom(0, 0, 5000),
    running: fc.boolean(),
    key,
    model,
    model_answered: model,
    stream: fc.constantFrom(true, false, null),
    status: fc.constantFrom(200, 429, 502, null),
    user_agent: fc.constantFrom("codex/1.0", "curl/8.5.0", null),
    ids: fc.oneof(fc.constant([]), fc.array(id, { maxLength: 2 })),
    own: fc.boolean(),
    brings: fc.boolean(),
    tokens: fc.option(
      fc.record({ input: count, cache_read: count, cache_write: fc.constant(0), output: count }),
    ),
    exact: fc.boolean(),
    expected: fc.boolean(),
    billable: fc.boolean(),
    upgraded: fc.integer({ min: 0, max: 9 }).map((number) => number === 0),
  })
  .map(({ started, lasting, own, brings, ...rest }) => {
    const started_at = rest.ended_at === null ? started : rest.ended_at - lasting;
    return {
      ...rest,
      running: rest.running && rest.ended_at === null,
      started_at,
      sent_at: started_at,
      own_id: own && rest.ids.length > 0,
      brought_id: (own && brings && rest.ids[0]) || null,
      refusable: false,
      failed: rest.status !== null && rest.status >= 400,
    };
  });

const someRow = fc.record({
  kind: fc.constantFrom("use", "use", "use", "error", "refund") satisfies fc.Arbitrary<TheirRow["kind"]>,
  at: time,
  began: fc.option(time),
  key,
  request_id: fc.option(id),
  upstream_id: fc.option(id, { freq: 1 }),
  model,
  stream: fc.constantFrom(true, false, null),
  input_tokens: fc.option(count, { freq: 8 }),
  cache_read_tokens: fc.option(count, { freq: 4 }),
  cache_write_tokens: fc.constantFrom(0, 0, null),
  output_tokens: count,
  billed_microdollars: fc.constantFrom(8130, 8130, 9000, null),
  duration_ms: fc.constantFrom(null, null, 500, 20_000, 20 * MINUTE, 80 * MINUTE),
  user_agent: fc.constantFrom("codex/1.0", "curl/8.5.0", null),
});

const someContext: fc.Arbitrary<Context> = fc
  .record({ hands_out_ids: fc.boolean(), bills_failures: fc.boolean(), since: fc.constantFrom(0, THEN) })
  .map(({ since, ...given }) =>
    matchContext({ ...given, held: () => ({ since, until: null, replaced: false }) }),
  );

const someLogs = fc
  .record({ ours: fc.array(someRequest, { maxLength: 25 }), rows: fc.array(someRow, { maxLength: 25 }) })
  .map(({ ours, rows }) => ({
    ours: ours.map((given, index): OurRequest => request(`r${index}`, given)),
    theirs: rows.map((given, index) => row(`w${index}`, given)),
  }));

const RUNS = { numRuns: runs(30) };

t.test("the order of the two lists does not matter", (t) => {
  const shuffled = someLogs.chain(({ ours, theirs }) =>
    fc.record({
      logs: fc.constant({ ours, theirs }),
      ours: fc.shuffledSubarray(ours, { minLength: ours.length }),
      theirs: fc.shuffledSubarray(theirs, { minLength: theirs.length }),
    }),
  );
  fc.assert(
    fc.property(shuffled, someContext, ({ logs, ours, theirs }, context) => {
      deepStrictEqual(reconcile(ours, theirs, context), reconcile(logs.ours, logs.theirs, context));
    }),
    RUNS,
  );
  t.end();
});

t.test("each row has one verdict, each record at most one, and they agree", (t) => {
  fc.assert(
    fc.property(someLogs, someContext, ({ ours, theirs }, context) => {
      const { rows, records } = reconcile(ours, theirs, context);
      const once = (names: readonly string[]) => new Set(names).size === names.length;
      if (!once(rows.map(({ identity }) => identity)) || rows.length !== theirs.length) return false;
      if (!once(records.map(({ record }) => record))) return false;
      const judged = new Set(records.map(({ record }) => record));
      const expected = ours.filter(({ expected, running, upgraded }) => expected && !running && !upgraded);
      if (!expected.every(({ id }) => judged.has(id))) return false;
      const main = rows.filter(({ verdict, how }) => isMatch(verdict) && how !== "sum");
      const pairs = main.map(({ identity, record, verdict, how }) => [record, identity, verdict, how].join());
      const mirrored = records
        .filter(({ verdict, how }) => isMatch(verdict) && how !== "sum")
        .map(({ record, row, verdict, how }) => [record, row, verdict, how].join());
      const sums = (list: readonly (JudgedRow | JudgedRecord)[], verdict: string) =>
        list.filter((one) => one.how === "sum" && one.verdict === verdict).length;
      deepStrictEqual(pairs.sort(), mirrored.sort());
      return (
        once(main.map(({ record }) => record ?? "")) && sums(rows, "matched") === sums(records, "matched")
      );
    }),
    RUNS,
  );
  t.end();
});

function isMatch(verdict: string): boolean {
  return verdict === "matched" || verdict === "differs";
}

t.test("no match contradicts the ids of both sides", (t) => {
  fc.assert(
    fc.property(someLogs, ({ ours, theirs }) => {
      const { rows } = reconcile(ours, theirs, matchContext());
      const idsOf = new Map(ours.map((one) => [one.id, one.upgraded || !one.own_id ? [] : one.ids]));
      const rowOf = new Map(theirs.map((one) => [one.identity, one]));
      return rows.every(({ identity, record, how }) => {
        const ids = idsOf.get(record ?? "") ?? [];
        return how === "id" || how === null || ids.length === 0 || rowOf.get(identity)?.request_id === null;
      });
    }),
    RUNS,
  );
  t.end();
});

t.test("with ids, one more foreign row changes no other verdict", (t) => {
  fc.assert(
    fc.property(someLogs, someRow, ({ ours, theirs }, given) => {
      // Without one that may take any row: that is what can hide a foreign one.
      const known = ours.filter(({ own_id, upgraded }) => own_id && !upgraded);
      const fresh = row("fresh", { ...given, request_id: "fresh", upstream_id: null });
      const before = reconcile(known, theirs, matchContext());
      const after = reconcile(known, [...theirs, fresh], matchContext());
      const byName = (rows: readonly JudgedRow[]) => rows.filter(({ identity }) => identity !== "fresh");
      deepStrictEqual(byName(after.rows), before.rows);
      deepStrictEqual(after.records, before.records);
    }),
    RUNS,
  );
  t.end();
});

/** The verdicts of windows, each judged together with its surroundings. */
function inSlices(
  { ours, theirs }: { ours: readonly OurRequest[]; theirs: readonly TheirRow[] },
  context: Context,
  { from, to, length }: { from: number; to: number; length: number },
): { rows: JudgedRow[]; records: JudgedRecord[] } {
  const rows: JudgedRow[] = [];
  const records: JudgedRecord[] = [];
  const atOf = new Map(theirs.map(({ identity, at }) => [identity, at]));
  const endOf = new Map(ours.map(({ id, ended_at, started_at }) => [id, ended_at ?? started_at]));
  for (let start = from; start < to; start += length) {
    const end = start + length;
    const inside = (time: number | undefined) => time !== undefined && time >= start && time < end;
    const seen = reconcile(
      ours.filter(
        ({ started_at, ended_at, running }) =>
          running || (started_at < end + FARTHEST_MS && (ended_at ?? started_at) >= start - FARTHEST_MS),
      ),
      theirs.filter(({ at }) => at >= start - FARTHEST_MS && at < end + FARTHEST_MS),
      context,
    );
    rows.push(...seen.rows.filter(({ identity }) => inside(atOf.get(identity))));
    records.push(...seen.records.filter(({ record }) => inside(endOf.get(record))));
  }
  return { rows, records };
}

const sorted = ({ rows, records }: { rows: readonly JudgedRow[]; records: readonly JudgedRecord[] }) => ({
  rows: [...rows].sort((a, b) => (a.identity < b.identity ? -1 : 1)),
  records: [...records].sort((a, b) => (a.record < b.record ? -1 : 1)),
});

for (const ids of [true, false]) {
  t.test(`a day ${ids ? "with" : "without"} ids gets the same verdicts in slices as at once`, (t) => {
    for (const [index, length] of [15 * MINUTE, 47 * MINUTE, 5 * HOUR].entries()) {
      const day = makeDay({ seed: 20 + index, requests: 500, ids });
      const logs = { ours: day.ours, theirs: theirsOf(day) };
      const slices = { from: day.from - HOUR, to: day.to + HOUR, length };
      deepStrictEqual(
        sorted(inSlices(logs, contextOf(day), slices)),
        sorted(reconcile(logs.ours, logs.theirs, contextOf(day))),
      );
    }
    t.end();
  });
}

t.test("matches at the largest distance are found in slices of a quarter of an hour", (t) => {
  const early = { input_tokens: 1100, at: THEN + 59 * MINUTE };
  const late = { input_tokens: 1300, at: THEN + 59 * MINUTE + 1000 };
  const logs = {
    ours: [
      // An hour whose requests are all at its beginning, and whose rows are all at its end.
      request("a", { ended_at: THEN, ids: ["x"] }),
      request("b", { ended_at: THEN + 1000, ids: ["y"] }),
      // A crash, and a client that left: their rows began with them, and ended as late as can be.
      left("c", { key: "…c3d4", started_at: THEN - 2 * HOUR, ended_at: null }),
      left("d", { key: "…e5f6", started_at: THEN - 2 * HOUR, ended_at: THEN - 110 * MINUTE }),
    ],
    theirs: [
      row("1", early),
      row("2", late),
      row("3", { key: "…c3d4", request_id: "u", at: THEN - 30 * MINUTE, began: THEN - 2 * HOUR }),
      row("4", { key: "…e5f6", request_id: "v", at: THEN - 20 * MINUTE, began: THEN - 2 * HOUR }),
    ],
  };
  const whole = reconcile(logs.ours, logs.theirs, matchContext());
  t.ok([...whole.rows, ...whole.records].every(({ verdict }) => verdict === "matched"));
  const slices = { from: THEN - 6 * HOUR - 7 * MINUTE, to: NOW, length: 15 * MINUTE };
  t.strictSame(sorted(inSlices(logs, matchContext(), slices)), sorted(whole));
  t.end();
});

t.test("any two logs get the same verdicts in slices as at once", (t) => {
  // The same id, and a WebSocket, can be further apart than what a slice sees.
  const near = someLogs.map(({ ours, theirs }) => ({
    ours: ours.map((one) => ({ ...one, ids: [], upgraded: false })),
    theirs: theirs.map((one, index) => ({
      ...one,
      request_id: one.request_id && `${index}`,
      upstream_id: null,
    })),
  }));
  fc.assert(
    fc.property(near, someContext, fc.integer({ min: 15, max: 200 }), (logs, context, minutes) => {
      const slices = { from: THEN - 12 * HOUR, to: NOW + 12 * HOUR, length: minutes * MINUTE };
      deepStrictEqual(
        sorted(inSlices(logs, context, slices)),
        sorted(reconcile(logs.ours, logs.theirs, context)),
      );
    }),
    { numRuns: runs(25) },
  );
  t.end();
});
