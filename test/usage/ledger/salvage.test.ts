import { closeSync, openSync, readdirSync, renameSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import Database from "libsql";
import t, { type Test } from "tap";
import type { Ledger } from "../../../src/usage/ledger/ledger.ts";
import { openBook } from "../../../src/usage/ledger/writing/book.ts";
import { until } from "../../doubles/until.ts";
import { ask, closing, isSound, newFolder, opening, recordsIn, startLedger } from "./ledger-under-test.ts";

const PAGE = 4096;

/** A log whose first half was pruned, with a page of records overwritten. */
function damaged(t: Test, count: number): string {
  const file = join(newFolder(t), "usage.db");
  const book = openBook(file, "normal");
  book.write(
    Array.from({ length: 2 * count }, (_, at) => {
      const started_at = 1_763_164_800_000 + at * 60_000;
      return { kind: "add", opening: opening({ started_at }), closing: closing() } as const;
    }),
  );
  book.connection.db.exec(`DELETE FROM log.records WHERE seq <= ${count}; DELETE FROM log.cells`);
  book.abandon();
  const pages = ask(
    file,
    "SELECT pageno FROM dbstat('log') WHERE name = 'records' AND pagetype = 'leaf' ORDER BY pageno",
  );
  const fd = openSync(file, "r+");
  writeSync(fd, Buffer.alloc(PAGE, 0xa5), 0, PAGE, (Number(pages[2]) - 1) * PAGE);
  closeSync(fd);
  return file;
}

/** Starts the salvage, and stops it on its way. Answers what was kept aside. */
async function halfway(t: Test, file: string): Promise<string> {
  const { ledger } = startLedger(t, { file });
  await until("a part is saved", () => Number(ledger.state().aside[0]?.saved) > 100);
  await ledger.stop();
  const aside = readdirSync(dirname(file)).find((name) => /corrupt-\w+$/.test(name));
  if (aside === undefined) throw new Error("nothing was kept aside");
  return join(dirname(file), aside);
}

async function ended(ledger: Ledger): Promise<void> {
  await until("it ended", () => ledger.state().aside.every(({ salvage }) => salvage !== "under way"));
}

t.test("how far a salvage is, is told by what there is, not by what was pruned long ago", async (t) => {
  const file = damaged(t, 4000);
  const { ledger } = startLedger(t, { file });
  const seen: { readonly done: number; readonly total: number }[] = [];
  await until("it ended", () => {
    const { work } = ledger.state();
    if (work !== null && work.total > 0) seen.push(work);
    return ledger.state().aside.every(({ salvage }) => salvage !== "under way");
  });
  t.ok(seen.length > 2, `seen ${seen.length} times`);
  t.same(new Set(seen.map(({ total }) => total)), new Set([4000]));
  t.ok(Number(seen.at(-1)?.done) > 2000, `${seen.at(-1)?.done} when it was last seen`);
  t.ok(seen.every(({ done }) => done >= 0 && done < 4000));
  t.ok(recordsIn(file).length > 3900);
});

t.test("a file that is locked for a while is salvaged when it is free", async (t) => {
  const file = damaged(t, 3000);
  const aside = await halfway(t, file);
  const before = recordsIn(file).length;
  const other = new Database(aside);
  other.exec("PRAGMA locking_mode = exclusive; BEGIN EXCLUSIVE");
  const { ledger, log } = startLedger(t, { file });
  // Its timer for another try, of a second, is in this process too, and timers go off in order.
  await wait(1500);
  t.match(ledger.state().aside, [{ salvage: "under way" }]);
  t.equal(recordsIn(file).length, before);
  t.notMatch(log(), /nothing more can be saved/);
  t.equal(ledger.available(), true, "which is no matter of the log in use");
  other.exec("ROLLBACK; PRAGMA locking_mode = normal; SELECT count(*) FROM sqlite_schema");
  other.close();
  await ended(ledger);
  t.match(ledger.state().aside, [{ salvage: "done" }]);
  const found = recordsIn(file).length;
  t.ok(found > 2900 && found < 3000, `${found} of 3000`);
  t.same(ask(file, "SELECT sum(requests) FROM cells"), [[found]]);
  t.ok(isSound(file));
});

t.test("a file that its owner has put away is not waited for", async (t) => {
  const file = damaged(t, 3000);
  const aside = await halfway(t, file);
  renameSync(aside, join(newFolder(t), "away.db"));
  const { ledger, log } = startLedger(t, { file });
  await until("it is given up", () => ledger.state().work === null);
  t.same(ledger.state().aside, [], "and not told of");
  t.match(log(), /nothing more can be saved from the old usage log/);
  t.ok(recordsIn(file).length > 100, "what was saved stays");
});
