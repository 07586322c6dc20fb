import fc from "fast-check";
import t from "tap";
import type { Context, OurRequest, TheirRow } from "../../src/mirror/reconcile/context.ts";
import { reconcile } from "../../src/mirror/reconcile/reconcile.ts";
import { SIBLING_CLOCK_MS, type Sibling } from "../../src/mirror/reconcile/siblings.ts";
import { runs } from "../doubles/effort.ts";
import { contextOf, type Day, makeDay, theirsOf } from "../doubles/mirror-day.ts";
import {
  left,
  MINUTE,
  matchContext,
  NOW,
  request,
  row,
  SECOND,
  THEN,
  verdicts,
} from "./reconcile-samples.ts";

const laptop = (given: Partial<Sibling> = {}): Sibling => ({
  name: "laptop",
  seenUntil: THEN - MINUTE,
  keys: ["…a1b2"],
  isStopped: false,
  isVerified: true,
  ...given,
});

/** A row with an id that no request of ours has. */
const theirs = (given: Partial<TheirRow>) => row("1", { request_id: "other", ...given });

/** That of a request that lasted two seconds. */
const began = (at: number) => theirs({ at: at + 2 * SECOND, began: at });

interface Case {
  readonly name: string;
  readonly ours?: readonly OurRequest[];
  readonly row: TheirRow;
  readonly siblings: readonly Sibling[];
  readonly context?: Partial<Context>;
  readonly verdict: string;
}

const SEEN = THEN - MINUTE;

const CASES: readonly Case[] = [
  {
    name: "a row after the last record of another machine that holds its key waits for that machine",
    row: began(THEN),
    siblings: [laptop()],
    verdict: "unwatched",
  },
  {
    name: "a row that would only be suspected waits for that machine, too",
    row: began(THEN),
    siblings: [laptop()],
    context: { hands_out_ids: false },
    verdict: "unwatched",
  },
  {
    name: "a row of a key that the machine does not hold is foreign",
    row: began(THEN),
    siblings: [laptop({ keys: ["…c3d4"] })],
    verdict: "foreign certain",
  },
  {
    name: "a row from before the machine's last record is foreign",
    row: began(SEEN - 8 * SECOND - 1),
    siblings: [laptop()],
    verdict: "foreign certain",
  },
  {
    name: "a row that may be earlier only because the clocks differ waits",
    row: began(SEEN - 8 * SECOND),
    siblings: [laptop()],
    verdict: "unwatched",
  },
  {
    name: "a long request counts by its start: its record would be here",
    row: theirs({ at: THEN, began: SEEN - MINUTE }),
    siblings: [laptop()],
    verdict: "foreign certain",
  },
  {
    name: "a long request counts by its start also where the console lists only how long it took",
    row: theirs({ at: THEN, began: null, duration_ms: 3 * MINUTE }),
    siblings: [laptop()],
    verdict: "foreign certain",
  },
  {
    name: "a row whose start the console does not list counts by its end",
    row: theirs({ at: THEN, began: null, duration_ms: null }),
    siblings: [laptop()],
    verdict: "unwatched",
  },
  {
    name: "a row waits if one of several machines may have sent it",
    row: began(THEN),
    siblings: [laptop({ seenUntil: NOW }), laptop({ name: "desktop" })],
    verdict: "unwatched",
  },
  {
    name: "a row is foreign once all machines are seen",
    row: began(THEN),
    siblings: [laptop({ seenUntil: NOW }), laptop({ name: "desktop", seenUntil: NOW })],
    verdict: "foreign certain",
  },
  {
    name: "a machine that is as far behind as an idle one hides nothing",
    row: theirs({ at: NOW - 30 * SECOND, began: NOW - 31 * SECOND }),
    siblings: [laptop({ seenUntil: NOW - 20 * SECOND })],
    verdict: "foreign certain",
  },
  {
    name: "after a machine stopped, it may run again without the store, so a row is only suspected",
    row: began(THEN),
    siblings: [laptop({ seenUntil: THEN - MINUTE, isStopped: true })],
    verdict: "foreign",
  },
  {
    name: "a row from before a machine stopped is foreign: everything until then is known",
    row: began(THEN),
    siblings: [laptop({ seenUntil: THEN + MINUTE, isStopped: true })],
    verdict: "foreign certain",
  },
  {
    name: "a row that is too recent is pending before it waits",
    row: theirs({ at: NOW - 5 * SECOND, began: NOW - 6 * SECOND }),
    siblings: [laptop()],
    verdict: "pending",
  },
  {
    name: "a record matches its row, whatever else is not here yet",
    ours: [request("a", { ids: ["x"] })],
    row: row("1", { request_id: "x" }),
    siblings: [laptop()],
    verdict: "matched id →a",
  },
  {
    name: "a record matches its row also in a gap of this machine's log",
    ours: [request("a", { ids: ["x"] })],
    row: row("1", { request_id: "x" }),
    siblings: [laptop({ seenUntil: NOW })],
    context: { log_gaps: [{ from: THEN - MINUTE, to: THEN + MINUTE }] },
    verdict: "matched id →a",
  },
  {
    name: "a key that was replaced here waits for the machine that still has it",
    row: began(THEN),
    siblings: [laptop()],
    context: { held: () => ({ since: 0, until: THEN - MINUTE, replaced: true }) },
    verdict: "unwatched",
  },
];

