import { join } from "node:path";
import t, { type Test } from "tap";
import { readAlarms } from "../../src/mirror/alarms.ts";
import type { ConsoleRow } from "../../src/mirror/console-row.ts";
import { noteUnanswered, type UnansweredBill } from "../../src/mirror/store/aborted-bills.ts";
import type { Amendment } from "../../src/mirror/store/amendments.ts";
import { hasChangedDays, planDays, touchFrom } from "../../src/mirror/store/changed-days.ts";
import { coverFrom, readFact, writeFact } from "../../src/mirror/store/facts.ts";
import { keyLinks, linkKeys } from "../../src/mirror/store/keys.ts";
import { forgetConsole, writePage } from "../../src/mirror/store/rows.ts";
import { openIndex } from "../../src/usage/index/database.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { longTest } from "../doubles/effort.ts";
import { writeJournal } from "../doubles/journal.ts";
import { makeDay } from "../doubles/mirror-day.ts";
import { random } from "../doubles/random.ts";
import { record } from "../doubles/records.ts";
import {
  AT,
  acknowledge,
  all,
  compareAll,
  content,
  HOUR,
  MINUTE,
  mirrorFile,
  page,
  recordsIn,
  row,
  unmetered,
  verdicts,
} from "./mirror-file.ts";

const found = (db: Parameters<typeof all>[0], number: number): UsageRecord => {
  const { id } = record(number);
  const one = recordsIn(db).find((each) => each.id === id);
  if (one === undefined) throw new Error(`there is no record ${number}`);
  return one;
};
const recordVerdicts = (db: Parameters<typeof all>[0]) =>
  all(db, "SELECT record, verdict, how, row FROM mirror.verdicts ORDER BY record");

/** A request without an answer on an earlier day. */
const earlier = (number: number, kind: string): UnansweredBill => ({
  record: `${record(number, { started_at: AT - 20 * HOUR }).id} ${kind}`,
  started_at: AT - 20 * HOUR,
  kind,
  isListed: true,
});
/** As many as show that the console lists them. */
const listed = (kind: string): UnansweredBill[] => [1, 2, 3, 4, 5].map((number) => earlier(number, kind));

t.test("a record takes what the console billed, and the limits of its tool are corrected", async (t) => {
  const mirror = mirrorFile(t, [record(1, { counted_microdollars: 8130 })]);
  const { db } = mirror;
  page(db, [row(1)]);
  const { amendments, corrections } = compareAll(mirror);
  t.same(verdicts(db), [["row-1", "matched", "id", 0, "…a1b2"]]);
  t.same(recordVerdicts(db), [[record(1).id, "matched", "id", "row-1"]]);
  t.match(found(db, 1), { billed_microdollars: 9000, cost_microdollars: 8130, tokens_from: "reported" });
  t.match(corrections, [{ tool: "codex", at: AT, tokens: 0, spend: 870, estimated_spend: 0 }]);
  t.match(amendments, [
    {
      kind: "amend",
      id: record(1).id,
      limits: { tool: "codex", admitted_at: AT, before: { spend: 8130 }, after: { spend: 9000 } },
    },
  ]);
});

t.test(
  "a record without tokens takes the console's, and loses them when its row no longer matches",
  async (t) => {
    const mirror = mirrorFile(t, [unmetered(1)]);
    const { db } = mirror;
    const [before] = recordsIn(db);
    page(db, [row(1)]);
    const taken = compareAll(mirror);
    t.match(found(db, 1), {
      input_tokens: 1200,
      cache_read_tokens: 800,
      cache_write_tokens: 0,
      output_tokens: 342,
      tokens_from: "console",
      list_microdollars: 1542,
      cost_microdollars: 3084,
      billed_microdollars: 9000,
      counted_tokens: 2342,
    });
    t.same(taken.corrections, [
      {
        tool: "codex",
        at: AT,
        session: null,
        tokens: 2342 - 5000,
        spend: 9000 - 70_000,
        estimated_tokens: -5000,
        estimated_spend: -70_000,
      },
    ]);
    const after = content(db);
    touchFrom(db, "main", 0);
    const again = compareAll(mirror);
    t.same(content(db), after, "comparing again takes nothing twice");
    t.same(again.amendments, []);

    page(db, [row(1, { request_id: "another", model: "another", created_at: AT - HOUR })]);
    const given = compareAll(mirror);
    t.same(recordsIn(db), [before], "its own numbers are back");
    t.same(given.corrections, [
      {
        tool: "codex",
        at: AT,
        session: null,
        tokens: 5000 - 2342,
        spend: 70_000 - 9000,
        estimated_tokens: 5000,
        estimated_spend: 70_000,
      },
    ]);
    t.same(recordVerdicts(db), [[record(1).id, "missing", null, null]]);
  },
);

