import { join } from "node:path";
import { mock } from "node:test";
import { getTasks } from "node-cron";
import { pino } from "pino";
import t, { type Test } from "tap";
import { createUpkeep, type Upkeep } from "../../../src/usage/ledger/upkeep/upkeep.ts";
import { openBook } from "../../../src/usage/ledger/writing/book.ts";
import { until } from "../../doubles/until.ts";
import { DAY, newFolder } from "./ledger-under-test.ts";

const HOUR = DAY / 24;
const START = Date.UTC(2026, 10, 15, 6, 0);

/** node-cron's own timers and clock are moved on by hand; what it sets off is real. */
function startScheduled(t: Test): Upkeep {
  const file = join(newFolder(t), "usage.db");
  const book = openBook(file, "normal");
  book.transact((rows) => rows.setFact("upkept_at", String(START)));
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: START });
  const upkeep = createUpkeep({
    file,
    clock: { now: () => Date.now(), elapsed: () => performance.now() },
    log: pino({ level: "silent" }),
    keep: () => 400 * DAY,
    book: () => book,
    attempt(work) {
      work();
      return true;
    },
  });
  upkeep.resume(book);
  upkeep.start();
  const alive = setInterval(() => {}, 1000);
  t.teardown(async () => {
    clearInterval(alive);
    mock.timers.reset();
    await upkeep.stop();
    book.abandon();
  });
  return upkeep;
}

/** Second by second around the time that counts: node-cron takes a timer that is late for a time it missed. */
async function passTo(time: number): Promise<void> {
  mock.timers.tick(time - Date.now());
  await new Promise((done) => setImmediate(done));
}

t.test("node-cron looks every hour, and once a day there is something to do", async (t) => {
  const upkeep = startScheduled(t);
  for (let hour = 0; hour < 23; hour += 1) await passTo(START + hour * HOUR + 23 * 60_000);
  t.equal(upkeep.last(), START, "not within the day");
  const due = START + 24 * HOUR + 23 * 60_000;
  await passTo(due - HOUR);
  t.equal(upkeep.last(), START);
  await passTo(due);
  await until("it ran", () => upkeep.last() === due);
});

t.test("an hour that node-cron missed is made up for", async (t) => {
  const upkeep = startScheduled(t);
  // The timer that was set for 6:23 fires a day late.
  const late = START + 26 * HOUR + 40 * 60_000;
  mock.timers.setTime(late);
  await passTo(late + HOUR);
  await until("it ran", () => Number(upkeep.last()) >= late);
});

t.test("stopped, it leaves no task behind, and nothing runs any more", async (t) => {
  const upkeep = startScheduled(t);
  t.equal(getTasks().size, 1);
  await upkeep.stop();
  t.equal(getTasks().size, 0);
  await passTo(START + 3 * DAY);
  upkeep.tick();
  await passTo(START + 6 * DAY);
  upkeep.tick();
  t.equal(getTasks().size, 0, "not even by a clock that was set");
  t.equal(upkeep.last(), START);
});

t.test("a machine that slept, or whose clock was set, is looked after within a second", async (t) => {
  const upkeep = startScheduled(t);
  upkeep.tick();
  const woken = START + 60 * DAY;
  mock.timers.setTime(woken);
  const before = process.cpuUsage();
  upkeep.tick();
  await until("it ran", () => upkeep.last() === woken);
  // node-cron, left to itself, would now go through every hour of the sixty days.
  await passTo(woken + 22 * 60_000);
  const { user, system } = process.cpuUsage(before);
  t.ok(user + system < 2_000_000, `with ${(user + system) / 1000} ms of work`);
  t.equal(getTasks().size, 1);
  upkeep.tick();
  await upkeep.look();
  mock.timers.setTime(START + DAY);
  upkeep.tick();
  await until("it ran", () => upkeep.last() === START + DAY);
  const next = START + 2 * DAY + 23 * 60_000;
  for (let time = START + DAY + 23 * 60_000; time <= next; time += HOUR) await passTo(time);
  await until("and its hours are those of the clock that was set back", () => upkeep.last() === next);
});
