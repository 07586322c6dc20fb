import fc from "fast-check";
import Database from "libsql";
import t from "tap";
import { cellOf, createTally, SUMS } from "../../../src/usage/ledger/cells.ts";
import { writeFirstBytes } from "../../../src/usage/ledger/first-bytes.ts";
import { CLOSING_KIND, CLOSING_OWN } from "../../../src/usage/ledger/writing/closing-parts.ts";
import { OPENING_KIND, OPENING_OWN } from "../../../src/usage/ledger/writing/opening-parts.ts";
import type { Closing, RecordEnd } from "../../../src/usage/record.ts";
import { until } from "../../doubles/until.ts";
import {
  ask,
  closing,
  isSound,
  openAll,
  opening,
  REFUSED,
  recordsIn,
  startLedger,
  turn,
} from "./ledger-under-test.ts";

/** What the cells must say: every finished record counted by hand. */
function expectedCells(file: string): unknown[][] {
  const tally = createTally();
  for (const record of recordsIn(file)) if (record.end !== null) tally.count(record);
  return [...tally.cells()]
    .map((cell) => [
      cell.tool,
      cell.model,
      cell.slot,
      ...SUMS.map((name) => cell.sums[name]),
      writeFirstBytes(cell.firstBytes),
    ])
    .sort();
}

function cellsIn(file: string): unknown[][] {
  return ask(file, `SELECT tool, model, slot, ${SUMS.join(", ")}, first_bytes FROM cells`).sort();
}

t.test("a record is on disk when its opening says so, and running until it is closed", async (t) => {
  const { ledger, file } = startLedger(t);
  const one = opening();
  const written = ledger.open(one);
  t.equal(recordsIn(file).length, 0, "not before");
  t.equal(await written, true);
  t.match(recordsIn(file), [{ ...one, end: null, ended_at: null, tokens_from: "none", gateway_ids: {} }]);
  t.same(cellsIn(file), [], "not counted yet");
  const end = closing({ first_byte_at: one.started_at + 500 });
  ledger.close(one.id, end);
  await turn();
  t.same(recordsIn(file), [{ ...one, ...end, model: one.model, billed_microdollars: null }]);
  t.same(cellsIn(file), expectedCells(file));
  t.equal(ledger.state().waiting, 0);
});

t.test("the model that only the rest of the request told replaces none, none replaces nothing", async (t) => {
  const { ledger, file } = startLedger(t);
  const [known, unknown] = [opening({ model: "asked" }), opening({ model: null })];
  await openAll(ledger, [known, unknown]);
  ledger.close(known.id, closing({ model: null }));
  ledger.close(unknown.id, closing({ model: "told late" }));
  await turn();
  t.same(
    recordsIn(file).map(({ model }) => model),
    ["asked", "told late"],
  );
  t.same(cellsIn(file), expectedCells(file));
});

t.test("sums stay true whoever else writes cells between two records", async (t) => {
  const { ledger, file } = startLedger(t);
  const finish = async () => {
    const one = opening({ started_at: 1_763_164_800_000 });
    await openAll(ledger, [one]);
    ledger.close(one.id, closing());
    await turn();
    t.same(cellsIn(file), expectedCells(file));
  };
  await finish();
  await finish();
  ledger.ask((db) => db.exec("UPDATE log.records SET list_microdollars = 7, cost_microdollars = 9"));
  const corrected = "UPDATE log.cells SET list_microdollars = 14, cost_microdollars = 18";
  ledger.ask((db) => db.exec(corrected));
  await finish();
  const undone = () => ledger.ask((db) => db.exec("BEGIN; DELETE FROM log.cells; ROLLBACK"));
  undone();
  await finish();
  const another = new Database(file);
  another.exec("DELETE FROM records; DELETE FROM cells");
  another.close();
  await finish();
});

t.test("a record that could not be written is not in the sums either", async (t) => {
  const { ledger, file } = startLedger(t);
  const openings = [opening(), opening(), opening()];
  await openAll(ledger, openings);
  const [first, second, third] = openings.map(({ id }) => id);
  ledger.close(first ?? "", closing());
  await turn();
  ledger.ask((db) =>
    db.exec("CREATE TEMP TRIGGER no BEFORE INSERT ON log.cells BEGIN SELECT raise(ABORT, 'no'); END"),
  );
  ledger.close(second ?? "", closing());
  await turn();
  ledger.ask((db) => db.exec("DROP TRIGGER IF EXISTS no"));
  ledger.close(third ?? "", closing());
  await until("all are completed", () => recordsIn(file).every(({ end }) => end !== null));
  t.same(cellsIn(file), expectedCells(file));
});

