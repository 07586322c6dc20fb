import t from "tap";
import { readAlarms } from "../../src/mirror/alarms.ts";
import type { Sibling } from "../../src/mirror/reconcile/siblings.ts";
import { readDiff } from "../../src/mirror/report/compared.ts";
import { readReport } from "../../src/mirror/report/report.ts";
import { planDays } from "../../src/mirror/store/changed-days.ts";
import { readWaitingRows } from "../../src/mirror/store/rows.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { record } from "../doubles/records.ts";
import {
  AT,
  all,
  compareAll,
  HOUR,
  MINUTE,
  type MirrorFile,
  mirrorFile,
  page,
  row,
  unmetered,
  verdicts,
} from "./mirror-file.ts";

const DAY = 24 * HOUR;
/** When the row of the laptop's request was written, and when that began. */
const LISTED = AT + 10 * MINUTE;
const SENT = LISTED - 2333;

const laptop = (seenUntil: number, keys: readonly string[] = ["…a1b2"]): Sibling => ({
  name: "laptop",
  seenUntil,
  keys,
  isStopped: false,
  isVerified: true,
});

/** The laptop's request of a number. */
const theirs = (number: number, given: Partial<UsageRecord> = {}) => {
  const machine = { machine: "laptop", machine_id: "machine-1", verified: given.verified ?? true };
  const { started_at = SENT } = given;
  return {
    ...record(number, { started_at, ended_at: started_at + 2333, ...given }),
    ...machine,
  };
};

/** Records of the laptop come, into today's file. */
function arrive(mirror: MirrorFile, ...records: readonly ReturnType<typeof theirs>[]): void {
  mirror.append(records.map((one) => ({ kind: "sibling", ...one })));
  mirror.catchUp();
}

/** One request of this machine with its row, from which ids are learned, and a row of nobody here. */
function twoRows(t: Parameters<typeof mirrorFile>[0]): MirrorFile {
  const mirror = mirrorFile(t, [record(1)]);
  page(mirror.db, [row(1), row(2, { created_at: LISTED })]);
  return mirror;
}

const verdictOf = ({ db }: MirrorFile, identity = "row-2") =>
  verdicts(db)
    .find(([name]) => name === identity)
    ?.slice(1, 4)
    .join(" ");
const reasons = ({ db }: MirrorFile) =>
  all(db, "SELECT reason FROM mirror.console_rows WHERE identity = 'row-2'")[0]?.[0];
const alarms = ({ db }: MirrorFile) => readAlarms(db, "main", 0, new Set());
const plannedDays = ({ db }: MirrorFile, now: number, siblings: readonly Sibling[]) =>
  planDays(db, "main", { now, skew: 0, siblings }).days;

t.test("a row waits for the machine that may have sent it, and matches its record days later", async (t) => {
  const mirror = twoRows(t);
  compareAll(mirror, { siblings: [laptop(AT)] });
  t.equal(verdictOf(mirror), "unwatched  0");
  t.equal(reasons(mirror), `cannot see: laptop since ${new Date(AT).toISOString().slice(0, 16)}Z`);
  t.same(alarms(mirror), []);

  const later = AT + 5 * DAY;
  t.same(plannedDays(mirror, later, [laptop(AT)]), [], "while nothing comes, nothing is compared");
  compareAll(mirror, { now: later, siblings: [laptop(AT)] });
  t.equal(verdictOf(mirror), "unwatched  0");

  arrive(mirror, theirs(2));
  const { amendments, corrections } = compareAll(mirror, { now: later, siblings: [laptop(later)] });
  t.equal(verdictOf(mirror), "matched id 0");
  t.same(all(mirror.db, "SELECT record, verdict, row FROM mirror.verdicts WHERE row = 'row-2'"), [
    [theirs(2).id, "matched", "row-2"],
  ]);
  t.match(amendments, [{ kind: "sibling-amend", id: theirs(2).id, billed_microdollars: 9000 }]);
  t.same(corrections, [], "another machine's request takes nothing from the limits here");
  t.same(plannedDays(mirror, later + HOUR, [laptop(later + HOUR)]), [], "and that was all");
});

t.test("a row that the machine did not send raises the alarm once the machine is seen", async (t) => {
  const mirror = twoRows(t);
  compareAll(mirror, { siblings: [laptop(AT)] });
  compareAll(mirror, { now: AT + 2 * DAY, siblings: [laptop(SENT + 8000)] });
  t.equal(verdictOf(mirror), "unwatched  0", "the clocks may differ by this much");
  compareAll(mirror, { now: AT + 2 * DAY, siblings: [laptop(SENT + 8001)] });
  t.equal(verdictOf(mirror), "foreign  1");
  t.match(alarms(mirror), [{ key: "…a1b2", certain: true, count: 1 }]);
});

