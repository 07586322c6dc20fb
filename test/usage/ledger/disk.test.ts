import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import t from "tap";
import { openForReading, openForWriting } from "../../../src/usage/ledger/connect.ts";
import { asOrdinaryUser } from "../../doubles/ordinary-user.ts";
import { until } from "../../doubles/until.ts";
import {
  closing,
  heldBeat,
  isSound,
  newFolder,
  openAll,
  opening,
  REFUSED,
  recordsIn,
  startLedger,
  turn,
} from "./ledger-under-test.ts";

t.test("a file that was deleted is begun anew, with everything that was under way", async (t) => {
  const { ledger, file, log } = startLedger(t);
  const [old, running] = [opening(), opening()];
  await openAll(ledger, [old, running]);
  ledger.close(old.id, closing());
  await turn();
  await until("the file was seen in its place", () => statSync(file).size > 0);
  unlinkSync(file);
  unlinkSync(`${file}-wal`);
  unlinkSync(`${file}-shm`);
  // Before it is noticed: must not vanish with the file.
  const quick = opening();
  await openAll(ledger, [quick]);
  ledger.close(quick.id, closing());
  await until("it is noticed", () => existsSync(file) && ledger.state().warnings.length > 0);
  t.match(ledger.state(), { condition: "ok", warnings: [/usage\.db is gone/] });
  t.match(log(), /taken away while it was open/);
  const here = () => new Map(recordsIn(file).map(({ id, end }) => [id, end]));
  t.equal(here().get(running.id), null, "what runs is in the new file at once");
  t.equal(here().get(quick.id), "complete", "and what ended meanwhile");
  ledger.close(running.id, closing());
  const next = opening();
  await openAll(ledger, [next]);
  t.equal(here().get(running.id), "complete");
  t.equal(here().get(next.id), null);
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.ok(isSound(file));
});

t.test("a WAL that was deleted costs nothing", async (t) => {
  const beat = heldBeat();
  const { ledger, file } = startLedger(t, { beat });
  const openings = Array.from({ length: 30 }, () => opening());
  await openAll(ledger, openings);
  for (const one of openings.splice(0, 10)) ledger.close(one.id, closing());
  await turn();
  // The file was seen in its place since then, so that none of it is kept in memory for such a case.
  beat.pass();
  // Somebody who reads keeps the log from being taken over into the file when it is closed.
  const reader = openForReading(file);
  if (!reader.ok) throw new Error(reader.words);
  reader.connection.db.prepare("SELECT count(*) FROM records").raw().get();
  unlinkSync(`${file}-wal`);
  beat.pass();
  t.match(ledger.state().warnings, [/-wal is gone.*nothing is missing/]);
  reader.connection.close();
  for (const one of openings) ledger.close(one.id, closing());
  await turn();
  await ledger.stop();
  const { ledger: again } = startLedger(t, { file });
  t.ok(again.available());
  t.equal(recordsIn(file).filter(({ end }) => end === "complete").length, 30);
  t.ok(isSound(file));
});

t.test("a copy that is put back is used as it is, its WAL too", async (t) => {
  const { ledger, file } = startLedger(t);
  // A copy made while its writer was open has a part of its records in the WAL only.
  const copy = join(newFolder(t), "usage.db");
  const writer = startLedger(t);
  const kept = Array.from({ length: 5 }, () => opening());
  await openAll(writer.ledger, kept);
  for (const side of ["", "-wal"]) copyFileSync(writer.file + side, copy + side);
  const running = opening();
  await openAll(ledger, [running]);
  renameSync(`${copy}-wal`, `${file}-wal`);
  renameSync(copy, file);
  await until("it is noticed", () => ledger.state().warnings.length > 0);
  const ends = new Map(recordsIn(file).map(({ id, end }) => [id, end]));
  t.equal(ends.size, 6);
  for (const { id } of kept) t.equal(ends.get(id), "interrupted");
  t.equal(ends.get(running.id), null);
  t.match(ledger.state().warnings, [/was replaced by another file.*records that only the earlier file held/]);
  t.equal(ledger.state().work, null, "nothing is put into it that was not there");
  t.ok(isSound(file));
});

