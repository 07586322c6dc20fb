import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { dayOf } from "../../src/usage/journal/files.ts";
import { Maintenance } from "../../src/usage/maintenance.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { DAY, heldTicker, NOON, newFolder, setClock } from "./journal/journal-under-test.ts";

const CURRENT = { current: true, share: 1, rebuilding: false, waitingFor: null, damagedLines: 0 };

function maintained(
  t: Test,
  { days, passed = () => true }: { days: number; passed?: (day: string) => boolean },
) {
  const folder = join(newFolder(t), "usage");
  mkdirSync(folder);
  const names = Array.from({ length: days }, (_, n) => dayOf(NOON - (days - 1 - n) * DAY));
  for (const day of names) writeFileSync(join(folder, `${day}.jsonl`), `{"day":"${day}"}\n`.repeat(100));
  const clock = setClock();
  const maintenance = new Maintenance({
    folder,
    clock,
    ticker: heldTicker(),
    log: quietLog(),
    keep: () => 3 * DAY,
    journal: { day: names.at(-1) ?? null },
    indexer: { catchUp: async () => CURRENT, hasPassed: passed },
  });
  t.teardown(() => maintenance.stop());
  return { folder, names, clock, maintenance };
}

t.test("days that the index has passed are gzipped, the current one never", async (t) => {
  const { folder, names, maintenance } = maintained(t, {
    days: 3,
    passed: (day) => day !== dayOf(NOON - DAY),
  });
  const before = readFileSync(join(folder, `${names[0]}.jsonl`));
  await maintenance.run();
  t.strictSame(readdirSync(folder), [`${names[0]}.jsonl.gz`, `${names[1]}.jsonl`, `${names[2]}.jsonl`]);
  t.ok(gunzipSync(readFileSync(join(folder, `${names[0]}.jsonl.gz`))).equals(before));
});

t.test("a run that was cut off is done again", async (t) => {
  const { folder, names, maintenance } = maintained(t, { days: 2 });
  writeFileSync(join(folder, `${names[0]}.jsonl.gz`), "half a file");
  writeFileSync(join(folder, `${names[0]}.jsonl.gz.tmp`), "another half");
  await maintenance.run();
  t.notOk(existsSync(join(folder, `${names[0]}.jsonl`)));
  t.notOk(existsSync(join(folder, `${names[0]}.jsonl.gz.tmp`)));
  t.match(gunzipSync(readFileSync(join(folder, `${names[0]}.jsonl.gz`))).toString(), /"day"/);
});

t.test("a run deletes two days at most, the oldest first, and never the current one", async (t) => {
  const { folder, names, clock, maintenance } = maintained(t, { days: 8 });
  await maintenance.run();
  t.notOk(existsSync(join(folder, `${names[0]}.jsonl.gz`)));
  t.equal(readdirSync(folder).length, 6);
  // A clock that is wrong by years.
  clock.time = NOON + 4000 * DAY;
  await maintenance.run();
  t.equal(readdirSync(folder).length, 4);
  for (let n = 0; n < 5; n += 1) await maintenance.run();
  t.strictSame(readdirSync(folder), [`${names.at(-1)}.jsonl`]);
});

t.test("a run touches nothing but the journal's own files", async (t) => {
  const { folder, maintenance } = maintained(t, { days: 8 });
  for (const name of ["notes.txt", "2020-01-01.jsonl.mine", "2020-13-45.jsonl"])
    appendFileSync(join(folder, name), "mine");
  await maintenance.run();
  for (const name of ["notes.txt", "2020-01-01.jsonl.mine", "2020-13-45.jsonl"])
    t.equal(readFileSync(join(folder, name), "utf8"), "mine");
});
