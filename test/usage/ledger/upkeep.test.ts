import { join } from "node:path";
import { pino } from "pino";
import t, { type Test } from "tap";
import { SLOT_MS, SUMS, slotOf } from "../../../src/usage/ledger/cells.ts";
import { faultOf, type LedgerFault } from "../../../src/usage/ledger/fault.ts";
import { createUpkeep, type Upkeep } from "../../../src/usage/ledger/upkeep/upkeep.ts";
import { type Book, openBook } from "../../../src/usage/ledger/writing/book.ts";
import { ask, closing, DAY, isSound, newFolder, opening, recordsIn } from "./ledger-under-test.ts";

const NOW = 1_763_164_800_000;

interface UpkeepUnderTest {
  readonly file: string;
  readonly book: Book;
  readonly upkeep: Upkeep;
  readonly faults: LedgerFault[];
  setNow(now: number): void;
}

function startUpkeep(t: Test, keep: number): UpkeepUnderTest {
  const file = join(newFolder(t), "usage.db");
  const book = openBook(file, "normal");
  const faults: LedgerFault[] = [];
  let now = NOW;
  const setNow = (time: number) => {
    now = time;
  };
  const upkeep: Upkeep = createUpkeep({
    file,
    clock: { now: () => now, elapsed: () => performance.now() },
    log: pino({ level: "silent" }),
    keep: () => keep,
    book: () => book,
    attempt(work) {
      try {
        work();
        return true;
      } catch (error) {
        faults.push(faultOf(error));
        return false;
      }
    },
  });
  // As if it had run the day before.
  book.transact((rows) => rows.setFact("upkept_at", String(NOW - DAY)));
  upkeep.resume(book);
  // Its own pauses keep no process alive.
  const alive = setInterval(() => {}, 1000);
  t.teardown(async () => {
    clearInterval(alive);
    await upkeep.stop();
    book.abandon();
  });
  return { file, book, upkeep, faults, setNow };
}

/** So many records, one every so many milliseconds, the last one just now. */
function fill(book: Book, count: number, every: number): void {
  for (let from = 0; from < count; from += 500) {
    const size = Math.min(500, count - from);
    book.write(
      Array.from({ length: size }, (_, i) => {
        const started_at = NOW - (count - from - i) * every;
        const given = { started_at, tool: `tool-${i % 3}`, model: `model-${i % 2}` };
        return {
          kind: "add",
          opening: opening(given),
          closing: closing({ first_byte_at: started_at + i }),
        } as const;
      }),
    );
  }
}

function lifetime(file: string): unknown[] {
  return ask(file, `SELECT ${SUMS.map((name) => `sum(${name})`).join(", ")} FROM cells`).flat();
}

t.test("what is older than is kept goes, and its sums stay", async (t) => {
  const { file, book, upkeep, faults } = startUpkeep(t, 10 * DAY);
  fill(book, 600, 60 * 60_000);
  const running = opening({ started_at: NOW - 20 * DAY });
  book.write([{ kind: "open", closing: null, opening: running }]);
  const before = lifetime(file);
  await upkeep.look();
  t.same(faults, []);
  const cutoff = slotOf(NOW - 10 * DAY) * SLOT_MS;
  const left = recordsIn(file);
  t.ok(left.filter(({ id }) => id !== running.id).every(({ started_at }) => started_at >= cutoff));
  t.equal(left.length, 1 + (10 * DAY) / (60 * 60_000), "nothing younger is gone, nor what still runs");
  t.same(lifetime(file), before, "a total over all time is the same");
  t.same(ask(file, `SELECT count(*) FROM cells WHERE slot > 0 AND slot < ${slotOf(cutoff)}`), [[0]]);
  t.same(ask(file, "SELECT count(*) FROM cells WHERE slot = 0"), [[6]], "one for each tool and model");
  t.same(ask(file, "SELECT value FROM facts WHERE name = 'kept_from'"), [[String(cutoff)]]);
  const counts = ask(file, "SELECT first_bytes FROM cells WHERE slot = 0").flat().map(String);
  const counted = counts
    .join(" ")
    .match(/:(\d+)/g)
    ?.reduce((sum, text) => sum + Number(text.slice(1)), 0);
  t.equal(counted, 601 - left.length, "how long first bytes took stays, too");
  t.ok(isSound(file));
});

t.test("once a day, also after the machine slept, and after its clock was set", async (t) => {
  const { file, book, upkeep, setNow } = startUpkeep(t, 10 * DAY);
  fill(book, 100, 60_000);
  t.equal(upkeep.last(), NOW - DAY);
  await upkeep.look();
  t.equal(upkeep.last(), NOW);
  setNow(NOW + DAY / 2);
  await upkeep.look();
  t.equal(upkeep.last(), NOW, "not twice a day");
  setNow(NOW + 40 * DAY);
  await upkeep.look();
  t.equal(upkeep.last(), NOW + 40 * DAY);
  setNow(NOW + 41 * DAY);
  await upkeep.look();
  t.equal(recordsIn(file).length, 0);
  setNow(NOW + 3 * DAY);
  await upkeep.look();
  t.equal(upkeep.last(), NOW + 3 * DAY, "a last time to come does not put it off");
  t.same(ask(file, "SELECT value FROM facts WHERE name = 'upkept_at'"), [[String(NOW + 3 * DAY)]]);
});

t.test("a clock that jumps ahead deletes nothing until it has stood for a day", async (t) => {
  const { file, book, upkeep, setNow } = startUpkeep(t, 10 * DAY);
  fill(book, 600, 60 * 60_000);
  const ahead = NOW + 5 * 365 * DAY;
  setNow(ahead);
  // A request that came while the clock was wrong is no proof that it is right.
  const wrong = opening({ started_at: ahead });
  book.write([{ kind: "add", opening: wrong, closing: closing() }]);
  await upkeep.look();
  t.equal(upkeep.last(), ahead);
  const cutoff = slotOf(NOW - DAY - 10 * DAY) * SLOT_MS;
  const kept = (NOW - cutoff) / (60 * 60_000);
  t.equal(recordsIn(file).length, 1 + kept, "only what was old when the clock was last believed");
  setNow(NOW + DAY / 2);
  await upkeep.look();
  t.equal(upkeep.last(), NOW + DAY / 2, "set right, it is looked after at once");
  t.ok(recordsIn(file).length > 220);
  setNow(ahead);
  await upkeep.look();
  t.ok(recordsIn(file).length > 220);
  setNow(ahead + DAY);
  await upkeep.look();
  t.same(
    recordsIn(file).map(({ id }) => id),
    [wrong.id],
    "after a day of it, it is believed",
  );
});

t.test("a log that was never looked after loses nothing the first time", async (t) => {
  const { file, book, upkeep, setNow } = startUpkeep(t, 10 * DAY);
  fill(book, 600, 60 * 60_000);
  book.connection.db.exec("DELETE FROM log.facts");
  upkeep.resume(book);
  await upkeep.look();
  t.equal(upkeep.last(), NOW);
  t.equal(recordsIn(file).length, 600);
  setNow(NOW + DAY);
  await upkeep.look();
  t.ok(recordsIn(file).length < 300);
});