t.test("without its folder the log is unavailable; with it, it goes on by itself", async (t) => {
  const { ledger, file, log } = startLedger(t);
  const folder = dirname(file);
  const [before, during] = [opening(), opening()];
  await openAll(ledger, [before, during]);
  renameSync(folder, `${folder}-away`);
  await until("it is noticed, although nobody asked", () => !ledger.available());
  t.match(ledger.state(), { condition: "unavailable", reason: /folder is gone/, next: /look at/, lost: 0 });
  t.equal(await ledger.open(opening()), false);
  ledger.close(during.id, closing());
  ledger.add(opening(), REFUSED);
  await turn();
  t.equal(ledger.state().waiting, 2);
  const since = ledger.state().since;
  renameSync(`${folder}-away`, folder);
  await until("it is back", () => ledger.available());
  t.ok(since !== null && ledger.state().since === null);
  t.equal(ledger.state().waiting, 0);
  t.same(
    recordsIn(file).map(({ end }) => end),
    [null, "complete", "refused"],
  );
  t.same(ledger.state().warnings, [], "nothing happened to its records");
  t.match(log(), /unavailable: requests are refused/);
  t.match(log(), /can be written again/);
  t.equal(log().match(/unavailable/g)?.length, 1, "said once, not every second");
  t.ok(isSound(file));
});

t.test("while nothing can be written a bounded number waits, and refusals give way first", async (t) => {
  const { ledger, file, log } = startLedger(t);
  const folder = dirname(file);
  const running = Array.from({ length: 1050 }, () => opening());
  await openAll(ledger, running);
  renameSync(folder, `${folder}-away`);
  await until("it is noticed", () => !ledger.available());
  for (const { id } of running.slice(0, 900)) ledger.close(id, closing());
  for (let i = 0; i < 300; i += 1) ledger.add(opening(), REFUSED);
  t.match(ledger.state(), { waiting: 1000, lost: 0, refusalsLost: 200 });
  for (const { id } of running.slice(900)) ledger.close(id, closing());
  t.match(ledger.state(), { waiting: 1000, lost: 50, refusalsLost: 300 });
  renameSync(`${folder}-away`, folder);
  await until("it is back", () => ledger.available());
  const ends = recordsIn(file).map(({ end }) => end);
  t.equal(ends.filter((end) => end === "complete").length, 1000);
  t.equal(ends.filter((end) => end === "refused").length, 0);
  t.equal(ends.filter((end) => end === "interrupted").length, 50, "what was lost is not left running");
  t.match(log(), /"records":50,"msg":"usage records were lost"/);
  t.match(log(), /"level":40.*"refusals":300,"msg":"refusals were not recorded"/);
});

t.test("what waits is bounded by its size, too", async (t) => {
  const { ledger, file } = startLedger(t);
  const running = Array.from({ length: 40 }, () => opening());
  await openAll(ledger, running);
  renameSync(dirname(file), `${dirname(file)}-away`);
  await until("it is noticed", () => !ledger.available());
  const gateway_ids = { "x-request-id": "i".repeat(100_000) };
  for (const { id } of running) ledger.close(id, closing({ gateway_ids }));
  const { waiting, lost } = ledger.state();
  t.ok(waiting > 10 && waiting < 30, `${waiting} wait`);
  t.equal(waiting + lost, 40);
  renameSync(`${dirname(file)}-away`, dirname(file));
  await until("it is back", () => ledger.available());
});

t.test("a log that cannot be opened at the start is opened as soon as it can be", async (t) => {
  const folder = join(newFolder(t), "later");
  const file = join(folder, "usage.db");
  const { ledger } = startLedger(t, { file });
  t.equal(ledger.available(), false);
  t.equal(await ledger.open(opening()), false);
  mkdirSync(folder);
  await until("it is there", () => ledger.available());
  await openAll(ledger, [opening()]);
  t.equal(recordsIn(file).length, 1);
});

t.test("a newer log is left alone, said so, and requests are served once it is moved away", async (t) => {
  const file = join(newFolder(t), "usage.db");
  const writer = openForWriting(file, { sync: "normal" });
  writer.db.exec("PRAGMA log.user_version = 99");
  writer.close();
  const before = readFileSync(file);
  const beat = heldBeat();
  const { ledger } = startLedger(t, { file, beat });
  t.match(ledger.state(), { condition: "unavailable", reason: /newer keybearer/, next: /update keybearer/ });
  beat.pass();
  t.ok(before.equals(readFileSync(file)), "also after it was tried again");
  renameSync(file, `${file}.newer`);
  beat.pass();
  t.ok(ledger.available(), "a new one was begun");
  t.same(ledger.state().aside, [], "that was no damage");
});

t.test("a folder that cannot be written to is said in words", async (t) => {
  const folder = newFolder(t);
  const file = join(folder, "usage.db");
  writeFileSync(join(folder, "something"), "");
  chmodSync(folder, 0o500);
  asOrdinaryUser(t, folder);
  const { ledger } = startLedger(t, { file });
  t.match(ledger.state(), { condition: "unavailable", reason: /folder cannot be written to/ });
  chmodSync(folder, 0o700);
  await until("it is there", () => ledger.available());
  rmSync(join(folder, "something"));
});