for (const { name, ours = [], row: listed, siblings, context, verdict } of CASES) {
  t.test(name, (t) => {
    t.equal(verdicts(ours, [listed], { ...context, siblings })["1"], verdict);
    t.end();
  });
}

t.test("a request of another machine without an id can match a row that began seconds earlier", (t) => {
  const canceled = (clock_error: number) =>
    left("a", { started_at: THEN, ended_at: THEN + SECOND, clock_error });
  const judged = (seconds: number, clockError: number) =>
    verdicts([canceled(clockError)], [theirs({ began: THEN + seconds * SECOND, at: THEN + 10 * SECOND })])[
      "1"
    ];
  t.equal(judged(-4, 0), "foreign certain", "this machine's clock is the one that all times are by");
  t.equal(judged(-4, SIBLING_CLOCK_MS), "foreign");
  t.equal(judged(7, SIBLING_CLOCK_MS), "foreign");
  t.equal(judged(-6, SIBLING_CLOCK_MS), "foreign certain");
  t.equal(judged(0, SIBLING_CLOCK_MS), "matched presumed →a");
  t.end();
});

t.test("the reason names every machine that may have sent it, and since when", (t) => {
  const siblings = [
    laptop({ seenUntil: Date.UTC(2026, 10, 14, 8, 2, 59) }),
    laptop({ name: "desktop", seenUntil: 0 }),
    laptop({ name: "server", seenUntil: NOW }),
  ];
  const { rows } = reconcile([], [began(THEN)], matchContext({ siblings }));
  t.match(rows, [
    {
      verdict: "unwatched",
      certain: false,
      key: "…a1b2",
      reason: "cannot see: desktop since it joined, laptop since 2026-11-14T08:02Z",
    },
  ]);
  t.end();
});

/** Two machines share a day. The other one's records are here up to some time, and some of the later ones. */
const sharedDay = fc
  .record({
    seed: fc.integer({ min: 1, max: 1_000_000 }),
    ids: fc.boolean(),
    share: fc.integer({ min: 1, max: 9 }),
    seen: fc.integer({ min: 0, max: 24 * 60 }),
    late: fc.integer({ min: 0, max: 9 }),
  })
  .map(({ seed, ids, share, seen, late }) => {
    const day = makeDay({ seed, ids, requests: 400, foreign: 5 });
    const seenUntil = day.from + seen * MINUTE;
    const isHere = ({ id, started_at }: OurRequest) => {
      const number = Number(id.slice(-6));
      const isOwn = number % 10 >= share;
      return isOwn || started_at < seenUntil || (number * 7) % 10 < late;
    };
    return { day, seenUntil, here: day.ours.filter(isHere) };
  });

const siblingOf = (day: Day, seenUntil: number): Sibling => ({
  name: "laptop",
  seenUntil,
  keys: [...day.keys.values()],
  isStopped: false,
  isVerified: true,
});

t.test("a request of a machine whose records are not all here never raises an alarm", (t) => {
  fc.assert(
    fc.property(sharedDay, ({ day, seenUntil, here }) => {
      const siblings = [siblingOf(day, seenUntil)];
      const { rows } = reconcile(here, theirsOf(day), { ...contextOf(day), siblings });
      return rows.every(({ identity, verdict }) => verdict !== "foreign" || day.foreign.has(identity));
    }),
    { numRuns: runs(15) },
  );
  t.end();
});

t.test("once all records of a machine are here, exactly the rows that no machine sent are foreign", (t) => {
  fc.assert(
    fc.property(sharedDay, ({ day }) => {
      const siblings = [siblingOf(day, day.to + MINUTE)];
      const { rows } = reconcile(day.ours, theirsOf(day), { ...contextOf(day), siblings });
      return rows.every(({ identity, verdict }) => (verdict === "foreign") === day.foreign.has(identity));
    }),
    { numRuns: runs(15) },
  );
  t.end();
});

t.test("a row of a key that only seen machines hold is foreign", (t) => {
  fc.assert(
    fc.property(sharedDay, ({ day, seenUntil }) => {
      const [first = "", ...others] = day.keys.values();
      const siblings = [{ ...siblingOf(day, seenUntil), keys: others }];
      const { rows } = reconcile(day.ours, theirsOf(day), { ...contextOf(day), siblings });
      return rows.every(
        ({ identity, key, verdict }) =>
          key !== first || (verdict === "foreign") === day.foreign.has(identity),
      );
    }),
    { numRuns: runs(15) },
  );
  t.end();
});