t.test("an error row gives a record no tokens", async (t) => {
  const failed = unmetered(1, { status: 500, counted_tokens: 0, counted_microdollars: 0 });
  const mirror = mirrorFile(t, [failed]);
  const { db } = mirror;
  const none = { input_tokens: 0, cache_read_tokens: 0, output_tokens: 0, billed_microdollars: 0 };
  page(db, [row(1, { kind: "error", ...none })]);
  compareAll(mirror);
  t.match(found(db, 1), { tokens_from: "none", input_tokens: null, billed_microdollars: 0 });
});

t.test("a record whose own numbers were lost with mirror.db has no numbers of its own", async (t) => {
  const mirror = mirrorFile(t, [record(1, { tokens_from: "console", output_tokens: 999 })]);
  const { db } = mirror;
  page(db, [row(1)]);
  compareAll(mirror);
  t.same(verdicts(db), [["row-1", "matched", "id", 0, "…a1b2"]], "it differs from nothing");
  t.match(found(db, 1), { tokens_from: "console", output_tokens: 342 });
});

t.test("a pending row becomes foreign after thirty seconds without a match", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const { db } = mirror;
  page(db, [row(1), row(2, { created_at: AT + 58 * MINUTE })]);
  const young = compareAll(mirror, { now: AT + 58 * MINUTE + 10_000 });
  t.same(verdicts(db)[1]?.slice(0, 2), ["row-2", "pending"]);
  t.equal(young.again, AT + 58 * MINUTE + 30_001);
  const due = compareAll(mirror, { now: AT + 58 * MINUTE + 30_001 });
  t.same(verdicts(db)[1], ["row-2", "foreign", null, 1, "…a1b2"]);
  t.equal(due.again, null);
});

t.test("a request is missing only where the console was read", async (t) => {
  const at = (number: number, started_at: number) => record(number, { started_at, ended_at: started_at + 1 });
  const mirror = mirrorFile(t, [at(1, AT - 10 * HOUR), at(2, AT - 5 * HOUR), at(3, AT - HOUR), at(4, AT)]);
  const { db } = mirror;
  coverFrom(db, "main", AT - 8 * HOUR, AT + 48 * HOUR);
  writePage(db, "main", { rows: [], cursor: "m", gap: { from: AT - 6 * HOUR, to: AT - 4 * HOUR } });
  compareAll(mirror, { synced: AT + 5 * MINUTE });
  const judged = () => all(db, "SELECT started_at, verdict FROM mirror.verdicts ORDER BY started_at");
  t.same(judged(), [
    [AT - HOUR, "missing"],
    [AT, "pending"],
  ]);
  compareAll(mirror, { synced: AT + 11 * MINUTE });
  t.same(judged()[1], [AT, "missing"]);
});

t.test("a request that ran for hours is compared with the rows at its end", async (t) => {
  const long = record(1, { started_at: AT, ended_at: AT + 7 * HOUR });
  const running = record(2, { started_at: AT, end: null, ended_at: null, gateway_ids: {} });
  const mirror = mirrorFile(t, [long, running]);
  const { db } = mirror;
  page(db, [row(1, { created_at: AT + 7 * HOUR })]);
  compareAll(mirror, { now: AT + 8 * HOUR });
  t.same(recordVerdicts(db), [[long.id, "matched", "id", "row-1"]]);
});

