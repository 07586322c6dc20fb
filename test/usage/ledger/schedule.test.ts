import { join } from "node:path";
import { mock } from "node:test";
import { pino } from "pino";
import t, { type Test } from "tap";
import { createUpkeep, type Upkeep } from "../../../src/usage/ledger/upkeep/upkeep.ts";
import { openBook } from "../../../src/usage/ledger/writing/book.ts";
import { until } from "../../doubles/until.ts";
import { DAY, newFolder } from "./ledger-under-test.ts";

const HOUR = DAY / 24;
const MINUTE = HOUR / 60;
const START = Date.UTC(2026, 10, 15, 6, 0);

/** The clock is moved on by hand; what it sets off is real. */
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

/** As the ledger does: a tick every second, here every minute. */
async function passTo(upkeep: Upkeep, time: number): Promise<void> {
  for (let at = Date.now() + MINUTE; at <= time; at += MINUTE) {
    mock.timers.setTime(at);
    upkeep.tick();
    await new Promise((done) => setImmediate(done));
  }
}

t.test("it looks every hour, and once a day there is something to do", async (t) => {
  const upkeep = startScheduled(t);
  upkeep.tick();
  await passTo(upkeep, START + 23.4 * HOUR);
  t.equal(upkeep.last(), START, "not within the day");
  await passTo(upkeep, START + 24.5 * HOUR);
  await until("it ran", () => Number(upkeep.last()) > START);
  t.ok(Number(upkeep.last()) <= START + 24.5 * HOUR);
});

t.test("stopped, nothing runs any more, not even by a clock that was set", async (t) => {
  const upkeep = startScheduled(t);
  upkeep.tick();
  await upkeep.stop();
  await passTo(upkeep, START + 2 * DAY);
  mock.timers.setTime(START + 6 * DAY);
  upkeep.tick();
  await new Promise((done) => setImmediate(done));
  t.equal(upkeep.last(), START);
});

t.test("a machine that slept, or whose clock was set, is looked after within a second", async (t) => {
  const upkeep = startScheduled(t);
  upkeep.tick();
  const woken = START + 60 * DAY;
  mock.timers.setTime(woken);
  upkeep.tick();
  await until("it ran", () => upkeep.last() === woken);
  await upkeep.look();
  mock.timers.setTime(START + DAY);
  upkeep.tick();
  await until("it ran", () => upkeep.last() === START + DAY);
  await upkeep.look();
  await passTo(upkeep, START + 2 * DAY + HOUR);
  await until("and its days are those of the clock that was set back", () => {
    const last = Number(upkeep.last());
    return last > START + DAY && last <= START + 2 * DAY + HOUR;
  });
});
