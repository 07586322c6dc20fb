import { isDeepStrictEqual } from "node:util";
import t from "tap";
import { reconcile } from "../../src/mirror/reconcile/reconcile.ts";
import type { JudgedRow } from "../../src/mirror/verdict.ts";
import { contextOf, type Day, makeDay, theirsOf } from "../doubles/mirror-day.ts";

/** The verdicts that are wrong. */
function faultsOf(day: Day, rows: readonly JudgedRow[]): string[] {
  return rows.flatMap(({ identity, verdict, record }) => {
    const owner = day.truth.get(identity) ?? null;
    if (record !== null && record !== owner) return [`${identity} belongs to ${owner}, not to ${record}`];
    if ((verdict === "foreign") !== day.foreign.has(identity)) return [`${identity} is ${verdict}`];
    return [];
  });
}

const DAY = 86_400_000;
const CLOCKS = [
  { name: "clocks that agree", skew: 0, off: 0 },
  { name: "a console three minutes ahead", skew: 180_000, off: 1000 },
  { name: "a console three minutes behind", skew: -180_000, off: -1000 },
  { name: "a console a day ahead", skew: DAY, off: 700 },
  { name: "a console a day behind", skew: -DAY, off: -700 },
] as const;

t.test("exactly the rows that did not pass here are foreign, and no match is wrong", (t) => {
  const day = makeDay({ seed: 6, requests: 6000 });
  const { rows, records } = reconcile(
    day.ours,
    theirsOf(day, day.skew + 1000),
    contextOf(day, day.skew + 1000),
  );
  t.same(faultsOf(day, rows), []);
  const foreign = rows.filter(({ verdict }) => verdict === "foreign");
  t.equal(foreign.length, 37);
  t.ok(foreign.every(({ certain }) => certain));
  const missing = records.filter(({ verdict }) => verdict === "missing").map(({ record }) => record);
  t.same(missing.sort(), [...day.dropped].sort(), "what the console dropped is missing, and nothing else");
  t.ok(missing.length > 30, `${missing.length} are missing`);
  t.equal(rows.length, day.rows.length);
  t.end();
});

for (const [index, { name, skew, off }] of CLOCKS.entries()) {
  for (const ids of [true, false]) {
    t.test(`the same holds for ${name}, ${ids ? "with" : "without"} ids`, (t) => {
      const day = makeDay({
        seed: 100 + index,
        requests: 1500,
        foreign: 11,
        skew,
        ids,
        seconds: index % 2 === 1,
      });
      const { rows, records } = reconcile(day.ours, theirsOf(day, skew + off), contextOf(day, skew + off));
      t.same(faultsOf(day, rows), []);
      const foreign = rows.filter(({ verdict }) => verdict === "foreign");
      t.equal(foreign.length, 11);
      t.ok(foreign.every(({ certain }) => certain === ids));
      const missing = records.filter(({ verdict }) => verdict === "missing").map(({ record }) => record);
      // Without ids, one of several alike may be called missing instead of another: the number is right.
      if (ids) t.same(missing.sort(), [...day.dropped].sort());
      else t.equal(missing.length, day.dropped.size);
      t.end();
    });
  }
}

t.test("the sample day contains every kind of difference between two logs", (t) => {
  const { records, rows, truth } = makeDay({ seed: 6, requests: 2000 });
  const rowsOf = new Map<string, number>();
  for (const record of truth.values()) rowsOf.set(record, (rowsOf.get(record) ?? 0) + 1);
  const early = records.filter(({ gateway_ids }) => Object.keys(gateway_ids).length === 0);
  t.ok(
    early.some(({ id }) => rowsOf.has(id)),
    "left before the answer, and billed",
  );
  t.ok(
    early.some(({ id }) => !rowsOf.has(id)),
    "left before the answer, and not billed",
  );
  t.ok(records.some(({ end, status }) => end === "client-left" && status === 200));
  t.ok(records.some(({ end, tokens_from }) => end === "complete" && tokens_from === "none"));
  t.ok(records.some(({ status }) => status === 502));
  t.ok(
    [...rowsOf.values()].some((count) => count > 1),
    "several rows of one request",
  );
  t.ok(rows.some(({ kind }) => kind === "error"));
  t.ok(
    isDeepStrictEqual(makeDay({ seed: 6, requests: 2000 }).rows, rows),
    "the same seed makes the same day",
  );
  t.end();
});
