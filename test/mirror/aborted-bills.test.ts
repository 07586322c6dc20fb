import t from "tap";
import {
  billsAsStreamed,
  findAbortedBill,
  latestBills,
  listedKinds,
  noteAbortedBills,
  noteUnanswered,
  type UnansweredBill,
  unansweredWith,
} from "../../src/mirror/store/aborted-bills.ts";
import type { How, JudgedRecord } from "../../src/mirror/verdict.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { record } from "../doubles/records.ts";
import { mirrorFile } from "./mirror-file.ts";

function judged(output: number | null, how: How = "id"): JudgedRecord {
  const theirs = { output_tokens: output } as JudgedRecord["theirs"];
  return { record: "r", verdict: "matched", how, row: "row", reason: "", theirs };
}

const left = (seen: number | null, more: Partial<UsageRecord> = {}) =>
  record(1, { end: "client-left", output_tokens: null, seen_tokens: seen, ...more });

t.test(
  "only a stream that its client left, with a certain row, shows how such streams are billed",
  async (t) => {
    const cases: readonly [what: string, own: UsageRecord, verdict: JudgedRecord, shows: boolean | null][] = [
      ["as much as was sent", left(1000), judged(1000), true],
      ["a little more, until the gateway noticed", left(1000), judged(1500), true],
      ["much more", left(1000), judged(1501), false],
      ["less", left(1000), judged(20), true],
      ["little was sent, and little billed", left(20), judged(150), null],
      ["little was sent, and much billed", left(20), judged(151), false],
      ["nothing was sent, and much billed", left(0), judged(4000), false],
      ["the row has no output", left(1000), judged(0), null],
      ["the console lists no tokens", left(1000), judged(null), null],
      ["a pair", left(1000), judged(1000, "pair"), true],
      ["a presumed match", left(1000), judged(1000, "presumed"), null],
      ["a sum", left(1000), { ...judged(1000, "sum"), theirs: null }, null],
      ["the response was no stream", left(1000, { stream: false }), judged(1000), null],
      ["another machine's", left(1000, { machine: "desktop" }), judged(1000), null],
      ["the gateway cut it", left(1000, { end: "gateway-failed" }), judged(1000), null],
      ["it is not known how much was sent", left(null), judged(1000), null],
    ];
    for (const [what, own, verdict, shows] of cases)
      t.equal(findAbortedBill(own, verdict)?.isAsStreamed ?? null, shows, what);
  },
);

t.test("five bills are enough, the latest twenty count, and one billed in whole decides", async (t) => {
  const { db } = mirrorFile(t, []);
  const bill = (number: number, isAsStreamed = true) => ({ record: record(number).id, isAsStreamed });
  const note = (...found: Parameters<typeof noteAbortedBills>[2]) => noteAbortedBills(db, "main", found);
  note(bill(1), bill(2), bill(3), bill(4));
  note(bill(4));
  t.equal(billsAsStreamed(db, "main"), false, "a bill that is found again counts once");
  note(bill(5));
  t.equal(billsAsStreamed(db, "main"), true);
  t.equal(billsAsStreamed(db, "other"), false);
  note(bill(6, false));
  t.equal(billsAsStreamed(db, "main"), false);
  for (let n = 7; n <= 25; n += 1) note(bill(n));
  t.equal(billsAsStreamed(db, "main"), false);
  note(bill(26));
  t.equal(billsAsStreamed(db, "main"), true, "twenty have come since");
  note(bill(2, false));
  t.equal(billsAsStreamed(db, "main"), true, "an old one that is read late");
  t.equal(latestBills(Array.from({ length: 50 }, (_, n) => bill(n))).length, 20);
});

t.test(
  "five requests without an answer are enough, the latest twenty of a kind count, and half of them decides",
  async (t) => {
    const { db } = mirrorFile(t, []);
    const bill = (number: number, isListed: boolean, kind = "m|true"): UnansweredBill => ({
      record: record(number).id,
      started_at: number,
      kind,
      isListed,
    });
    const bills = (from: number, to: number, isListed: boolean, kind?: string) =>
      Array.from({ length: to - from + 1 }, (_, n) => bill(from + n, isListed, kind));
    const known = () => Object.fromEntries(listedKinds(unansweredWith(db, "main", [])));
    t.equal(noteUnanswered(db, "main", bills(1, 4, true)), null);
    t.same(known(), {}, "four show nothing");
    t.equal(noteUnanswered(db, "main", bills(4, 5, true)), 1, "what is as old may get another verdict");
    t.same(known(), { "m|true": true });
    t.equal(noteUnanswered(db, "main", bills(6, 10, false)), null);
    t.same(known(), { "m|true": true }, "five of ten");
    t.equal(noteUnanswered(db, "main", [bill(11, false)]), 1);
    t.same(known(), { "m|true": false }, "five of eleven");
    t.equal(noteUnanswered(db, "main", [bill(6, true)]), 1, "its row was listed late");
    t.same(known(), { "m|true": true });
    noteUnanswered(db, "main", bills(20, 28, false));
    t.same(known(), { "m|true": false }, "six of twenty");
    noteUnanswered(db, "main", bills(30, 49, true));
    t.same(known(), { "m|true": true }, "the latest twenty count");
    t.equal(
      noteUnanswered(db, "main", bills(50, 54, false, "m|false")),
      null,
      "no row was taken before, nor is one now",
    );
    t.same(known(), { "m|true": true, "m|false": false }, "streams apart");
    t.same(Object.fromEntries(listedKinds(unansweredWith(db, "other", []))), {});
    const many = Array.from({ length: 100 }, (_, n) =>
      bills(60 + 10 * n, 69 + 10 * n, true, `model-${n}|true`),
    );
    noteUnanswered(db, "main", many.flat());
    t.equal(unansweredWith(db, "main", []).length, 400);
  },
);