t.test("a record is completed once, and a second time changes nothing", async (t) => {
  const { ledger, file } = startLedger(t);
  const one = opening();
  await openAll(ledger, [one]);
  ledger.close(one.id, closing({ output_tokens: 1 }));
  ledger.close(one.id, closing({ output_tokens: 2 }));
  await turn();
  ledger.close(one.id, closing({ output_tokens: 3 }));
  ledger.add(one, closing({ output_tokens: 4 }));
  await turn();
  t.same(
    recordsIn(file).map(({ output_tokens }) => output_tokens),
    [1],
  );
  t.same(cellsIn(file), expectedCells(file));
});

t.test("a refusal is written whole, and counted", async (t) => {
  const { ledger, file } = startLedger(t);
  const one = opening({ tool: null, gateway: null, key: null, group: null });
  ledger.add(one, REFUSED);
  await turn();
  t.match(recordsIn(file), [{ id: one.id, end: "refused", refusal: "rate-limited", tool: null }]);
  t.same(cellsIn(file), expectedCells(file));
});

t.test("a record that ends while its opening is on the way is one record", async (t) => {
  const { ledger, file } = startLedger(t);
  const [closed, added] = [opening(), opening()];
  const written = Promise.all([ledger.open(closed), ledger.open(added)]);
  ledger.close(closed.id, closing({ end: "client-left" }));
  ledger.add(added, closing({ end: "client-left" }));
  t.same(await written, [true, true]);
  await turn();
  t.same(
    recordsIn(file).map(({ end }) => end),
    ["client-left", "client-left"],
  );
  t.same(cellsIn(file), expectedCells(file));
});

t.test("everything of one turn is one transaction", async (t) => {
  const { ledger, file } = startLedger(t);
  const version = () => Number(ask(file, "PRAGMA log.data_version").flat()[0]);
  const openings = Array.from({ length: 50 }, () => opening());
  const written = openings.map((one) => ledger.open(one));
  // Seen from outside: as soon as one of them is there, all are.
  await written[0];
  t.equal(recordsIn(file).length, 50);
  for (const one of openings) ledger.close(one.id, closing());
  await turn();
  t.equal(recordsIn(file).filter(({ end }) => end === "complete").length, 50);
  t.ok(version() > 0);
});

t.test("what is finished is written at once, and soon after that all that came meanwhile", async (t) => {
  const { ledger, file } = startLedger(t);
  const openings = Array.from({ length: 10 }, () => opening());
  await openAll(ledger, openings);
  const [first, ...others] = openings.map(({ id }) => id);
  const complete = () => recordsIn(file).filter(({ end }) => end === "complete").length;
  ledger.close(first ?? "", closing());
  await new Promise((done) => setImmediate(done));
  t.equal(complete(), 1, "by the end of the turn");
  for (const id of others) ledger.close(id, closing());
  await turn();
  t.equal(complete(), 10, "together, though nothing else happens");
  ledger.add(opening(), closing());
  t.equal(
    ledger.ask((db) => (db.prepare("SELECT count(*) FROM log.records").raw().get() as number[])[0]),
    11,
    "whoever asks need not wait",
  );
  t.same(cellsIn(file), expectedCells(file));
});

t.test(
  "more openings in one turn than fit into a statement, of more kinds than are remembered",
  async (t) => {
    const { ledger, file } = startLedger(t);
    for (const round of [1, 2, 3]) {
      const openings = Array.from({ length: 150 }, (_, at) =>
        opening({
          endpoint: `/v1/${at}`,
          model: at % 2 === 0 ? `m${round}` : null,
          multiplier: 1 + (at % 3) / 2,
        }),
      );
      await openAll(ledger, openings);
      for (const [at, one] of openings.entries())
        ledger.close(one.id, closing({ cause: `c${at}`, stream: null }));
      await turn();
      const stored = recordsIn(file).slice(-150);
      t.same(
        stored.map(({ id, endpoint, model, multiplier, cause }) => [id, endpoint, model, multiplier, cause]),
        openings.map(({ id, endpoint, model, multiplier }, at) => [
          id,
          endpoint,
          model,
          multiplier,
          `c${at}`,
        ]),
        "in the order in which they began",
      );
    }
    t.same(cellsIn(file), expectedCells(file));
  },
);

