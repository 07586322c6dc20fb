import t from "tap";
import type { Paths } from "../../src/core/paths.ts";
import { openMirrorForReading } from "../../src/mirror/store/database.ts";
import { SyncSchedule } from "../../src/mirror/sync/schedule.ts";
import type { Fault } from "../doubles/consoles/console-double.ts";
import { EVERY_CONSOLE } from "../doubles/consoles/start-console.ts";
import { LONG } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { HOUR, leave, MINUTE, startJourney } from "../doubles/mirror-journey.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { recordFor, recordWhere } from "../doubles/usage-journey.ts";

t.test(
  "LOG-08 the client left and the console counts more: both numbers stay, and totals are the console's",
  async (t) => {
    const journey = await startJourney(t, "sub2api");
    await journey.idle();
    await leave(journey, "in-body", {
      "x-test-input": "500",
      "x-test-output": "900",
      "x-test-dollars": "0.75",
    });
    const { id } = await recordWhere(journey, "it left", ({ end }) => end === "client-left");
    const before = await recordFor(journey, id);
    journey.clock.pass(MINUTE);
    await journey.sync();
    const after = await recordFor(journey, id);
    t.match(after, { end: "client-left", tokens_from: "console", input_tokens: 500, output_tokens: 900 });
    t.equal(after.billed_microdollars, 750_000);
    const { row, record } = await journey.compared(id);
    t.match(row, { input_tokens: 500, output_tokens: 900, billed_microdollars: 750_000 });
    t.match(record, { output_tokens: before.output_tokens, tokens_from: before.tokens_from });
    const { tools } = await journey.mirror();
    t.match(tools, [{ tool: "codex", requests: 1, theirs_microdollars: 750_000 }]);
  },
);

/** Everything the mirror stores, and our records with its verdicts. */
function contentOf({ mirror, index, usage }: Paths): unknown {
  const { db, close } = openMirrorForReading({ file: mirror, index });
  const content = ["console_rows ORDER BY identity", "verdicts ORDER BY record"].map((what) =>
    db.prepare(`SELECT * FROM mirror.${what}`).raw().all(),
  );
  close();
  return [content, recordsIn(usage)];
}

/** One whose rows have our ids, and one whose rows have none. test/journeys/mirror-matched has every kind. */
const CONSOLES = LONG ? EVERY_CONSOLE : (["new-api v1.0.0-rc.25", "sub2api without ids"] as const);

t.test("LOG-09 rows that are read several times, out of order and late, count once", async (t) => {
  for (const name of CONSOLES) {
    const journey = await startJourney(t, name);
    await journey.idle();
    for (let n = 0; n < 6; n += 1) {
      // Every third row is late: newer rows come before it.
      if (n % 3 === 0) journey.console.hold();
      await journey.ask({ "x-test-input": `${20 + n}` });
      journey.clock.pass(20_000);
      if (n % 3 === 2) {
        journey.console.release();
        await journey.sync();
      }
    }
    journey.clock.pass(HOUR);
    await journey.sync();
    const report = await journey.mirror();
    t.match(report.records, { matched: 6, missing: 0, differs: 0 }, `${name} ${JSON.stringify(report.rows)}`);
    const content = contentOf(journey.paths);
    for (let n = 0; n < 2; n += 1) {
      // Rows may be late, so every row of the last day is read again.
      journey.clock.pass(2 * HOUR);
      await journey.sync();
    }
    t.strictSame(contentOf(journey.paths), content, name);
    t.strictSame((await journey.mirror()).tools, report.tools);
  }
});

/** A fault of the console, and the minutes between the attempts. With 429 it asks for ten minutes. */
const FAULTS: readonly (readonly [Fault, readonly number[]])[] = [
  ["cut", [1, 2, 4, 8, 16]],
  ["401", [1, 2, 4, 8, 16]],
  ["429", [10, 10, 10, 10, 16]],
  ["html", [1, 2, 4, 8, 16]],
  ["data", [1, 2, 4, 8, 16]],
  ["500", [1, 2, 4, 8, 16]],
];

t.test("LOG-10 a console that fails is asked once a minute at most, and less and less often", async (t) => {
  const journey = await startJourney(t, "new-api v1.0.0-rc.25");
  const { clock, console } = journey;
  for (const [fault, minutes] of FAULTS) {
    console.fault = null;
    clock.pass(HOUR);
    t.equal((await journey.sync()).state, "ok", `before ${fault}`);
    clock.pass(2 * MINUTE);
    console.fault = fault;
    const earlier = journey.logged(/^the console /).length;
    // A list of the keys reads the console, unless it must wait.
    const tries: number[] = [];
    const first = clock.now();
    while (clock.now() < first + HOUR) {
      const before = console.asked.length;
      await journey.keys();
      if (console.asked.length > before) tries.push(clock.now());
      clock.pass(clock.now() < first + 4 * MINUTE ? MINUTE / 2 : MINUTE);
    }
    const waits = tries.slice(1).map((at, n) => (at - (tries[n] ?? 0)) / MINUTE);
    t.strictSame(waits, minutes, fault);
    const messages = journey
      .logged(/^the console /)
      .slice(earlier)
      .map(({ msg }) => msg);
    t.ok(messages.length > 0);
    t.equal(new Set(messages).size, messages.length, `the log has each message once: ${messages.join(", ")}`);
    const [status] = (await journey.status()).consoles;
    t.equal(status?.next_sync, (tries.at(-1) ?? 0) + 32 * MINUTE);
  }
});

t.test("a console that asks for a longer wait gets it, up to a day", async (t) => {
  const clock = heldClock();
  const schedule = new SyncSchedule(
    clock,
    () => {},
    () => MINUTE,
    () => {},
  );
  t.teardown(() => schedule.stop());
  schedule.failed(3 * 3600);
  t.equal(schedule.next, clock.now() + 3 * HOUR);
  t.ok(schedule.isWaiting);
  clock.pass(-HOUR);
  t.notOk(schedule.isWaiting, "a clock that is set back does not make the wait longer");
  schedule.failed(7 * 24 * 3600);
  t.equal(schedule.next, clock.now() + 24 * HOUR);
  clock.pass(24 * HOUR);
  t.notOk(schedule.isWaiting);
});
