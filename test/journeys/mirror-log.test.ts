import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import t from "tap";
import { openForWriting } from "../../src/usage/ledger/connect.ts";
import { HOUR, MINUTE, startJourney } from "../doubles/mirror-journey.ts";
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
      await until("it serves again", async () => (await journey.ask()).status === 200);
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

/** With its WAL, and by another process: closing the file in this one would end the log's locks. */
function copyLog(from: string, to: string): void {
  for (const end of ["", "-wal", "-shm"]) rmSync(to + end, { force: true });
  for (const end of ["", "-wal"]) if (existsSync(from + end)) execFileSync("cp", [from + end, to + end]);
}

t.test("an older log that is put back: what only the later one held is no leak, and a leak is", async (t) => {
  const journey = await startJourney(t, "sub2api");
  const { clock, places } = journey;
  await journey.idle();
  clock.pass(MINUTE);
  await journey.ask();
  await journey.sync();
  copyLog(places.usage, `${places.usage}.copy`);
  clock.pass(MINUTE);
  for (let n = 0; n < 2; n += 1) await journey.ask();
  await journey.daemon.stop(0);
  copyLog(`${places.usage}.copy`, places.usage);
  clock.pass(HOUR);
  journey.elsewhere();
  clock.pass(HOUR);

  const again = await journey.startAgain();
  await again.sync();
  const { rows, alarms, blind } = await again.mirror();
  t.match(rows, { total: 4, by_id: 1, unwatched: 2, foreign_certain: 1 }, JSON.stringify(rows));
  t.match(alarms, [{ tools: ["codex"], count: 1 }]);
  t.match(blind.filter((words) => /lost its end/.test(words)).length, 1, blind.join("\n"));
  t.equal(again.logged(/lost its end/).length, 1);
  await again.ask();
  await again.daemon.stop(0);
  clock.pass(MINUTE);

  const third = await journey.startAgain();
  await third.sync();
  const later = await third.mirror();
  t.match(later.rows, { total: 5, by_id: 2, unwatched: 2, foreign_certain: 1 }, "and so it stays");
  t.equal(third.logged(/lost its end/).length, 0);
});

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
  const again = await journey.startAgain();
  t.match(await again.idle(), { state: "failing", why: /could not be compared/ });
  for (let n = 0; n < 3; n += 1) {
    const answer = await again.ask();
    t.equal(answer.status, 200, answer.text);
    journey.clock.pass(MINUTE);
    t.equal((await again.sync()).state, "failing", "it is not said that all is well");
  }
});