t.test(
  "a record refused by the log amid others of its turn is refused alone, and seen by nobody later",
  async (t) => {
    const { ledger, file } = startLedger(t, { sync: "full" });
    const openings = Array.from({ length: 100 }, (_, at) =>
      opening(at === 70 ? { endpoint: null as never, model: "bad" } : {}),
    );
    const written = await Promise.all(openings.map((one) => ledger.open(one)));
    t.same(
      written,
      openings.map((_, at) => at !== 70),
    );
    for (const one of openings) ledger.close(one.id, closing());
    await turn();
    t.equal(recordsIn(file).length, 99);
    t.same(await Promise.all([ledger.open(opening({ model: "bad" })), ledger.open(opening())]), [true, true]);
    t.equal(recordsIn(file).length, 101);
  },
);

t.test("one record that the log does not take leaves the others alone", async (t) => {
  const { ledger, file, log } = startLedger(t, { sync: "full" });
  const [good, bad, other] = [opening(), opening({ endpoint: null as never }), opening()];
  t.same(await Promise.all([good, bad, other].map((one) => ledger.open(one))), [true, false, true]);
  t.equal(ledger.available(), true);
  t.equal(recordsIn(file).length, 2);
  t.match(log(), /does not take this record/);
  // Closings likewise; the running record is then interrupted at the next start.
  ledger.close(good.id, closing({ tokens_from: null as never }));
  ledger.close(other.id, closing());
  await turn();
  t.same(
    recordsIn(file).map(({ end }) => end),
    [null, "complete"],
  );
  t.equal(ledger.state().lost, 1);
  t.same(cellsIn(file), expectedCells(file));
});

t.test("an id that is there already is refused, and the first record stays", async (t) => {
  const { ledger, file } = startLedger(t);
  const one = opening({ model: "first" });
  t.equal(await ledger.open(one), true);
  t.equal(await ledger.open({ ...one, model: "second" }), false);
  ledger.close(one.id, closing());
  await turn();
  t.equal(await ledger.open({ ...one, model: "third" }), false);
  t.match(recordsIn(file), [{ model: "first", end: "complete" }]);
});

t.test("numbers that are none do not cost the record", async (t) => {
  const { ledger, file } = startLedger(t);
  const one = opening({ waited_ms: 1.5, multiplier: Number.NaN });
  t.equal(await ledger.open(one), true);
  ledger.close(
    one.id,
    closing({
      first_byte_at: 12.7,
      input_tokens: 3.4,
      output_tokens: Number.NaN,
      reasoning_tokens: -4,
      cache_read_tokens: 1e300,
      bytes_in: Number.POSITIVE_INFINITY,
      list_microdollars: 0.6,
    }),
  );
  await turn();
  t.match(recordsIn(file), [
    {
      end: "complete",
      multiplier: 1,
      waited_ms: 2,
      first_byte_at: 13,
      input_tokens: 3,
      output_tokens: null,
      reasoning_tokens: 0,
      bytes_in: 0,
      list_microdollars: 1,
    },
  ]);
  t.same(cellsIn(file), expectedCells(file));
});

t.test("texts of any kind come back as they were", async (t) => {
  const { ledger, file } = startLedger(t);
  const texts = ["'; DROP TABLE records; --", "模型 \u{1F600}", "", "\n\t\u001b[31m", "\u{10FFFF}"];
  const openings = texts.map((text) => opening({ model: text, endpoint: `/v1/${text}`, process: text }));
  await openAll(ledger, openings);
  for (const [at, one] of openings.entries())
    ledger.close(one.id, closing({ gateway_ids: { [texts[at] ?? ""]: texts[at] ?? "" } }));
  await turn();
  t.same(
    recordsIn(file).map(({ model, process, gateway_ids }) => [model, process, gateway_ids]),
    texts.map((text) => [text, text, { [text]: text }]),
  );
});

