import {
  closeSync,
  copyFileSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import t, { type Test } from "tap";
import { createTally, FOLDED_SLOT } from "../../../src/usage/ledger/cells.ts";
import { openForWriting } from "../../../src/usage/ledger/connect.ts";
import { createRows, transact } from "../../../src/usage/ledger/rows.ts";
import type { UsageRecord } from "../../../src/usage/record.ts";
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

const PAGE = 4096;

/** A finished log of so many records, one a minute. */
function filled(t: Test, count: number): { readonly file: string; readonly records: readonly UsageRecord[] } {
  const file = join(newFolder(t), "usage.db");
  const { db, close } = openForWriting(file, { sync: "normal" });
  const rows = createRows(db);
  const records = Array.from({ length: count }, (_, at): UsageRecord => {
    const started_at = 1_763_164_800_000 + at * 60_000;
    return { ...opening({ started_at }), ...closing(), model: "m", billed_microdollars: null };
  });
  transact(db, () => {
    const tally = createTally();
    for (const record of records) {
      rows.insert(record);
      tally.count(record);
    }
    rows.count(tally);
  });
  close();
  return { file, records };
}

function overwrite(file: string, at: number, bytes: Buffer): void {
  const fd = openSync(file, "r+");
  writeSync(fd, bytes, 0, bytes.length, at);
  closeSync(fd);
}

/** The pages of a table, or of an index, by its name. */
function pagesOf(file: string, name: string): number[] {
  return ask(
    file,
    `SELECT pageno FROM dbstat('log') WHERE name = '${name}' AND pagetype = 'leaf' ORDER BY pageno`,
  )
    .flat()
    .map(Number);
}

function asideIn(file: string): string[] {
  return readdirSync(dirname(file)).filter((name) => /^usage\.db\.corrupt-\d{8}T\d{6}Z(-\d+)?$/.test(name));
}

async function salvaged(ledger: {
  state(): { readonly aside: readonly { readonly salvage: string }[] };
}): Promise<void> {
  await until("the salvage ends", () => ledger.state().aside.every(({ salvage }) => salvage !== "under way"));
}

t.test("a page of records that was overwritten costs these records only", async (t) => {
  const { file, records } = filled(t, 2000);
  const pages = pagesOf(file, "records");
  const damaged = [pages[3], pages[Math.floor(pages.length / 2)], pages.at(-1)].map(Number);
  for (const page of damaged) overwrite(file, (page - 1) * PAGE, Buffer.alloc(PAGE, 0xa5));
  const bytes = readFileSync(file);
  const { ledger, log } = startLedger(t, { file });
  t.equal(ledger.available(), true, "requests are served at once");
  const [aside] = asideIn(file);
  if (aside === undefined) throw new Error("nothing was kept aside");
  t.ok(bytes.equals(readFileSync(join(dirname(file), aside))), "what was found is kept as it was");
  const now = opening();
  await openAll(ledger, [now]);
  await salvaged(ledger);
  const found = new Map(recordsIn(file).map((record) => [record.id, record]));
  const saved = records.filter(({ id }) => found.has(id));
  t.ok(saved.length > 1900 && saved.length < 2000, `${saved.length} of 2000 were saved`);
  for (const record of saved)
    if (!isDeepStrictEqual({ ...found.get(record.id) }, { ...record })) t.fail(record.id);
  t.equal(ledger.state().aside[0]?.saved, saved.length);
  t.ok(Number(ledger.state().aside[0]?.unreadable) > 0);
  t.ok(found.has(now.id));
  t.same(ask(file, "SELECT sum(requests) FROM cells"), [[saved.length]], "and counted");
  const times = recordsIn(file).map(({ started_at }) => started_at);
  t.same(
    times,
    times.toSorted((a, b) => a - b),
    "still in the order in which they began",
  );
  t.match(log(), /is damaged: it was kept aside/);
  t.ok(isSound(file));
});

t.test("whatever page is overwritten: requests are served, and nothing is deleted", async (t) => {
  const { file: good, records } = filled(t, 400);
  const pages = statSync(good).size / PAGE;
  for (const page of [1, 2, 3, 4, 5, Math.floor(pages / 2), pages - 1, pages]) {
    const file = join(newFolder(t), "usage.db");
    copyFileSync(good, file);
    overwrite(
      file,
      (page - 1) * PAGE,
      Buffer.from(Array.from({ length: PAGE }, (_, i) => (i * 7 + page) % 256)),
    );
    const bytes = readFileSync(file);
    const { ledger } = startLedger(t, { file });
    t.equal(ledger.available(), true, `page ${page}`);
    const one = opening();
    await openAll(ledger, [one]);
    ledger.close(one.id, closing());
    await turn();
    await salvaged(ledger);
    const ids = new Set(recordsIn(file).map(({ id }) => id));
    t.ok(ids.has(one.id));
    const kept = asideIn(file);
    if (kept.length > 0) t.ok(bytes.equals(readFileSync(join(dirname(file), String(kept[0])))));
    else
      t.ok(
        records.every(({ id }) => ids.has(id)),
        "a page that held nothing",
      );
    t.ok(isSound(file));
    await ledger.stop();
  }
});

t.test("a file that is no database any more is kept aside, and said to be beyond saving", async (t) => {
  const file = join(newFolder(t), "usage.db");
  writeFileSync(file, "not a database ".repeat(1000));
  const { ledger } = startLedger(t, { file });
  t.equal(ledger.available(), true);
  await salvaged(ledger);
  t.match(ledger.state().aside, [{ salvage: "not possible", saved: 0 }]);
  t.equal(asideIn(file).length, 1);
});

t.test("an emptied file with a WAL is kept aside together with it", async (t) => {
  const { ledger: writer, file: source } = startLedger(t);
  await openAll(writer, [opening()]);
  const file = join(newFolder(t), "usage.db");
  copyFileSync(`${source}-wal`, `${file}-wal`);
  writeFileSync(file, "");
  const wal = readFileSync(`${file}-wal`);
  const { ledger } = startLedger(t, { file });
  t.equal(ledger.available(), true);
  const [aside] = asideIn(file);
  t.ok(wal.equals(readFileSync(join(dirname(file), `${aside}-wal`))));
  await openAll(ledger, [opening()]);
});

t.test("a WAL that was cut short costs what was cut off, nothing more", async (t) => {
  // Each in a transaction of its own.
  const { ledger: writer, file: source } = startLedger(t, { sync: "full" });
  const openings = Array.from({ length: 40 }, () => opening());
  for (const one of openings) await openAll(writer, [one]);
  const file = join(newFolder(t), "usage.db");
  copyFileSync(source, file);
  copyFileSync(`${source}-wal`, `${file}-wal`);
  truncateSync(`${file}-wal`, Math.floor(statSync(`${file}-wal`).size * 0.6) + 17);
  const { ledger } = startLedger(t, { file });
  t.equal(ledger.available(), true);
  await salvaged(ledger);
  const found = recordsIn(file);
  t.ok(found.length > 5 && found.length < 40, `${found.length} of 40 are left`);
  t.same(
    found.map(({ id }) => id),
    openings.slice(0, found.length).map(({ id }) => id),
    "the oldest ones",
  );
  t.ok(isSound(file));
});

t.test("damage while it is open is noticed, and the requests under way go on", async (t) => {
  const { file, records } = filled(t, 3000);
  const { ledger, log } = startLedger(t, { file });
  const running = Array.from({ length: 10 }, () => opening());
  await openAll(ledger, running);
  // Every page of the id's index, so that the next insertion meets one; from the last one opened on nothing is cached.
  for (const page of pagesOf(file, "sqlite_autoindex_records_1"))
    overwrite(file, (page - 1) * PAGE, Buffer.alloc(PAGE, 0x5a));
  for (const page of pagesOf(file, "records_by_tool"))
    overwrite(file, (page - 1) * PAGE, Buffer.alloc(PAGE, 0x5a));
  const later: string[] = [];
  await until("it is noticed", async () => {
    const one = opening({ started_at: 1_763_164_800_000 + Math.floor(Math.random() * 180_000_000) });
    if (await ledger.open(one)) later.push(one.id);
    return asideIn(file).length > 0;
  });
  for (const { id } of running) ledger.close(id, closing());
  await turn();
  await salvaged(ledger);
  t.equal(ledger.available(), true);
  const ends = new Map(recordsIn(file).map(({ id, end }) => [id, end]));
  for (const { id } of running) t.equal(ends.get(id), "complete");
  t.same(
    later.filter((id) => !ends.has(id)),
    [],
    "no opening that was let through is lost",
  );
  t.ok(records.filter(({ id }) => ends.has(id)).length > 2900, "nor the records, whose own pages are fine");
  t.match(log(), /is damaged/);
  t.ok(isSound(file));
});

t.test("a file that is emptied while it is open is noticed without a request", async (t) => {
  const { ledger, file } = startLedger(t);
  const running = opening();
  await openAll(ledger, [running]);
  truncateSync(file, 0);
  await until("it is noticed", () => asideIn(file).length > 0);
  ledger.close(running.id, closing());
  await turn();
  t.equal(ledger.available(), true);
  t.match(recordsIn(file), [{ id: running.id, end: "complete" }]);
});

t.test("a salvage that was cut off goes on at the next start", async (t) => {
  const { file, records } = filled(t, 2500);
  overwrite(file, (Number(pagesOf(file, "records")[1]) - 1) * PAGE, Buffer.alloc(PAGE, 1));
  const first = startLedger(t, { file });
  await until("a part is saved", () => Number(first.ledger.state().aside[0]?.saved) > 200);
  t.match(first.ledger.state().work, { what: "salvage" });
  await first.ledger.stop();
  const before = recordsIn(file).length;
  t.ok(before < 2400, `${before} so far`);
  const second = startLedger(t, { file });
  t.equal(second.ledger.state().aside[0]?.salvage, "under way");
  await salvaged(second.ledger);
  const found = recordsIn(file).length;
  t.ok(found > 2450 && found < records.length, `${found} in the end`);
  t.same(ask(file, "SELECT sum(requests) FROM cells"), [[found]], "each counted once");
  await second.ledger.stop();
  const third = startLedger(t, { file });
  t.match(third.ledger.state().aside, [{ salvage: "done", saved: found }], "and still told of");
  t.equal(third.ledger.state().work, null);
});

t.test("the sums of what was pruned long ago are saved as well, once", async (t) => {
  const { file } = filled(t, 300);
  const { db, close } = openForWriting(file, { sync: "normal" });
  transact(db, () => {
    const tally = createTally();
    const record: UsageRecord = { ...opening(), ...closing(), model: "m", billed_microdollars: null };
    const whole = createTally();
    whole.count(record);
    for (const cell of whole.cells()) tally.add({ ...cell, slot: FOLDED_SLOT });
    createRows(db).count(tally);
  });
  close();
  overwrite(file, (Number(pagesOf(file, "records").at(-1)) - 1) * PAGE, Buffer.alloc(PAGE, 1));
  const { ledger } = startLedger(t, { file });
  await salvaged(ledger);
  t.same(ask(file, "SELECT requests, cost_microdollars FROM cells WHERE slot = 0"), [[1, 8130]]);
});

t.test("two damaged files in the same second are both kept", async (t) => {
  const file = join(newFolder(t), "usage.db");
  const clock = { now: () => 1_763_164_800_000, elapsed: () => performance.now() };
  for (const text of ["first ", "second "]) {
    writeFileSync(file, text.repeat(100));
    const { ledger } = startLedger(t, { file, clock });
    await salvaged(ledger);
    await ledger.stop();
    if (text === "first ") for (const side of ["", "-wal", "-shm"]) writeFileSync(file + side, "");
  }
  const kept = asideIn(file).map((name) => readFileSync(join(dirname(file), name), "utf8").slice(0, 6));
  t.same(kept.toSorted(), ["first ", "second"]);
  t.ok(existsSync(file));
});
