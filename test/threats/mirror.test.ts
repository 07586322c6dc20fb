import t from "tap";
import { createLogger } from "../../src/logger.ts";
import { ConsoleFault, type FaultKind } from "../../src/mirror/consoles/console.ts";
import { openMirrorForReading } from "../../src/mirror/store/database.ts";
import { Syncer } from "../../src/mirror/sync/syncer.ts";
import type { Places } from "../../src/places.ts";
import { EVERY_CONSOLE } from "../doubles/consoles/start-console.ts";
import { HOUR, leave, MINUTE, startJourney } from "../doubles/mirror-journey.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { recordFor, recordWhere } from "../doubles/usage-journey.ts";
import { heldClock } from "../keys/held-clock.ts";

t.test(
  "LOG-08 a caller who left while the console counts more: both numbers stay, and totals are the console's",
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

/** All that the mirror keeps, and what it made of our records. */
function contentOf({ mirror, index, usage }: Places): unknown {
  const { db, close } = openMirrorForReading({ file: mirror, index });
  const content = ["console_rows ORDER BY identity", "verdicts ORDER BY record"].map((what) =>
    db.prepare(`SELECT * FROM mirror.${what}`).raw().all(),
  );
  close();
  return [content, recordsIn(usage)];
}

t.test("LOG-09 rows that are read again and again, out of order and late, count once", async (t) => {
  for (const name of EVERY_CONSOLE) {
    const journey = await startJourney(t, name);
    await journey.idle();
    for (let n = 0; n < 6; n += 1) {
      // Every third comes late, behind those that are newer.
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
    const content = contentOf(journey.places);
    for (let n = 0; n < 2; n += 1) {
      // Within a day everything is read again, for rows that are late.
      journey.clock.pass(2 * HOUR);
      await journey.sync();
    }
    t.strictSame(contentOf(journey.places), content, name);
    t.strictSame((await journey.mirror()).tools, report.tools);
  }
});

const KINDS: readonly FaultKind[] = [
  "unreachable",
  "login-refused",
  "rate-limited",
  "other-shape",
  "slow",
  "failing",
];

t.test("LOG-10 a console that fails is asked once a minute at most, and less and less often", async (t) => {
  for (const kind of KINDS) {
    const clock = heldClock();
    const lines: string[] = [];
    const log = createLogger({
      level: "info",
      destination: { write: (line: string) => void lines.push(line) },
      forPeople: false,
      secrets: () => [],
    });
    const asked: number[] = [];
    let retryAfter: number | null = null;
    const syncer = new Syncer({
      ...{ gateway: "main", clock, log, database: { ask: () => null } },
      ...{ since: () => 0, onKeys() {}, onRows: async () => {}, onFailed() {}, busiestKey: async () => 0 },
      prepare: async () => {},
      connect: async () => {
        asked.push(clock.now());
        throw new ConsoleFault(kind, "does not answer", retryAfter);
      },
    });
    t.teardown(() => syncer.stop());
    for (let passed = 0; passed < HOUR; passed += 5000) {
      await syncer.look();
      clock.pass(5000);
    }
    const gaps = asked.slice(1).map((at, n) => Math.round((at - (asked[n] ?? 0)) / MINUTE));
    t.strictSame(gaps, [1, 2, 4, 8, 16], kind);
    t.equal(lines.length, 1, "the log says it once");
    t.equal(syncer.state().next_sync, (asked.at(-1) ?? 0) + 32 * MINUTE);
    retryAfter = 3 * 3600;
    await syncer.sync();
    t.equal(syncer.state().next_sync, clock.now() + 3 * HOUR, "and waits for as long as it is told to");
  }
});
