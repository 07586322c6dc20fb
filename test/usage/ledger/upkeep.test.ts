import { closeSync, copyFileSync, openSync, renameSync, statSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import t, { type Test } from "tap";
import { SLOT_MS, SUMS, slotOf } from "../../../src/usage/ledger/cells.ts";
import { openForReading } from "../../../src/usage/ledger/connect.ts";
import { faultOf, type LedgerFault } from "../../../src/usage/ledger/fault.ts";
import { checkApart, loadedLibrary } from "../../../src/usage/ledger/upkeep/check-apart.ts";
import { createUpkeep, type Upkeep } from "../../../src/usage/ledger/upkeep/upkeep.ts";
import { type Book, openBook } from "../../../src/usage/ledger/writing/book.ts";
import { until } from "../../doubles/until.ts";
import { ask, closing, DAY, isSound, newFolder, opening, recordsIn } from "./ledger-under-test.ts";

const NOW = 1_763_164_800_000;

interface UpkeepUnderTest {
  readonly file: string;
  readonly book: Book;
  readonly upkeep: Upkeep;
  readonly faults: LedgerFault[];
  /** How far it was after each piece, between which the event loop may do something else. */
  readonly pieces: readonly ReturnType<Upkeep["work"]>[];
  setNow(now: number): void;
}

function startUpkeep(t: Test, keep: number): UpkeepUnderTest {
  const file = join(newFolder(t), "usage.db");
  const book = openBook(file, "normal");
  const faults: LedgerFault[] = [];
  const pieces: ReturnType<Upkeep["work"]>[] = [];
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
      } finally {
        pieces.push(upkeep.work());
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
  return { file, book, upkeep, faults, pieces, setNow };
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

/** So many records are more than is read at once. */
const LARGE = 16_000;

/** A page in the middle holds something else. */
function damage(file: string, book: Book): void {
  book.connection.db.prepare("PRAGMA log.wal_checkpoint(TRUNCATE)").raw().get();
  const page = Math.floor(statSync(file).size / 4096 / 2);
  const fd = openSync(file, "r+");
  writeSync(fd, Buffer.alloc(4096, 0xee), 0, 4096, page * 4096);
  closeSync(fd);
}

function lifetime(file: string): unknown[] {
  return ask(file, `SELECT ${SUMS.map((name) => `sum(${name})`).join(", ")} FROM cells`).flat();
}

t.test("what is older than is kept goes, and its sums stay", async (t) => {
  const { file, book, upkeep, faults } = startUpkeep(t, 10 * DAY);
  fill(book, 3000, 12 * 60_000);
  const running = opening({ started_at: NOW - 20 * DAY });
  book.write([{ kind: "open", closing: null, opening: running }]);
  const before = lifetime(file);
  await upkeep.look();
  t.same(faults, []);
  const cutoff = slotOf(NOW - 10 * DAY) * SLOT_MS;
  const left = recordsIn(file);
  t.ok(left.filter(({ id }) => id !== running.id).every(({ started_at }) => started_at >= cutoff));
  t.equal(left.length, 1 + (10 * DAY) / (12 * 60_000), "nothing younger is gone, nor what still runs");
  t.same(lifetime(file), before, "a total over all time is the same");
  t.same(ask(file, `SELECT count(*) FROM cells WHERE slot > 0 AND slot < ${slotOf(cutoff)}`), [[0]]);
  t.same(ask(file, "SELECT count(*) FROM cells WHERE slot = 0"), [[6]], "one for each tool and model");
  t.same(ask(file, "SELECT value FROM facts WHERE name = 'kept_from'"), [[String(cutoff)]]);
  const counts = ask(file, "SELECT first_bytes FROM cells WHERE slot = 0").flat().map(String);
  const counted = counts
    .join(" ")
    .match(/:(\d+)/g)
    ?.reduce((sum, text) => sum + Number(text.slice(1)), 0);
  t.equal(counted, 3001 - left.length, "how long first bytes took stays, too");
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

t.test("tens of thousands of old records go without holding up the requests", async (t) => {
  const { file, book, upkeep, faults, pieces } = startUpkeep(t, DAY);
  fill(book, 30_000, 60_000);
  const size = statSync(file).size;
  await upkeep.look();
  t.same(faults, []);
  t.equal(recordsIn(file).length, DAY / 60_000);
  t.ok(pieces.length > 20, `in ${pieces.length} pieces`);
  t.ok(
    pieces.some((work) => work?.what === "retention" && work.done > 0 && work.total > 25_000),
    "and said how far it is",
  );
  t.equal(upkeep.work(), null);
  t.ok(Number(ask(file, "PRAGMA log.freelist_count").flat()[0]) <= 1000);
  t.ok(statSync(file).size < size * 0.8, "the room is given back");
  t.ok(isSound(file));
});

t.test("stopped in the middle it ends soon, and goes on the next time", async (t) => {
  const { file, book, upkeep } = startUpkeep(t, DAY);
  fill(book, 6000, 60_000);
  const looking = upkeep.look();
  await until("it has begun", () => Number(upkeep.work()?.done) > 0);
  await upkeep.stop();
  await looking;
  const left = recordsIn(file).length;
  t.ok(left > DAY / 60_000 && left < 6000, `${left} are left`);
  t.equal(upkeep.last(), NOW - DAY, "not done");
  t.ok(isSound(file));
});

t.test("a reader that is in the way is no reason to fail", async (t) => {
  const { file, book, upkeep, faults } = startUpkeep(t, DAY);
  fill(book, 5000, 60_000);
  const reader = openForReading(file);
  if (!reader.ok) throw new Error(reader.words);
  reader.connection.db.exec("BEGIN");
  reader.connection.db.prepare("SELECT count(*) FROM records").raw().get();
  await upkeep.look();
  reader.connection.close();
  t.same(faults, []);
  t.equal(recordsIn(file).length, DAY / 60_000);
});

t.test("damage is found by reading everything", async (t) => {
  const { file, book, upkeep, faults } = startUpkeep(t, 400 * DAY);
  fill(book, 500, 60_000);
  t.equal(await upkeep.check(), true, "nothing is wrong yet");
  damage(file, book);
  t.equal(await upkeep.check(), false);
  t.match(faults, [{ kind: "corrupt", message: /damaged/ }]);
});

t.test("a large file is read for damage on another thread", async (t) => {
  const { file, book, upkeep, faults } = startUpkeep(t, 400 * DAY);
  fill(book, LARGE, 60_000);
  t.equal(await checkApart(file, loadedLibrary()).found, null, "nothing is wrong yet");
  damage(file, book);
  t.ok(statSync(file).size > 4 * 1024 * 1024);
  t.match(await checkApart(file, loadedLibrary()).found, { kind: "corrupt" });
  const checking = upkeep.check();
  t.same(upkeep.work(), { what: "check", done: 0, total: 0 }, "said while it takes its time");
  t.equal(await checking, false);
  t.equal(upkeep.work(), null);
  t.match(faults, [{ kind: "corrupt", message: /damaged/ }]);
  t.equal(
    await checkApart(join(file, "nowhere"), loadedLibrary()).found,
    null,
    "what cannot be read is not said to be damaged",
  );
});

t.test("a library that was replaced on disk is not loaded beside the one that runs", async (t) => {
  const { file } = startUpkeep(t, 400 * DAY);
  const loaded = loadedLibrary();
  t.ok(
    [...loaded.stamps.keys()].some((path) => path.endsWith(".node")),
    "its native half counts, too",
  );
  const folder = t.testdir({ library: "one", next: "two" });
  const library = join(folder, "library");
  const { dev, ino, size, mtimeMs } = statSync(library);
  const stamps = new Map([...loaded.stamps, [library, [dev, ino, size, mtimeMs].join(" ")]]);
  t.equal(await checkApart(file, { ...loaded, stamps }).found, null);
  renameSync(join(folder, "next"), library);
  t.throws(() => checkApart(file, { ...loaded, stamps }), /replaced on disk/);
  unlinkSync(library);
  t.throws(() => checkApart(file, { ...loaded, stamps }), /replaced on disk/);
});

t.test("damage of a file that is no longer there is not held against the next", async (t) => {
  const { file, book, upkeep, faults } = startUpkeep(t, 400 * DAY);
  fill(book, LARGE, 60_000);
  damage(file, book);
  const checking = upkeep.check();
  copyFileSync(file, `${file}.copy`);
  renameSync(`${file}.copy`, file);
  t.equal(await checking, true);
  t.same(faults, []);
});