t.test("a machine that is new here brings records of any age", async (t) => {
  const mirror = twoRows(t);
  compareAll(mirror);
  t.equal(verdictOf(mirror), "foreign  1");
  const later = AT + 5 * DAY;
  compareAll(mirror, { now: later, siblings: [laptop(0)] });
  t.equal(verdictOf(mirror), "foreign  1", "a certain alarm is not silenced by a machine that says nothing");
  arrive(mirror, theirs(2));
  compareAll(mirror, { now: later, siblings: [laptop(later)] });
  t.equal(verdictOf(mirror), "matched id 0", "it ends when the record comes");
  t.same(alarms(mirror), []);
});

t.test("records of a machine may come before its seen time", async (t) => {
  const mirror = twoRows(t);
  compareAll(mirror);
  arrive(mirror, theirs(2));
  const later = AT + 5 * DAY;
  compareAll(mirror, { now: later, siblings: [laptop(later)] });
  t.equal(verdictOf(mirror), "matched id 0");
});

t.test("a record that comes days late and has no row is missing", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  page(mirror.db, [row(1)]);
  compareAll(mirror, { siblings: [laptop(AT)] });
  const later = AT + 5 * DAY;
  compareAll(mirror, { now: later, siblings: [laptop(AT)] });
  arrive(mirror, theirs(2));
  compareAll(mirror, { now: later, siblings: [laptop(later)] });
  t.same(all(mirror.db, `SELECT verdict FROM mirror.verdicts WHERE record = '${theirs(2).id}'`), [
    ["missing"],
  ]);
});

t.test("a suspicion waits for a machine that is new here, and returns when it is gone", async (t) => {
  const mirror = mirrorFile(t);
  page(mirror.db, [row(2, { created_at: LISTED })]);
  compareAll(mirror);
  t.equal(verdictOf(mirror), "foreign  0", "no id was ever matched, so it is suspected");
  compareAll(mirror, { now: AT + 2 * DAY, siblings: [laptop(0)] });
  t.equal(verdictOf(mirror), "unwatched  0");
  t.equal(reasons(mirror), "cannot see: laptop since it joined");
  compareAll(mirror, { now: AT + 3 * DAY, siblings: [laptop(0, ["…c3d4"])] });
  t.equal(verdictOf(mirror), "foreign  0", "it no longer holds the key");
  compareAll(mirror, { now: AT + 3 * DAY, siblings: [laptop(0)] });
  compareAll(mirror, { now: AT + 4 * DAY });
  t.equal(verdictOf(mirror), "foreign  0");
});

t.test("two machines of one name are both waited for", async (t) => {
  const mirror = twoRows(t);
  compareAll(mirror, { siblings: [laptop(AT), laptop(AT + 1)] });
  compareAll(mirror, { now: AT + 2 * DAY, siblings: [laptop(AT), laptop(AT + DAY)] });
  t.equal(verdictOf(mirror), "unwatched  0");
  compareAll(mirror, { now: AT + 2 * DAY, siblings: [laptop(AT + DAY), laptop(AT + DAY)] });
  t.equal(verdictOf(mirror), "foreign  1");
});

t.test("another machine's request that lasted for days has its row", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const ended = AT + 4 * DAY;
  page(mirror.db, [row(1)]);
  compareAll(mirror, { siblings: [laptop(SENT)] });
  page(mirror.db, [row(2, { created_at: ended, duration_ms: ended - SENT })]);
  compareAll(mirror, { now: ended + HOUR, siblings: [laptop(SENT)] });
  t.equal(verdictOf(mirror), "unwatched  0");
  arrive(mirror, theirs(2, { ended_at: ended }));
  compareAll(mirror, { now: ended + HOUR, siblings: [laptop(ended + HOUR)] });
  t.equal(verdictOf(mirror), "matched id 0");
});

t.test("a request with a key that is not held here is never missing", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  page(mirror.db, [row(1)]);
  arrive(mirror, theirs(2), theirs(3, { key: "…c3d4" }));
  compareAll(mirror, { now: AT + DAY, siblings: [laptop(AT + DAY)] });
  t.same(all(mirror.db, "SELECT record, verdict FROM mirror.verdicts ORDER BY record"), [
    [record(1).id, "matched"],
    [theirs(2).id, "missing"],
  ]);
});

t.test("how soon a request begins at the gateway is learned from this machine's clock", async (t) => {
  const mine = Array.from({ length: 20 }, (_, number) => record(number));
  const others = Array.from({ length: 60 }, (_, number) => theirs(100 + number, { started_at: AT }));
  const mirror = mirrorFile(t, mine);
  arrive(mirror, ...others);
  const later = (number: number) => row(number, { began_at: AT + (number < 100 ? 20 : 1900) });
  page(mirror.db, [...mine.keys()].map(later));
  page(
    mirror.db,
    [...others.keys()].map((number) => later(100 + number)),
  );
  compareAll(mirror, { siblings: [laptop(AT + HOUR)] });
  const [fit] = all(mirror.db, "SELECT value FROM mirror.facts WHERE name = 'mirror:main:start_fit'");
  t.match(JSON.parse(String(fit?.[0])), { later: 20, within: 500 });
});