t.test("a WebSocket that is open over midnight takes all of its rows and their money", async (t) => {
  // AT is a moment after midnight.
  const socket = unmetered(1, {
    status: 101,
    stream: null,
    started_at: AT - 8 * HOUR,
    ended_at: AT + 10 * HOUR,
  });
  const mirror = mirrorFile(t, [socket]);
  const { db } = mirror;
  const inside = (number: number, hours: number) =>
    row(number, { request_id: null, created_at: AT + hours * HOUR });
  page(db, [inside(1, -7), inside(2, -6), inside(3, 1), inside(4, 9)]);
  const now = AT + 12 * HOUR;
  compareAll(mirror, { now });
  const judged = () => verdicts(db).map(([identity, verdict, how]) => [identity, verdict, how].join(" "));
  t.same(judged(), [
    "row-1 matched presumed",
    "row-2 companion presumed",
    "row-3 companion presumed",
    "row-4 companion presumed",
  ]);
  t.same(recordVerdicts(db), [[socket.id, "matched", "presumed", "row-1"]]);
  t.match(recordsIn(db)[0], { billed_microdollars: 4 * 9000, output_tokens: 4 * 342 });

  page(db, [inside(5, -5)]);
  compareAll(mirror, { now });
  t.match(recordsIn(db)[0], { billed_microdollars: 5 * 9000 }, "also of one that is listed late");
  page(db, [row(2, { request_id: null, created_at: AT - 20 * HOUR })]);
  compareAll(mirror, { now });
  t.match(
    recordsIn(db)[0],
    { billed_microdollars: 4 * 9000 },
    "and not of one that turns out to be from another time",
  );
});

t.test("a suspicion becomes certain once a match shows that the gateway sends its own ids", async (t) => {
  const mirror = mirrorFile(t, [record(1, { gateway_ids: { "x-request-id": "id-1" } })]);
  const { db } = mirror;
  page(db, [row(9, { created_at: AT + 5 * MINUTE, output_tokens: 7 })]);
  const idNames = ["x-client-request-id", "x-request-id"];
  compareAll(mirror, { idNames });
  t.same(verdicts(db), [["row-9", "foreign", null, 0, "…a1b2"]]);
  page(db, [row(1)]);
  compareAll(mirror, { idNames });
  t.same(verdicts(db), [
    ["row-1", "matched", "id", 0, "…a1b2"],
    ["row-9", "foreign", null, 1, "…a1b2"],
  ]);
});

t.test("a suspicion that was acknowledged raises an alarm again once it is certain", async (t) => {
  const mirror = mirrorFile(t, [record(1, { gateway_ids: { "x-request-id": "id-1" } })]);
  const { db } = mirror;
  const idNames = ["x-request-id"];
  const shown = { gateway: "main", key: null, certain: false, until: null };
  const alarms = () => readAlarms(db, "main", 0, new Set());
  page(db, [row(9, { created_at: AT + 5 * MINUTE, output_tokens: 7 })]);
  compareAll(mirror, { idNames });
  t.equal(acknowledge(db, shown, AT + HOUR).length, 1);
  compareAll(mirror, { idNames });
  t.same(alarms(), []);
  page(db, [row(1)]);
  compareAll(mirror, { idNames });
  t.match(alarms(), [{ certain: true, count: 1 }]);
  t.equal(acknowledge(db, { ...shown, certain: true }, AT + HOUR).length, 1);
  touchFrom(db, "main", 0);
  compareAll(mirror, { idNames });
  t.same(alarms(), [], "a certain alarm that was acknowledged stays so");
});

t.test("a match by id shows which key a row's reference means, also for other rows with it", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const { db } = mirror;
  const other = { key_ref: "id:77", created_at: AT - 5 * HOUR };
  page(db, [row(1, { key_ref: "id:77" }), row(2, other), row(3, { ...other, key_ref: "id:78" })]);
  compareAll(mirror);
  t.equal(keyLinks(db, "main").keys.get("id:77"), "…a1b2");
  t.same(verdicts(db), [
    ["row-1", "matched", "id", 0, "…a1b2"],
    ["row-2", "foreign", null, 1, "…a1b2"],
    ["row-3", "unwatched", null, 0, null],
  ]);
});

t.test(
  "a record that was never connected takes no row, also after a crash; a late one is near its row",
  async (t) => {
    const unsent = { end: "interrupted", ended_at: null, first_byte_at: null, sent_at: null } as const;
    const sentAt = AT + 19_000;
    const late = {
      gateway_ids: {},
      model: "other",
      model_answered: "other",
      sent_at: sentAt,
      ended_at: sentAt + 900,
    };
    const mirror = mirrorFile(t, [
      unmetered(1, { ...unsent, gateway_ids: {} }),
      unmetered(2, {
        end: null,
        ended_at: null,
        first_byte_at: null,
        sent_at: null,
        gateway_ids: {},
        model: "third",
      }),
      unmetered(3, late),
    ]);
    const { db } = mirror;
    page(db, [
      row(1, { request_id: "stolen" }),
      row(2, { request_id: "stolen-too", model: "third" }),
      row(3, { request_id: "ours", model: "other", created_at: sentAt + 900, duration_ms: 900 }),
    ]);
    compareAll(mirror);
    t.same(
      verdicts(db).map(([identity, verdict]) => [identity, verdict]),
      [
        ["row-1", "foreign"],
        ["row-2", "foreign"],
        ["row-3", "matched"],
      ],
    );
  },
);

