import { cpSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import t from "tap";
import type { Paths } from "../../src/core/paths.ts";
import { MirrorDatabase } from "../../src/mirror/store/database.ts";
import { writeFact } from "../../src/mirror/store/facts.ts";
import { journalFiles } from "../../src/usage/journal/files.ts";
import { HOUR, MINUTE, startJourney } from "../doubles/mirror-journey.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { until } from "../doubles/until.ts";

function damageIndex({ index }: Paths): void {
  const whole = readFileSync(index);
  Buffer.alloc(8192, 0x5a).copy(whole, 4096);
  writeFileSync(index, whole);
  for (const suffix of ["-wal", "-shm"]) writeFileSync(index + suffix, Buffer.alloc(8192, 0x33));
}

function deleteIndex({ index }: Paths): void {
  for (const suffix of ["", "-wal", "-shm"]) rmSync(index + suffix, { force: true });
}

function deleteToday({ usage }: Paths): void {
  rmSync(journalFiles(usage).at(-1)?.path ?? "");
}

interface Loss {
  readonly what: string;
  readonly losesRecords: boolean;
  lose(paths: Paths): void;
}

/** What can happen to a log while a daemon runs. */
const LOSSES: readonly Loss[] = [
  { what: "whose index is damaged", losesRecords: false, lose: damageIndex },
  { what: "whose newest file is deleted", losesRecords: true, lose: deleteToday },
  { what: "whose index is deleted", losesRecords: false, lose: deleteIndex },
  {
    what: "whose newest file is deleted together with the index",
    losesRecords: true,
    lose(paths) {
      deleteToday(paths);
      deleteIndex(paths);
    },
  },
];

for (const { what, losesRecords, lose } of LOSSES) {
  t.test(`a log ${what} during a run: lost records are no leak, and a later leak is seen`, async (t) => {
    const journey = await startJourney(t, "sub2api");
    await journey.idle();
    journey.clock.pass(MINUTE);
    for (let n = 0; n < 3; n += 1) await journey.ask();
    await journey.sync();
    journey.clock.pass(MINUTE);
    // This one is not compared yet. A second later the journal has synced its line, and does not write it again. Nothing shows
    // that from outside. On a disk that is slower nothing is lost, and the rest holds as well.
    await journey.ask();
    await pause(2000);
    lose(journey.paths);
    if (losesRecords) await until("it is noticed", () => journey.logged(/was deleted/).length === 1);
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
  });
}

t.test("an older log that is put back: lost records are no leak, and a leak is seen", async (t) => {
  const journey = await startJourney(t, "sub2api");
  const { clock, paths } = journey;
  await journey.idle();
  clock.pass(MINUTE);
  await journey.ask();
  await journey.sync();
  cpSync(paths.usage, `${paths.usage}.copy`, { recursive: true });
  clock.pass(MINUTE);
  for (let n = 0; n < 2; n += 1) await journey.ask();
  await journey.daemon.stop(0);
  renameSync(paths.usage, `${paths.usage}.later`);
  renameSync(`${paths.usage}.copy`, paths.usage);
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
  t.match(
    later.rows,
    { total: 5, by_id: 2, unwatched: 2, foreign_certain: 1 },
    "the same after another start",
  );
  t.equal(third.logged(/lost its end/).length, 0);
});

t.test("a comparison that fails shows in the status, and requests are served", async (t) => {
  const journey = await startJourney(t, "sub2api");
  await journey.idle();
  journey.clock.pass(MINUTE);
  await journey.ask();
  await journey.sync();
  await journey.daemon.stop(0);
  const { mirror: file, index } = journey.paths;
  const database = new MirrorDatabase({ file, index, log: quietLog([]) });
  database.ask((db) => writeFact(db, "main", "console_gaps", "no json"));
  database.close();
  const again = await journey.startAgain();
  t.match(await again.idle(), { state: "failing", why: /could not be compared/ });
  for (let n = 0; n < 3; n += 1) {
    const answer = await again.ask();
    t.equal(answer.status, 200, answer.text);
    journey.clock.pass(MINUTE);
    t.equal((await again.sync()).state, "failing", "it stays failing");
  }
});
