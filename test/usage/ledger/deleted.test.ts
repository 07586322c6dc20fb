import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  unlinkSync,
} from "node:fs";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { createTally, FOLDED_SLOT } from "../../../src/usage/ledger/cells.ts";
import { openBook } from "../../../src/usage/ledger/writing/book.ts";
import { until } from "../../doubles/until.ts";
import {
  ask,
  closing,
  isSound,
  newFolder,
  openAll,
  opening,
  recordsIn,
  startLedger,
  turn,
} from "./ledger-under-test.ts";

/** A log of so many records, one a minute, and the sums of one that was pruned. Answers their ids. */
function fill(file: string, count: number): string[] {
  const book = openBook(file, "normal");
  const entries = Array.from({ length: count }, (_, at) => {
    const started_at = 1_763_164_800_000 + at * 60_000;
    return { kind: "add", opening: opening({ started_at }), closing: closing() } as const;
  });
  book.write(entries);
  book.transact((_, tally) => {
    const one = createTally();
    one.count({ ...opening(), ...closing(), model: "m", billed_microdollars: null });
    for (const cell of one.cells()) tally.add({ ...cell, slot: FOLDED_SLOT });
  });
  book.abandon();
  return entries.map((entry) => entry.opening.id);
}

function filled(t: Test, count: number): { readonly file: string; readonly ids: readonly string[] } {
  const file = join(newFolder(t), "usage.db");
  return { file, ids: fill(file, count) };
}

function holdsAll(t: Test, file: string, ids: readonly string[]): void {
  const records = recordsIn(file);
  const here = new Set(records.map(({ id }) => id));
  t.same(
    ids.filter((id) => !here.has(id)),
    [],
    "every record is there",
  );
  t.equal(here.size, records.length, "once");
  const done = records.filter(({ end }) => end !== null).length;
  t.same(ask(file, "SELECT sum(requests) FROM cells WHERE slot > 0"), [[done]], "each is counted once");
  t.same(ask(file, "SELECT sum(requests) FROM cells WHERE slot = 0"), [[1]], "and so is what was pruned");
  t.ok(isSound(file));
}

const asides = (file: string) =>
  readdirSync(dirname(file)).filter((name) => !/^usage\.db(-wal|-shm|-slips)?$/.test(name));

for (const [what, sides] of [
  ["with all that belongs to it", ["", "-wal", "-shm", "-slips"]],
  ["alone", [""]],
] as const)
  t.test(`a log that is deleted ${what} while it is open is saved into a new one`, async (t) => {
    const { file, ids } = filled(t, 1500);
    const { ledger, log } = startLedger(t, { file });
    const [done, running] = [opening(), opening()];
    await openAll(ledger, [done, running]);
    ledger.close(done.id, closing());
    await turn();
    for (const side of sides) unlinkSync(file + side);
    const totals = new Set<number>();
    let most = 0;
    await until("it is noticed", () => ledger.state().warnings.length > 0);
    await until("all is saved", () => {
      const { work } = ledger.state();
      if (work !== null && work.total > 0) totals.add(work.total);
      most = Math.max(most, work?.done ?? 0);
      return / were saved in it \(\d+\)/.test(ledger.state().warnings.join());
    });
    t.match(ledger.state().warnings, [
      /usage\.db is gone, noticed at .*: a new one was begun, and the earlier records/,
    ]);
    t.equal(ledger.state().warnings.length, 1);
    t.same([...totals], [1502], "it said how far it was");
    t.ok(most > 0 && most < 1502);
    t.equal(ledger.state().work, null);
    t.same(ledger.state().aside, []);
    ledger.close(running.id, closing());
    await turn();
    holdsAll(t, file, [...ids, done.id, running.id]);
    t.match(log(), /taken away while it was open/);
    t.equal(statSync(file).mode & 0o777, 0o600);
    t.same(asides(file), [], "nothing else is left lying about");
    await ledger.stop();
    const { ledger: again } = startLedger(t, { file });
    t.same(again.state().warnings, [], "at the next start there is nothing left to say");
    holdsAll(t, file, [...ids, done.id, running.id]);
  });

t.test("deleted again before all was saved, still nothing is lost", async (t) => {
  const { file, ids } = filled(t, 1500);
  const { ledger } = startLedger(t, { file });
  await openAll(ledger, [opening()]);
  unlinkSync(file);
  await until("a part is saved", () => Number(ledger.state().work?.done) > 0);
  for (const side of ["", "-wal", "-shm"]) unlinkSync(file + side);
  await until("both are noticed", () => ledger.state().warnings.length === 2);
  await until("all is saved", () => ledger.state().work === null);
  holdsAll(t, file, ids);
});