t.test("rows of a console whose clock is ahead are compared by our clock", async (t) => {
  const skew = 26 * HOUR;
  const mirror = mirrorFile(t, [unmetered(1, { gateway_ids: {} }), record(2)]);
  const { db } = mirror;
  page(db, [row(1, { created_at: AT + 2333 + skew }), row(2, { created_at: AT + skew })]);
  compareAll(mirror, { skew });
  t.same(verdicts(db), [
    ["row-1", "matched", "presumed", 0, "…a1b2"],
    ["row-2", "matched", "id", 0, "…a1b2"],
  ]);
});

t.test("a late row with the id of a request that was matched long ago belongs to it", async (t) => {
  const both = { "x-client-request-id": "id-1", "x-oneapi-request-id": "second" };
  const mirror = mirrorFile(t, [record(1, { gateway_ids: both }), record(2)]);
  const { db } = mirror;
  const idNames = ["x-client-request-id", "x-oneapi-request-id"];
  page(db, [row(1), row(2)]);
  compareAll(mirror, { idNames });
  page(db, [row(3, { request_id: "id-1", created_at: AT + 80 * HOUR })]);
  compareAll(mirror, { idNames, now: AT + 90 * HOUR });
  t.same(verdicts(db)[2], ["row-3", "duplicate", "id", 0, "…a1b2"], "whenever it was written");
  const other = { billed_microdollars: 5, request_id: "second", created_at: AT + 20 * MINUTE };
  page(db, [row(4, other), row(5, { ...other, request_id: "behind", upstream_id: "id-1" })]);
  compareAll(mirror, { idNames, now: AT + 90 * HOUR });
  t.same(
    all(db, "SELECT identity, verdict, how, record FROM mirror.console_rows"),
    [
      ["row-1", "matched", "id", record(1).id],
      ["row-2", "matched", "id", record(2).id],
      ["row-3", "duplicate", "id", record(1).id],
      ["row-4", "companion", "id", record(1).id],
      ["row-5", "companion", "id", record(1).id],
    ],
    "and so do those that have another of its ids",
  );
  t.match(found(db, 1), { billed_microdollars: 18_010 });
});

t.test("a matched row that gets another id leaves its request, and the rest is compared again", async (t) => {
  const mirror = mirrorFile(t, [record(1), record(2)]);
  const { db } = mirror;
  page(db, [row(1), row(2), row(3, { request_id: "id-1", kind: "error", created_at: AT - 30 * HOUR })]);
  compareAll(mirror);
  t.same(
    verdicts(db).map(([, verdict]) => verdict),
    ["matched", "matched", "companion"],
  );
  page(db, [row(1, { request_id: "id-2", billed_microdollars: 1 })]);
  compareAll(mirror);
  t.same(all(db, "SELECT identity, verdict, how, record FROM mirror.console_rows"), [
    ["row-1", "companion", "id", record(2).id],
    ["row-2", "matched", "id", record(2).id],
    ["row-3", "matched", "id", record(1).id],
  ]);
  page(db, [row(3, { request_id: "foreign", kind: "error", created_at: AT - 30 * HOUR })]);
  compareAll(mirror);
  t.same(verdicts(db)[2]?.slice(0, 2), ["row-3", "before"]);
  t.same(recordVerdicts(db), [
    [record(1).id, "missing", null, null],
    [record(2).id, "matched", "id", "row-2"],
  ]);
  t.match(found(db, 1), { billed_microdollars: null });
});