t.test("the report and the list of differences name what waits", async (t) => {
  const mirror = twoRows(t);
  const { db } = mirror;
  const now = AT + HOUR;
  const siblings = [laptop(AT), { ...laptop(now - 20_000), name: "desktop" }];
  compareAll(mirror, { now, siblings });
  t.same(readWaitingRows(db, "main", 0), [{ key: "…a1b2", began: SENT }]);
  const options = { now, skew: 0, elsewhere: [], multipliers: {} };
  t.match(readReport(db, "main", { ...options, siblings }), {
    rows: { unwatched: 1, foreign_certain: 0 },
    unseen_machines: [{ machine: "laptop", since: AT }],
  });
  const unseen = (...given: readonly Sibling[]) =>
    readReport(db, "main", { ...options, siblings: given }).unseen_machines;
  t.same(unseen(), []);
  t.same(unseen(laptop(0)), [{ machine: "laptop", since: null }]);
  t.same(unseen(laptop(now - 2 * MINUTE)), [{ machine: "laptop", since: now - 2 * MINUTE }], "no row waits");
  t.same(unseen(laptop(now - 50_000)), [], "its records are on their way");
  t.same(unseen(laptop(AT, ["…c3d4"])), [], "it holds none of the keys here");
  t.match(readDiff(db, "main", { max: 10, skew: 0, quietKeys: new Set() }), [
    { verdict: "unwatched", row: { identity: "row-2" }, record: null, reason: /^cannot see: laptop since / },
  ]);
  t.same(readDiff(db, "main", { max: 10, skew: 0, quietKeys: new Set(["…a1b2"]) }), []);
});

t.test("another machine's record that took the console's tokens gives them back to no limit", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  page(mirror.db, [row(1), row(2, { created_at: LISTED })]);
  const { held_tokens, held_microdollars, ...rest } = unmetered(2, { started_at: SENT });
  arrive(mirror, theirs(2, { ...rest, ended_at: LISTED }));
  const { corrections } = compareAll(mirror, { now: AT + DAY, siblings: [laptop(AT + DAY)] });
  t.equal(verdictOf(mirror), "matched id 0");
  t.same(
    corrections.filter(({ at }) => at !== AT),
    [],
  );
});

/** The same without a signature: the store may have invented it. */
const unsigned = (seenUntil: number): Sibling => ({ ...laptop(seenUntil), isVerified: false });

t.test("a row that only an unsigned record explains is a suspicion until a signed one comes", async (t) => {
  const mirror = twoRows(t);
  arrive(mirror, theirs(2, { verified: false }));
  const { amendments } = compareAll(mirror, { now: AT + DAY, siblings: [unsigned(AT + DAY)] });
  t.equal(verdictOf(mirror), "foreign  0");
  t.match(reasons(mirror), `are not signed (shared.secret): it may be request ${theirs(2).id}`);
  t.same(
    amendments.filter(({ id }) => id === theirs(2).id),
    [],
    "it takes nothing from the console",
  );
  arrive(mirror, theirs(2));
  compareAll(mirror, { now: AT + 2 * DAY, siblings: [laptop(AT + 2 * DAY)] });
  t.equal(verdictOf(mirror), "matched id 0");
});

t.test("a machine that does not sign hides no row, and ends no alarm", async (t) => {
  const mirror = twoRows(t);
  compareAll(mirror, { siblings: [unsigned(AT)] });
  t.equal(verdictOf(mirror), "foreign  0");
  t.match(reasons(mirror), "are not signed (shared.secret): laptop has this key, and may have sent it");
  compareAll(mirror, { now: AT + DAY, siblings: [unsigned(AT + DAY)] });
  t.equal(verdictOf(mirror), "foreign  1", "it says that it did not send it");
  for (const next of [unsigned(0), { ...unsigned(0), isStopped: true }]) {
    compareAll(mirror, { now: AT + 2 * DAY, siblings: [next] });
    t.equal(verdictOf(mirror), "foreign  1");
  }
  arrive(mirror, theirs(2, { verified: false }));
  compareAll(mirror, { now: AT + 3 * DAY, siblings: [unsigned(AT + 3 * DAY)] });
  t.equal(verdictOf(mirror), "foreign  1");
  t.match(alarms(mirror), [{ certain: true, count: 1 }]);
});

t.test("nothing is learned from an unsigned record", async (t) => {
  const mirror = mirrorFile(t);
  page(mirror.db, [row(2, { created_at: LISTED })]);
  arrive(mirror, theirs(2, { verified: false }));
  compareAll(mirror, { now: AT + DAY, siblings: [unsigned(AT + DAY)] });
  t.same(all(mirror.db, "SELECT value FROM mirror.facts WHERE name = 'mirror:main:own_ids'"), []);
});
