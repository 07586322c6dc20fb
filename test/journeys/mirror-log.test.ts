import { readFileSync, rmSync, writeFileSync } from "node:fs";
import t from "tap";
import { openForWriting } from "../../src/usage/ledger/connect.ts";
import { HOUR, MINUTE, startBeside, startJourney } from "../doubles/mirror-journey.ts";
import { until } from "../doubles/until.ts";

/** What may become of a log under a daemon that runs. */
const LOSSES: Readonly<Record<string, (file: string) => void>> = {
  damaged(file) {
    const whole = readFileSync(file);
    Buffer.alloc(8192, 0x5a).copy(whole, 4096);
    writeFileSync(file, whole);
    for (const end of ["-wal", "-shm"]) writeFileSync(file + end, Buffer.alloc(8192, 0x33));
  },
  "taken away"(file) {
    for (const end of ["", "-wal", "-shm"]) rmSync(file + end, { force: true });
  },
};

for (const [what, lose] of Object.entries(LOSSES)) {
  t.test(
    `a log that is ${what} while it runs: what was lost is no leak, and a leak after it is seen`,
    async (t) => {
      const journey = await startJourney(t, "sub2api");
      await journey.idle();
      journey.clock.pass(MINUTE);
      for (let n = 0; n < 3; n += 1) await journey.ask();
      await journey.sync();
      lose(journey.places.usage);
      journey.clock.pass(MINUTE);
      await until("it serves again", async () => (await journey.ask()).status === 200, 10_000);
      journey.clock.pass(MINUTE);
      await journey.sync();
      const { rows, alarms } = await journey.mirror();
      t.strictSame(
        [alarms.length, rows.foreign_certain, rows.foreign_suspected],
        [0, 0, 0],
        JSON.stringify(rows),
      );
      journey.clock.pass(MINUTE);
      journey.elsewhere();
      journey.clock.pass(HOUR);
      await journey.sync();
      const after = await journey.mirror();
      t.match(after.alarms, [{ tools: ["codex"], count: 1 }], JSON.stringify(after.rows));
    },
  );
}

t.test("what goes wrong in comparing is said, and requests go on", async (t) => {
  const journey = await startJourney(t, "sub2api");
  await journey.idle();
  journey.clock.pass(MINUTE);
  await journey.ask();
  await journey.sync();
  await journey.daemon.stop(0);
  const { db, close } = openForWriting(journey.places.usage, { sync: "normal" });
  db.prepare("INSERT OR REPLACE INTO log.facts (name, value) VALUES ('mirror:main:gaps', 'no json')").run();
  close();
  const { home, callers, console, clock } = journey;
  const again = await startBeside(t, console, clock, { home, callers });
  t.match(await again.idle(), { state: "failing", why: /could not be compared/ });
  for (let n = 0; n < 3; n += 1) {
    const answer = await again.ask();
    t.equal(answer.status, 200, answer.text);
    clock.pass(MINUTE);
    t.equal((await again.sync()).state, "failing", "it is not said that all is well");
  }
});