t.test("a comparison from the beginning also compares what was matched by id", async (t) => {
  const mirror = mirrorFile(t, [record(1), record(2), record(3, { output_tokens: 5 })]);
  const { db } = mirror;
  page(db, [row(1), row(2), row(3)]);
  compareAll(mirror);
  // What can be lost: a record, a verdict, a row.
  const index = openIndex(join(mirror.state, "index.db"));
  index.db.exec(`DELETE FROM usage.records WHERE id = '${record(1).id}'`);
  index.close();
  db.exec(`DELETE FROM mirror.verdicts WHERE record IN ('${record(1).id}', '${record(2).id}')`);
  db.exec("DELETE FROM mirror.console_rows WHERE identity = 'row-3'");
  const later = { now: AT + 10 * HOUR };
  compareAll(mirror, later);
  t.same(
    verdicts(db)[0]?.slice(0, 3),
    ["row-1", "matched", "id"],
    "without a change nothing is compared again",
  );
  touchFrom(db, "main", 0);
  compareAll(mirror, later);
  t.same(verdicts(db), [
    ["row-1", "foreign", null, 1, "…a1b2"],
    ["row-2", "matched", "id", 0, "…a1b2"],
  ]);
  t.same(recordVerdicts(db), [
    [record(2).id, "matched", "id", "row-2"],
    [record(3).id, "missing", null, null],
  ]);
});

const DAY = { foreign: 37, seed: 7, from: Date.UTC(2026, 10, 14), skew: 90_000 };

function dayFile(test: Test, records: readonly UsageRecord[], keys: ReadonlyMap<string, string>) {
  const held = mirrorFile(test, records);
  held.db.exec("DELETE FROM mirror.held_keys");
  for (const [ref, key] of keys)
    held.db.exec(
      `INSERT INTO mirror.held_keys VALUES ('main', '${key}', 'tool of ${ref}', ${DAY.from - HOUR}, NULL)`,
    );
  for (const model of new Set(records.map((one) => one.model)))
    noteUnanswered(held.db, "main", listed(`${model}|null`));
  linkKeys(
    held.db,
    "main",
    [...keys].map(([ref, key]) => ({ ref, key })),
  );
  return held;
}

longTest(t, "of a day's rows exactly those that did not pass here are foreign", async (t) => {
  const day = makeDay({ ...DAY, requests: 700 });
  const mirror = dayFile(t, day.records, day.keys);
  const { db } = mirror;
  for (let at = 0; at < day.rows.length; at += 300) page(db, day.rows.slice(at, at + 300));
  const idNames = ["x-client-request-id", "x-oneapi-request-id", "error"];
  const options = { now: day.to + HOUR, skew: DAY.skew, idNames };
  compareAll(mirror, options);
  const foreign = all(db, "SELECT identity, certain FROM mirror.console_rows WHERE verdict = 'foreign'");
  t.same(new Set(foreign.map(([identity]) => identity)), day.foreign);
  t.ok(foreign.every(([, certain]) => certain === 1));
  const linked = all(db, "SELECT identity, record FROM mirror.console_rows WHERE record IS NOT NULL");
  t.ok(linked.length > 500);
  t.same(
    linked.filter(([identity, id]) => day.truth.get(String(identity)) !== id),
    [],
  );
  page(db, [row(1, { identity: "new", request_id: "new", created_at: day.to + 5 * HOUR + DAY.skew })]);
  const today = day.to / (24 * HOUR);
  t.same(
    planDays(db, "main", { now: options.now, skew: DAY.skew, siblings: [] }).days,
    [today - 1, today],
    "the console's day touches two of ours",
  );
});

longTest(t, "if the program ends between two steps, the next comparison completes them", async (t) => {
  const day = makeDay({ ...DAY, requests: 150 });
  const idNames = ["x-client-request-id", "x-oneapi-request-id", "error"];
  const options = { now: day.to + HOUR, skew: DAY.skew, idNames };
  const straight = dayFile(t, day.records, day.keys);
  page(straight.db, day.rows);
  compareAll(straight, options);
  const broken = dayFile(t, day.records, day.keys);
  page(broken.db, day.rows);
  for (let allowed = 0; ; allowed += 1) {
    let steps = 0;
    const amend = (lines: readonly Amendment[]) => {
      if (steps === allowed) throw new Error("killed");
      steps += 1;
      broken.append(lines);
    };
    try {
      compareAll(broken, { ...options, amend });
      break;
    } catch (error) {
      t.match(error, { message: "killed" });
      broken.catchUp();
    }
  }
  t.same(content(broken.db), content(straight.db));
});