t.test("stopped right after, it saves what can only be saved now", async (t) => {
  const { file, ids } = filled(t, 2000);
  const { ledger } = startLedger(t, { file });
  await openAll(ledger, [opening()]);
  rmSync(file);
  await ledger.stop();
  holdsAll(t, file, ids);
});

t.test("killed before all was saved, the next start says so once", async (t) => {
  const { file } = filled(t, 10);
  const book = openBook(file, "normal");
  const fact = { salvage: "under way", saved: 7, unreadable: 0, next: 3, deleted: `${file} is gone` };
  book.transact((rows) => rows.setFact("salvage:deleted-1", JSON.stringify(fact)));
  book.abandon();
  const first = startLedger(t, { file });
  t.match(first.ledger.state(), {
    warnings: [/is gone: a new one was begun. 7 earlier records were saved in it, the others are gone/],
    work: null,
    aside: [],
  });
  t.match(first.log(), /ended before all was saved/);
  await first.ledger.stop();
  const second = startLedger(t, { file });
  t.same(second.ledger.state().warnings, []);
  t.notMatch(second.log(), /ended before/);
});

t.test("a log that is moved to another name stays there, whole, and is not copied back", async (t) => {
  const { file, ids } = filled(t, 300);
  const { ledger } = startLedger(t, { file });
  const last = opening();
  await openAll(ledger, [last]);
  const old = `${file}.2025`;
  renameSync(file, old);
  await until("it is noticed", () => ledger.state().warnings.length > 0);
  t.same(asides(file), ["usage.db.2025"]);
  t.match(ledger.state().warnings, [/was moved to .*usage\.db\.2025.*the earlier records lie there/]);
  t.same(
    recordsIn(old).map(({ id }) => id),
    [...ids, last.id],
  );
  t.same(
    recordsIn(file).map(({ id }) => id),
    [last.id],
    "only what is under way",
  );
  t.equal(ledger.state().work, null);
  t.ok(isSound(old));
  t.ok(isSound(file));
});

t.test("a backup without its WAL is not read together with the WAL of the log before", async (t) => {
  const { file } = filled(t, 300);
  const backup = join(newFolder(t), "usage.db");
  const kept = fill(backup, 100);
  const { ledger } = startLedger(t, { file });
  await openAll(ledger, [opening()]);
  t.ok(statSync(`${file}-wal`).size > 0);
  renameSync(backup, file);
  await until("it is noticed", () => ledger.state().warnings.length > 0);
  t.equal(recordsIn(file).length, kept.length + 1, "it holds what was put there, and what is under way");
  t.same(ledger.state().aside, []);
  t.ok(isSound(file));
});

t.test("a folder that is moved away and back is the same log, and nothing is counted twice", async (t) => {
  const { file, ids } = filled(t, 300);
  const folder = dirname(file);
  const { ledger } = startLedger(t, { file });
  await openAll(ledger, [opening()]);
  renameSync(folder, `${folder}-away`);
  await until("it is noticed", () => !ledger.available());
  renameSync(`${folder}-away`, folder);
  await until("it is back", () => ledger.available());
  await turn();
  t.same([ledger.state().warnings, ledger.state().work], [[], null]);
  holdsAll(t, file, ids);
});

t.test("a folder that was deleted and made anew gets the records back", async (t) => {
  const { file, ids } = filled(t, 300);
  const { ledger } = startLedger(t, { file });
  await openAll(ledger, [opening()]);
  rmSync(dirname(file), { recursive: true });
  await until("it is noticed", () => !ledger.available());
  mkdirSync(dirname(file), { mode: 0o700 });
  await until("all is saved", () => / were saved in it/.test(ledger.state().warnings.join()));
  t.ok(existsSync(file));
  holdsAll(t, file, ids);
});

t.test("a copy of a log beside it is not taken for the log", async (t) => {
  const { file, ids } = filled(t, 300);
  copyFileSync(file, `${file}.copy`);
  const { ledger } = startLedger(t, { file });
  await openAll(ledger, [opening()]);
  rmSync(file);
  await until("all is saved", () => / were saved in it/.test(ledger.state().warnings.join()));
  holdsAll(t, file, ids);
});
