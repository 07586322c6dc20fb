import t from "tap";
import { EVERY_CONSOLE } from "../doubles/consoles/start-console.ts";
import {
  DAY,
  HOUR,
  haveLearned,
  leave,
  MINUTE,
  type MirrorJourney,
  startJourney,
} from "../doubles/mirror-journey.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { recordFor, recordWhere } from "../doubles/usage-journey.ts";

/** No request that passed here may count as foreign. */
async function nothingForeign(journey: MirrorJourney) {
  const { rows, alarms } = await journey.mirror();
  return [rows.foreign_certain, rows.foreign_suspected, alarms.length];
}

for (const [nth, name] of EVERY_CONSOLE.entries()) {
  const byId = name !== "sub2api without ids";

  t.test(`${name}: late rows and several rows of one request are matched`, async (t) => {
    const journey = await startJourney(t, name);
    await journey.idle();
    journey.console.hold();
    await journey.ask({ "x-test-input": "101" });
    journey.clock.pass(MINUTE);
    journey.console.release();
    await journey.ask({ "x-test-input": "102", "x-test-errors": "2" });
    journey.clock.pass(2 * MINUTE);
    journey.console.hold();
    await journey.ask({ "x-test-input": "103" });
    const early = await journey.sync();
    t.equal(early.state, "ok", early.why ?? "");
    t.match(await journey.mirror(), { records: { matched: 2, pending: 1, missing: 0 } });
    journey.clock.pass(11 * MINUTE);
    await journey.sync();
    t.match(await journey.mirror(), { records: { matched: 2, pending: 0, missing: 1 } }, "it is overdue");
    t.match(await journey.diff(), [{ verdict: "missing", row: null }]);
    journey.console.release();
    // one-api does not count its rows, so rows that are this late are looked for once an hour.
    journey.clock.pass(name === "one-api" ? HOUR : MINUTE);
    await journey.sync();
    const report = await journey.mirror();
    t.match(report, { records: { matched: 3, pending: 0, missing: 0 } }, "the late row is matched");
    // Failed attempts of one second are one row, for all that the console says of them.
    t.equal(report.rows.companion, name.startsWith("new-api") ? 1 : 0, JSON.stringify(report.rows));
    t.strictSame(await nothingForeign(journey), [0, 0, 0]);
    for (let n = 0; n < 2; n += 1) {
      await journey.sync();
      t.strictSame((await journey.mirror()).rows, report.rows, "reading it again changes nothing");
    }
  });

  t.test(`${name}: a request whose client leaves takes its tokens and cost from the console`, async (t) => {
    const journey = await startJourney(t, name);
    await journey.idle();
    haveLearned(journey);
    await journey.ask();
    journey.clock.pass(MINUTE);
    await leave(journey, "before-headers", { "x-test-input": "77", "x-test-output": "30" });
    const before = await recordWhere(
      journey,
      "left early",
      ({ end, status }) => end === "client-left" && status === null,
    );
    journey.clock.pass(MINUTE);
    await leave(journey, "in-body", { "x-test-input": "78", "x-test-output": "31" });
    const within = await recordWhere(
      journey,
      "left late",
      ({ end, status }) => end === "client-left" && status === 200,
    );
    journey.clock.pass(20 * MINUTE);
    await journey.sync();
    const { rows } = await journey.mirror();
    t.strictSame(await nothingForeign(journey), [0, 0, 0], JSON.stringify(rows));
    t.equal(rows.presumed, byId ? 1 : 2, JSON.stringify(rows));
    for (const [record, input, output] of [
      [before, 77, 30],
      [within, 78, 31],
    ] as const) {
      const after = await recordFor(journey, record.id);
      t.match(after, { input_tokens: input, output_tokens: output, tokens_from: "console" });
      t.type(after.billed_microdollars, "number");
      const { row, record: own } = await journey.compared(record.id);
      t.equal(row?.output_tokens, output, "theirs");
      t.equal(own?.output_tokens, record.output_tokens, "and ours beside it");
      t.not(own?.tokens_from, "console");
    }
  });

  t.test(`${name}: a wrong clock makes no row foreign and hides no foreign row`, async (t) => {
    // Each console has a clock that is wrong by minutes one way, and by a day the other.
    for (const skew of nth % 2 === 0 ? [3 * MINUTE, -DAY] : [-3 * MINUTE, DAY]) {
      const journey = await startJourney(t, name);
      journey.console.skew = skew;
      await journey.sync();
      journey.clock.pass(MINUTE);
      for (let n = 0; n < 3; n += 1) {
        await journey.ask({ "x-test-input": `${50 + n}` });
        journey.clock.pass(5000);
      }
      journey.clock.pass(12 * MINUTE);
      const status = await journey.sync();
      t.ok(Math.abs((status.skew ?? 0) - skew) <= 1500, `${status.skew} is about ${skew}`);
      const report = await journey.mirror();
      t.match(
        report.records,
        { matched: 3, missing: 0, pending: 0 },
        `${skew} ${JSON.stringify(report.rows)}`,
      );
      t.strictSame(await nothingForeign(journey), [0, 0, 0]);
      journey.elsewhere({ model: "stolen" });
      journey.clock.pass(MINUTE);
      await journey.sync();
      const { rows } = await journey.mirror();
      t.equal(rows.foreign_certain + rows.foreign_suspected, 1, JSON.stringify(rows));
    }
  });

  t.test(
    `${name}: a row that the console dropped is missing, and a console without rows cannot see`,
    async (t) => {
      const journey = await startJourney(t, name);
      await journey.idle();
      await journey.ask();
      journey.clock.pass(MINUTE);
      await journey.ask({ "x-test-no-row": "1", "x-test-input": "44" });
      journey.clock.pass(11 * MINUTE);
      t.equal((await journey.sync()).state, "ok");
      t.match(await journey.mirror(), { records: { matched: 1, missing: 1 } });
      journey.console.logging = false;
      for (let n = 0; n < 4; n += 1) await journey.ask({ "x-test-input": `${60 + n}` });
      journey.clock.pass(11 * MINUTE);
      const status = await journey.sync();
      t.equal(status.state, "cannot-see", status.why ?? "");
      t.match(status.why, /lists none of the last/);
      t.ok(status.next);
      t.strictSame(await nothingForeign(journey), [0, 0, 0]);
      journey.console.logging = true;
      await journey.ask({ "x-test-input": "70" });
      journey.clock.pass(MINUTE);
      t.equal((await journey.sync()).state, "ok", "it sees again");
    },
  );

  t.test(`${name}: rows that the console adds during a sync are neither lost nor doubled`, async (t) => {
    const journey = await startJourney(t, name);
    await journey.idle();
    journey.clock.pass(MINUTE);
    await journey.ask();
    let billed = 0;
    for (; billed < 150; billed += 1) journey.elsewhere({ input: billed });
    journey.console.onAsk = ({ path }) => {
      if (billed >= 160 || !/usage|log/.test(path)) return;
      journey.elsewhere({ input: billed });
      billed += 1;
    };
    await journey.sync();
    journey.console.onAsk = null;
    journey.clock.pass(MINUTE);
    await journey.sync();
    await journey.sync();
    const { rows } = await journey.mirror();
    t.equal(rows.foreign_certain + rows.foreign_suspected, billed, JSON.stringify(rows));
    t.equal(rows.total, billed + 1);
    t.ok(recordsIn(journey.paths.usage).length === 1);
    journey.clock.pass(HOUR);
    await journey.sync();
    t.strictSame((await journey.mirror()).rows, rows);
  });
}