longTest(t, "the same pages three times, in any order, leave the same content", async (t) => {
  const day = makeDay({ ...DAY, requests: 200 });
  const idNames = ["x-client-request-id", "x-oneapi-request-id", "error"];
  const options = { now: day.to + HOUR, skew: DAY.skew, idNames };
  const pages = Array.from({ length: 9 }, (_, n) => day.rows.filter((_, at) => at % 9 === n));
  const straight = dayFile(t, day.records, day.keys);
  for (const rows of pages) page(straight.db, rows);
  compareAll(straight, options);
  const expected = content(straight.db);
  for (const seed of [1, 2]) {
    const below = random(seed);
    const shuffled = [...pages, ...pages, ...pages]
      .map((rows) => ({ rows, at: below(1e9) }))
      .toSorted((a, b) => a.at - b.at);
    const mirror = dayFile(t, day.records, day.keys);
    const { db } = mirror;
    for (const { rows } of shuffled) {
      page(db, rows.toReversed());
      if (below(3) === 0) compareAll(mirror, options);
    }
    compareAll(mirror, options);
    t.same(content(db), expected);
  }
});

t.test("an interrupted request finds its row, however late the row is listed", async (t) => {
  const noResponse = {
    status: null,
    first_byte_at: null,
    model_answered: null,
    stream: null,
    gateway_ids: {},
  };
  const killed = unmetered(1, { ...noResponse, end: "interrupted", ended_at: null });
  const mirror = mirrorFile(t, [
    killed,
    record(2, { started_at: AT + 40 * MINUTE, ended_at: AT + 41 * MINUTE }),
  ]);
  const { db } = mirror;
  noteUnanswered(db, "main", listed("gpt-5.1|null"));
  const at = (minutes: number) => ({ created_at: AT + minutes * MINUTE, duration_ms: minutes * MINUTE });
  compareAll(mirror, { now: AT + 50 * MINUTE });
  page(db, [row(2, { created_at: AT + 41 * MINUTE })]);
  compareAll(mirror, { now: AT + 60 * MINUTE });
  page(db, [
    row(1, { request_id: "never-seen", ...at(85) }),
    row(3, { request_id: "stolen", ...at(80), duration_ms: 900 }),
  ]);
  compareAll(mirror, { now: AT + 90 * MINUTE });
  t.same(verdicts(db), [
    ["row-1", "matched", "presumed", 0, "…a1b2"],
    ["row-2", "matched", "id", 0, "…a1b2"],
    ["row-3", "foreign", null, 1, "…a1b2"],
  ]);
  t.match(found(db, 1), { tokens_from: "console", billed_microdollars: 9000 });
});

t.test("a step whose amendments cannot be written changes nothing", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  page(mirror.db, [row(1)]);
  const before = content(mirror.db);
  const amend = () => {
    throw new Error("the disk is full");
  };
  t.throws(() => compareAll(mirror, { amend }), { message: "the disk is full" });
  t.same(content(mirror.db), before);
  t.match(compareAll(mirror).corrections, [{ tool: "codex", at: AT, tokens: 0, spend: 9000 }]);
});

t.test("amendments whose step was lost are not made a second time", async (t) => {
  const mirror = mirrorFile(t, [record(1, { counted_microdollars: 8130 }), unmetered(2)]);
  page(mirror.db, [row(1), row(2)]);
  const lost = new Error("killed after the journal was written, and before the step was committed");
  const amend: typeof mirror.append = (lines) => {
    mirror.append(lines);
    throw lost;
  };
  t.throws(() => compareAll(mirror, { amend }), lost);
  mirror.catchUp();
  t.same(compareAll(mirror).amendments, []);
  t.same(
    recordsIn(mirror.db).map(({ billed_microdollars, tokens_from }) => [billed_microdollars, tokens_from]),
    [
      [9000, "reported"],
      [9000, "console"],
    ],
  );
});

t.test("a console that is forgotten leaves nothing to be compared", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const { db } = mirror;
  for (let hour = 0; hour < 30; hour += 1) page(db, [row(hour, { created_at: AT - hour * 24 * HOUR })]);
  forgetConsole(db, "main", AT + HOUR, false);
  t.notOk(hasChangedDays(db, "main"));
  page(db, [row(1)]);
  compareAll(mirror, { now: AT + 2 * HOUR });
  t.notOk(hasChangedDays(db, "main"), "what changed since is compared once");
});

t.test("records are compared after the clock was set back", async (t) => {
  const mirror = mirrorFile(t, [record(1)]);
  const { db } = mirror;
  coverFrom(db, "main", AT - 24 * HOUR, AT + 48 * HOUR);
  compareAll(mirror, { now: AT + 1000 * HOUR });
  const { id } = record(2, { started_at: AT + HOUR });
  writeJournal(join(mirror.state, "usage"), [record(2, { started_at: AT + HOUR, ended_at: AT + HOUR })]);
  mirror.catchUp();
  compareAll(mirror, { now: AT + 3 * HOUR });
  t.match(recordVerdicts(db)[1], [id, "missing"]);
});