t.test("a text with a NUL, or half a character, is found again under what is read", async (t) => {
  const { ledger, file } = startLedger(t);
  for (const model of ["a\u0000b", "a\u0000c", "\ud800x"]) ledger.add(opening({ model }), closing());
  await turn();
  const models = ask(file, "SELECT DISTINCT model FROM cells").flat();
  t.equal(models.length, 3);
  for (const model of models) {
    const found = ask(file, `SELECT count(*) FROM cells WHERE model = '${String(model)}'`);
    t.same(found, [[1]], String(model));
  }
  t.same(cellsIn(file), expectedCells(file));
});

t.test("what a process that is gone left running is interrupted, once", async (t) => {
  const first = startLedger(t);
  const [running, finished] = [opening(), opening()];
  await openAll(first.ledger, [running, finished]);
  first.ledger.close(finished.id, closing());
  await first.ledger.stop();
  for (const round of [1, 2]) {
    const next = startLedger(t, { file: first.file });
    t.match(
      recordsIn(first.file),
      [
        { id: running.id, end: "interrupted", ended_at: null },
        { id: finished.id, end: "complete" },
      ],
      `start ${round}`,
    );
    t.same(cellsIn(first.file), expectedCells(first.file), "and counted once");
    t.equal(/cut off/.test(next.log()), round === 1);
    next.ledger.close(running.id, closing());
    await next.ledger.stop();
  }
});

t.test("stop writes what waits, and leaves one file", async (t) => {
  const { ledger, file } = startLedger(t);
  const one = opening();
  await openAll(ledger, [one]);
  ledger.close(one.id, closing());
  const late = opening();
  const written = ledger.open(late);
  await ledger.stop();
  t.equal(await written, true);
  t.equal(await ledger.open(opening()), false, "nothing after that");
  ledger.add(opening(), REFUSED);
  ledger.close(late.id, closing());
  await ledger.stop();
  t.same(
    recordsIn(file).map(({ end }) => end),
    ["complete", null],
  );
  t.ok(isSound(file));
});

t.test("whatever happens in whatever order, the cells are the sums of the records", async (t) => {
  const end = fc.constantFrom<RecordEnd>("complete", "client-left", "gateway-failed", "refused");
  const action = fc.record({
    what: fc.constantFrom("open", "close", "add", "turn", "restart"),
    which: fc.nat(30),
    tool: fc.constantFrom("a", "b", null),
    model: fc.constantFrom("m", "n", null),
    end,
    tokens: fc.option(fc.nat(1000)),
    first: fc.option(fc.nat(10_000)),
    slot: fc.nat(3),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 60 }), async (actions) => {
      let { ledger, file } = startLedger(t);
      const ids: string[] = [];
      for (const { what, which, tool, model, end, tokens, first, slot } of actions) {
        const startedAt = 1_763_164_800_000 + slot * 600_000;
        const given = opening({ tool, model, started_at: startedAt });
        const done: Closing = closing({
          end,
          input_tokens: tokens,
          output_tokens: tokens,
          first_byte_at: first === null ? null : startedAt + first,
        });
        if (what === "open") {
          ids.push(given.id);
          void ledger.open(given);
        } else if (what === "close") ledger.close(ids[which % (ids.length + 1)] ?? "unknown", done);
        else if (what === "add") ledger.add(given, done);
        else if (what === "turn") await turn();
        else {
          await ledger.stop();
          ({ ledger } = startLedger(t, { file }));
        }
      }
      await ledger.stop();
      t.same(cellsIn(file), expectedCells(file));
      t.equal(new Set(recordsIn(file).map(({ id }) => id)).size, recordsIn(file).length);
    }),
    { numRuns: 25 },
  );
});

t.test("a single cell function tells the same as what was written", async (t) => {
  const { ledger, file } = startLedger(t);
  ledger.add(opening(), closing());
  await until("it is written", () => recordsIn(file).length === 1);
  const [record] = recordsIn(file);
  if (record === undefined) throw new Error("no record");
  t.equal(
    cellOf(record).sums.cost_microdollars,
    Number(cellsIn(file)[0]?.[3 + SUMS.indexOf("cost_microdollars")]),
  );
});

t.test("whatever a record holds is among what is handed over when it is written", async (t) => {
  t.same([...OPENING_KIND, ...OPENING_OWN].sort(), Object.keys(opening()).sort());
  t.same([...CLOSING_KIND, ...CLOSING_OWN].sort(), Object.keys(closing()).sort());
});
