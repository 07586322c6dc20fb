import { statSync } from "node:fs";
import t from "tap";
import { type Clock, systemClock } from "../../../src/clock.ts";
import { openForReading, openForWriting } from "../../../src/usage/ledger/connect.ts";
import { until } from "../../doubles/until.ts";
import {
  closing,
  isSound,
  openAll,
  opening,
  REFUSED,
  recordsIn,
  startLedger,
  turn,
} from "./ledger-under-test.ts";

/** Patience passes only when told to. */
function heldPatience(): Clock & { pass(ms: number): void } {
  let elapsed = 0;
  return {
    now: systemClock.now,
    elapsed: () => elapsed,
    pass(ms) {
      elapsed += ms;
    },
  };
}

/** Another program that writes, and does not come to an end. */
function holdLock(file: string): () => void {
  const { db, close } = openForWriting(file, { sync: "normal" });
  db.exec("BEGIN IMMEDIATE; INSERT INTO log.facts VALUES ('held', 'x')");
  return () => {
    db.exec("ROLLBACK");
    close();
  };
}

// The lock is given back by this very event loop: a writer that stood still until it has it would have it never.
t.test("while another program holds the lock the event loop runs on, and nothing is lost", async (t) => {
  const clock = heldPatience();
  const { ledger, file } = startLedger(t, { clock });
  const running = Array.from({ length: 20 }, () => opening());
  await openAll(ledger, running);
  const release = holdLock(file);
  const late = Array.from({ length: 20 }, () => opening());
  const written = late.map((one) => ledger.open(one));
  for (const one of running) ledger.close(one.id, closing());
  ledger.add(opening(), REFUSED);
  await until("the lock is noticed", () => ledger.state().waiting === 21);
  clock.pass(3000);
  // It is tried every 50 ms.
  for (let tries = 0; tries < 4; tries += 1) await turn();
  t.equal(ledger.available(), true, "three seconds are waited out");
  t.equal(ledger.state().waiting, 21);
  t.equal(recordsIn(file).length, 20, "and nothing is there before its time");
  release();
  t.same(new Set(await Promise.all(written)), new Set([true]));
  await until("all of it is there", () => recordsIn(file).length === 41 && ledger.state().waiting === 0);
  t.equal(recordsIn(file).filter(({ end }) => end === "complete").length, 20);
  t.same([ledger.state().waiting, ledger.state().lost], [0, 0]);
  t.ok(isSound(file));
});

t.test("an opening gives up after five seconds, and the log comes back by itself", async (t) => {
  const clock = heldPatience();
  const { ledger, file, log } = startLedger(t, { sync: "full", clock });
  const [running, late] = [opening(), opening()];
  await openAll(ledger, [running]);
  const release = holdLock(file);
  let written: boolean | undefined;
  void Promise.resolve(ledger.open(late)).then((answer) => {
    written = answer;
  });
  ledger.close(running.id, closing());
  await until("the lock is noticed", () => ledger.state().waiting === 1);
  clock.pass(4999);
  for (let tries = 0; tries < 4; tries += 1) await turn();
  t.equal(written, undefined, "not before");
  clock.pass(1);
  await until("it gives up", () => written !== undefined);
  t.equal(written, false);
  await until("it is unavailable", () => !ledger.available());
  t.match(ledger.state(), { condition: "unavailable", reason: /another program holds the lock/, waiting: 1 });
  t.match(ledger.state().next, /close the program/);
  t.equal(await ledger.open(opening()), false, "at once");
  release();
  await until("it is back", () => ledger.available());
  t.match(recordsIn(file), [{ id: running.id, end: "complete" }]);
  t.equal(recordsIn(file).length, 1, "what was given up is not written later");
  t.match(log(), /can be written again/);
});

t.test("a log that is locked at the start is opened when it is free", async (t) => {
  const first = startLedger(t);
  await openAll(first.ledger, [opening()]);
  await first.ledger.stop();
  const release = holdLock(first.file);
  const { ledger } = startLedger(t, { file: first.file });
  const one = opening();
  const written = ledger.open(one);
  release();
  t.equal(await written, true);
  t.same(
    recordsIn(first.file).map(({ end }) => end),
    ["interrupted", null],
  );
});

t.test("a reader that does not end lets the WAL grow, is told of, and leaves it bounded", async (t) => {
  const { ledger, file } = startLedger(t);
  await openAll(ledger, [opening()]);
  const reader = openForReading(file);
  if (!reader.ok) throw new Error(reader.words);
  reader.connection.db.exec("BEGIN");
  reader.connection.db.prepare("SELECT count(*) FROM records").raw().get();
  // Long names fill it sooner than many records.
  const process = "x".repeat(60_000);
  for (let i = 0; i < 60; i += 1) {
    for (let j = 0; j < 20; j += 1) ledger.add(opening({ process }), REFUSED);
    await turn();
  }
  t.ok(statSync(`${file}-wal`).size > 64 * 1024 * 1024);
  t.match(ledger.state(), { condition: "ok", warnings: [/-wal has grown to \d+ MB.*close that program/] });
  reader.connection.close();
  await until("it is cut back", async () => {
    ledger.add(opening(), REFUSED);
    await turn();
    return statSync(`${file}-wal`).size < 64 * 1024 * 1024;
  });
  t.same(ledger.state().warnings, []);
});