t.test("the plan of a comparison has the start of the oldest request that still runs", async (t) => {
  const running = record(1, { started_at: AT - 30 * HOUR, ended_at: null, end: null, gateway_ids: {} });
  const { db } = mirrorFile(t, [running]);
  t.equal(planDays(db, "main", { now: AT, skew: 0, siblings: [] }).runningSince, AT - 30 * HOUR);
});

t.test("learned start delays are used on a day with few requests", async (t) => {
  const gone = { status: null, first_byte_at: null, model_answered: null, stream: null, gateway_ids: {} };
  const left = unmetered(1, { ...gone, end: "client-left", ended_at: AT + 5000 });
  const mirror = mirrorFile(t, [left, record(2, { started_at: AT - HOUR, ended_at: AT - HOUR + 2333 })]);
  const { db } = mirror;
  const learned = JSON.stringify({ later: 0, within: 150, close: 150, latest: 150 });
  writeFact(db, "main", "start_fit", learned);
  page(db, [
    row(2, { created_at: AT - HOUR + 2333 }),
    row(9, { request_id: "stolen", created_at: AT + 6000, began_at: AT + 2800 }),
  ]);
  compareAll(mirror);
  t.same(verdicts(db)[1], ["row-9", "foreign", null, 0, "…a1b2"], "it began while ours ran, but not with it");
  t.equal(readFact(db, "main", "start_fit"), learned);
});

t.test("after the loss of mirror.db records keep numbers that the console no longer lists", async (t) => {
  const mirror = mirrorFile(t, [record(1), unmetered(2), record(3)]);
  page(mirror.db, [row(1), row(2), row(3)]);
  compareAll(mirror);
  const before = content(mirror.db)["usage.records"];
  mirror.db.exec("DELETE FROM mirror.console_rows; DELETE FROM mirror.verdicts; DELETE FROM mirror.facts");
  linkKeys(mirror.db, "main", [{ ref: "id:1", key: "…a1b2" }]);
  page(mirror.db, [row(3)]);
  t.same(compareAll(mirror).amendments, []);
  t.same(
    recordVerdicts(mirror.db).map(([, verdict]) => verdict),
    ["missing", "missing", "matched"],
  );
  touchFrom(mirror.db, "main", 0);
  coverFrom(mirror.db, "main", AT + HOUR, AT + 48 * HOUR);
  t.same(compareAll(mirror).amendments, []);
  t.same(content(mirror.db)["usage.records"], before);
});

const GONE = { status: null, first_byte_at: null, model_answered: null, stream: true, gateway_ids: {} };

/** Left after 200 ms, and the row that began with it. */
function leftWithRow(number: number, minutes: number, apart = 5) {
  const started_at = AT + minutes * MINUTE;
  const given = { ...GONE, end: "client-left", started_at, ended_at: started_at + 200 } as const;
  const theirs = { request_id: `unseen-${number}`, created_at: started_at + apart + 900, duration_ms: 900 };
  return { own: unmetered(number, given), row: row(number, theirs) };
}

t.test(
  "a row is presumed once five requests without an answer show that the console lists them",
  async (t) => {
    const days = [0, 1, 2, 3, 4].map((day) => leftWithRow(day + 1, day * 24 * 60));
    const mirror = mirrorFile(t, [record(90), ...days.map(({ own }) => own)]);
    const { db } = mirror;
    const found = () =>
      all(db, "SELECT verdict, how, certain FROM mirror.console_rows WHERE identity <> 'row-90'");
    page(db, [row(90), ...days.slice(0, 4).map((one) => one.row)]);
    compareAll(mirror, { now: AT + 3 * 24 * HOUR + HOUR });
    t.same(found(), Array(4).fill(["foreign", null, 0]), "four show nothing");
    page(db, [days[4]?.row ?? row(5)]);
    compareAll(mirror, { now: AT + 4 * 24 * HOUR + HOUR });
    t.same(found(), Array(5).fill(["matched", "presumed", 0]), "also those of earlier days");
  },
);

t.test(
  "where most requests without an answer have no row, a row that began with one is suspected",
  async (t) => {
    const without = [1, 2, 3, 4].map((n) => leftWithRow(n, n * 5).own);
    const pairs = [5, 6, 7].map((n) => leftWithRow(n, n * 5));
    const mirror = mirrorFile(t, [record(90), ...without, ...pairs.map(({ own }) => own)]);
    const { db } = mirror;
    page(db, [row(90), ...pairs.map((pair) => pair.row)]);
    const found = () =>
      all(db, "SELECT verdict, how, certain FROM mirror.console_rows WHERE identity <> 'row-90'");
    const now = AT + 36 * MINUTE;
    compareAll(mirror, { now, synced: AT + 4 * MINUTE });
    t.same(found(), Array(3).fill(["foreign", null, 0]), "three rows alone show nothing");
    touchFrom(db, "main", 0);
    compareAll(mirror, { now });
    t.same(found(), Array(3).fill(["foreign", null, 0]), "three of seven are less than half");
    page(db, [leftWithRow(4, 20).row]);
    compareAll(mirror, { now });
    t.same(found(), Array(4).fill(["matched", "presumed", 0]), "a row that is listed late makes it most");
  },
);

/** Twenty requests that are matched by id, a minute apart, and a request without an answer between them. */
function busyDay(
  agent: string | null,
  ours: (n: number) => Partial<ConsoleRow>,
  theirs: Partial<ConsoleRow>,
) {
  const records: UsageRecord[] = [];
  const rows: ConsoleRow[] = [];
  for (let n = 1; n <= 20; n += 1) {
    const started_at = AT + n * MINUTE;
    records.push(record(n, { started_at, ended_at: started_at + 2333, user_agent: agent }));
    rows.push(row(n, { created_at: started_at + 2333, ...ours(n) }));
  }
  const left = leftWithRow(50, 10.5);
  records.push({ ...left.own, user_agent: agent });
  rows.push({ ...left.row, ...theirs });
  return { records, rows };
}

t.test("user agents and addresses count where twenty matches show that the console lists ours", async (t) => {
  const matched = ["row-50", "matched", "presumed", 0, "…a1b2"];
  const suspected = ["row-50", "foreign", null, 0, "…a1b2"];
  const certain = ["row-50", "foreign", null, 1, "…a1b2"];
  const ours = { user_agent: "codex/1.0" };
  const thief = { user_agent: "curl/8.5.0" };
  const home = { ip: "198.51.100.4" };
  const cases: readonly [what: string, ...Parameters<typeof busyDay>, verdict: unknown[]][] = [
    ["the same program", "codex/1.0", () => ours, ours, matched],
    ["another program", "codex/1.0", () => ours, thief, certain],
    [
      "the console lists another for one of ours",
      "codex/1.0",
      (n) => (n === 7 ? thief : ours),
      thief,
      matched,
    ],
    ["the console lists some", "codex/1.0", (n) => (n < 20 ? ours : {}), thief, matched],
    ["records without a user agent", null, () => ours, thief, matched],
    ["the same address", null, () => home, home, matched],
    ["another address", null, () => home, { ip: "203.0.113.9" }, suspected],
    [
      "one of two addresses",
      null,
      (n) => (n === 7 ? { ip: "2001:db8::7" } : home),
      { ip: "2001:db8::7" },
      matched,
    ],
    ["the console lists some addresses", null, (n) => (n < 20 ? home : {}), { ip: "203.0.113.9" }, matched],
  ];
  for (const [what, agent, own, theirs, verdict] of cases) {
    const { records, rows } = busyDay(agent, own, theirs);
    const mirror = mirrorFile(t, records);
    noteUnanswered(mirror.db, "main", listed("gpt-5.1|true"));
    page(mirror.db, rows);
    compareAll(mirror);
    t.same(
      verdicts(mirror.db).find(([identity]) => identity === "row-50"),
      verdict,
      what,
    );
  }
});

t.test("what was learned about user agents counts on a day with few requests", async (t) => {
  const { own, row: theirs } = leftWithRow(1, 1);
  const mirror = mirrorFile(t, [record(90), { ...own, user_agent: "codex/1.0" }]);
  const { db } = mirror;
  noteUnanswered(db, "main", listed("gpt-5.1|true"));
  page(db, [row(90), { ...theirs, user_agent: "curl/8.5.0" }]);
  compareAll(mirror);
  t.same(verdicts(db)[0], ["row-1", "matched", "presumed", 0, "…a1b2"]);
  writeFact(db, "main", "user_agents", "true");
  touchFrom(db, "main", 0);
  compareAll(mirror);
  t.same(verdicts(db)[0], ["row-1", "foreign", null, 1, "…a1b2"]);
});
