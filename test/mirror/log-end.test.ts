import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Database from "libsql";
import pino from "pino";
import t, { type Test } from "tap";
import { writePrivate } from "../../src/keys/pins.ts";
import { createLogEnd, type LogEnd } from "../../src/mirror/log-end.ts";
import type { Gap } from "../../src/mirror/store/facts.ts";
import { holdKeys } from "../../src/mirror/store/held.ts";
import { linkKeys } from "../../src/mirror/store/keys.ts";
import { addUnwatched, readUnwatched } from "../../src/mirror/store/unwatched.ts";
import { createLedger, type Ledger } from "../../src/usage/ledger/ledger.ts";
import { createRows } from "../../src/usage/ledger/rows.ts";
import { record, slipOf } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";
import { heldClock } from "../keys/held-clock.ts";
import { AT, judgeAll, mirrorFile, page, row, verdicts } from "./mirror-file.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

interface Run {
  readonly ledger: Ledger;
  readonly logEnd: LogEnd;
  ask<T>(question: (db: Database.Database) => T): T;
  hold(): void;
  /** Writes a record that begins now, and answers when that is. */
  add(): number;
  unwatched(): readonly Gap[];
  stop(): Promise<void>;
  /** Ends without a word, but for what is in the log. */
  kill(): Promise<void>;
}

/** A home with a usage log that is started and ended on a clock that moves only when the test says so. */
function newHome(t: Test) {
  const folder = mkdtempSync(join(tmpdir(), "kb-end-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [file, stamp] = [join(folder, "usage.db"), join(folder, "log-end.json")];
  const clock = heldClock();
  const booted = clock.now() - HOUR;
  const log = pino({ level: "silent" });
  let count = 0;

  function start(bootedAt = booted, sync: "normal" | "full" = "normal"): Run {
    const ledger = createLedger({ file, clock, log, keep: () => 400 * 24 * HOUR, sync });
    const logEnd = createLogEnd({ file: stamp, clock, log, ledger, sync, bootedAt });
    const end = async (seals: boolean) => {
      const seal = logEnd.stop();
      await ledger.stop();
      if (seals) await seal();
    };
    let ended = false;
    const once = async (seals: boolean) => {
      if (!ended) await end(seals);
      ended = true;
    };
    t.teardown(() => once(false));
    const ask = <T>(question: (db: Database.Database) => T): T => {
      const answer = ledger.ask(question);
      if (answer === null) throw new Error("the log cannot be asked");
      return answer;
    };
    const hold = () =>
      void ledger.ask((db) => holdKeys(db, [{ gateway: "main", key: "…a1b2", tool: "codex" }], clock.now()));
    hold();
    return {
      ledger,
      logEnd,
      ask,
      hold,
      add() {
        const now = clock.now();
        count += 1;
        ask((db) => createRows(db).insert(record(count, { started_at: now })));
        return now;
      },
      unwatched: () => ask((db) => logEnd.unwatched(db)),
      stop: () => once(true),
      kill: () => once(false),
    };
  }

  const copy = (from: string, to: string) => {
    for (const end of ["", "-wal", "-shm"]) rmSync(to + end, { force: true });
    // By another process: closing the file in this one would end the log's locks.
    for (const end of ["", "-wal"]) if (existsSync(from + end)) execFileSync("cp", [from + end, to + end]);
  };
  return {
    ...{ clock, file, stamp, start },
    stamped: () => JSON.parse(readFileSync(stamp, "utf8")),
    keep: () => copy(file, join(folder, "copy.db")),
    putBack: () => copy(join(folder, "copy.db"), file),
  };
}

type Home = ReturnType<typeof newHome>;

/** The stamp is written beside the requests. */
async function stampedAs(home: Home, record: number): Promise<void> {
  await until("the stamp is written", () => existsSync(home.stamp) && home.stamped().newest === record);
}

t.test("a new home lost nothing, and neither does one that is stopped and started", async (t) => {
  const home = newHome(t);
  const first = home.start();
  t.strictSame(first.unwatched(), []);
  home.clock.pass(MINUTE);
  first.add();
  await first.stop();
  t.match(home.stamped(), { newest: 1, clean: true });
  t.equal(statSync(home.stamp).mode & 0o777, 0o600);
  home.clock.pass(HOUR);
  // The machine was switched off in between.
  const second = home.start(home.clock.now() - MINUTE);
  t.strictSame(second.unwatched(), []);
});

for (const way of ["stop", "kill"] as const) {
  t.test(`an older log that is put back after a ${way} lost its end`, async (t) => {
    const home = newHome(t);
    const first = home.start();
    home.clock.pass(MINUTE);
    const last = first.add();
    home.keep();
    home.clock.pass(10 * MINUTE);
    first.add();
    home.clock.pass(10 * MINUTE);
    const at = first.add();
    first.unwatched();
    await stampedAs(home, 3);
    await first[way]();
    home.putBack();
    home.clock.pass(HOUR);
    const lost = [{ from: last, to: at + MINUTE }];
    const second = home.start();
    t.strictSame(second.unwatched(), lost);
    second.add();
    await second.stop();
    t.strictSame(home.start().unwatched(), lost, "and is not forgotten");
  });
}

t.test("what a killed run noted beside the log does not stand for what an older copy lost", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(MINUTE);
  const last = first.add();
  home.keep();
  home.clock.pass(10 * MINUTE);
  const at = first.add();
  first.unwatched();
  await stampedAs(home, 2);
  await first.kill();
  home.putBack();
  writeFileSync(`${home.file}-slips`, slipOf(record(9, { started_at: at })), { mode: 0o600 });
  home.clock.pass(HOUR);
  t.strictSame(home.start().unwatched(), [{ from: last, to: at + MINUTE }]);
});

t.test("what lies in the lost time is unwatched, and what lies outside is foreign", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(MINUTE);
  first.add();
  home.keep();
  home.clock.pass(HOUR);
  const lost = first.add();
  await first.stop();
  home.putBack();
  home.clock.pass(4 * HOUR);
  const second = home.start();
  second.ask((db) => {
    linkKeys(db, "main", [{ ref: "id:1", key: "…a1b2" }]);
    page(db, [
      row(7, { created_at: lost + 2333, request_id: "lost" }),
      row(8, { created_at: lost + 2 * HOUR, request_id: "leak" }),
    ]);
    judgeAll(db, { now: home.clock.now(), unwatched: second.logEnd.unwatched(db) });
    const found = verdicts(db).map(([identity, verdict]) => [identity, verdict]);
    t.strictSame(found, [
      ["row-7", "unwatched"],
      ["row-8", "foreign"],
    ]);
    return true;
  });
});

t.test("an older log that is put back while it runs lost its end, whatever was added since", async (t) => {
  const home = newHome(t);
  const run = home.start();
  home.clock.pass(MINUTE);
  const last = run.add();
  home.keep();
  home.clock.pass(HOUR);
  for (let n = 0; n < 3; n += 1) run.add();
  // It is put into the other log, which tells nothing about those before it.
  t.ok(await run.ledger.open(record(99, { started_at: home.clock.now(), end: null })));
  run.unwatched();
  home.clock.pass(MINUTE);
  home.putBack();
  const replaced = () => run.ledger.state().warnings.some((words) => words.includes("replaced"));
  await until("the log is the other one", replaced);
  for (let n = 0; n < 5; n += 1) run.add();
  t.strictSame(run.unwatched(), [{ from: last, to: home.clock.now() }]);
});

t.test("a power cut may have taken what was written last", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  const at = first.add();
  first.unwatched();
  await stampedAs(home, 1);
  await first.kill();
  home.clock.pass(3 * MINUTE);
  const bootedAt = home.clock.now();
  home.clock.pass(MINUTE);
  const second = home.start(bootedAt);
  const lost = [{ from: at - MINUTE, to: bootedAt }];
  t.strictSame(second.unwatched(), lost);
  await second.stop();
  home.clock.pass(24 * HOUR);
  t.strictSame(home.start(home.clock.now() - MINUTE).unwatched(), lost, "said once");
});

t.test("after a power cut long ago only the minutes around the last record are unwatched", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  const at = first.add();
  first.unwatched();
  await stampedAs(home, 1);
  await first.kill();
  home.clock.pass(24 * HOUR);
  const second = home.start(home.clock.now() - MINUTE);
  t.strictSame(second.unwatched(), [{ from: at - MINUTE, to: at + 10 * MINUTE }]);
});

t.test("a power cut takes nothing from a log that is synced with every request", async (t) => {
  const home = newHome(t);
  const first = home.start(undefined, "full");
  home.clock.pass(HOUR);
  first.add();
  first.unwatched();
  await stampedAs(home, 1);
  await first.kill();
  home.clock.pass(HOUR);
  t.strictSame(home.start(home.clock.now() - MINUTE, "full").unwatched(), []);
});

t.test("a kill alone loses nothing", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  first.add();
  first.unwatched();
  await stampedAs(home, 1);
  await first.kill();
  t.match(home.stamped(), { clean: false });
  home.clock.pass(HOUR);
  t.strictSame(home.start().unwatched(), []);
});

for (const [what, text] of Object.entries({
  "no json": "{",
  "another shape": '{"newest":99,"at":"now"}',
  "a list": "[99]",
  "very long": `"${"x".repeat(9999)}"`,
})) {
  t.test(`a stamp that is ${what} says nothing`, async (t) => {
    const home = newHome(t);
    const first = home.start();
    home.clock.pass(MINUTE);
    first.add();
    await first.stop();
    writeFileSync(home.stamp, text);
    home.clock.pass(HOUR);
    const second = home.start(home.clock.now());
    t.strictSame(second.unwatched(), []);
    second.add();
    await second.stop();
    t.match(home.stamped(), { newest: 2, clean: true });
  });
}

t.test("a log that was begun anew lost no end: all that was before it is called so", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  for (let n = 0; n < 3; n += 1) first.add();
  await first.stop();
  for (const end of ["", "-wal", "-shm"]) rmSync(home.file + end, { force: true });
  home.clock.pass(HOUR);
  const second = home.start();
  t.strictSame(second.unwatched(), []);
  // The stamp is still that of the log before, as after a kill in the first moments.
  const before = readFileSync(home.stamp);
  home.clock.pass(HOUR);
  second.add();
  await second.stop();
  writeFileSync(home.stamp, before);
  t.strictSame(home.start().unwatched(), []);
});

t.test("nor one that was begun anew while it runs", async (t) => {
  const home = newHome(t);
  const run = home.start();
  home.clock.pass(HOUR);
  for (let n = 0; n < 3; n += 1) run.add();
  run.unwatched();
  for (const end of ["", "-wal", "-shm"]) rmSync(home.file + end, { force: true });
  home.clock.pass(MINUTE);
  await until("there is another", () => existsSync(home.file));
  run.hold();
  home.clock.pass(MINUTE);
  t.strictSame(run.unwatched(), []);
  run.add();
  await run.stop();
  t.strictSame(home.start().unwatched(), []);
});

t.test("a log of which everything was pruned lost no end", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  const at = first.add();
  await first.stop();
  const second = home.start();
  home.clock.pass(HOUR);
  second.ask((db) => {
    db.prepare("INSERT INTO log.facts (name, value) VALUES ('kept_from', ?)").run(String(at + 1));
    return db.prepare("DELETE FROM log.records").run();
  });
  t.strictSame(second.unwatched(), []);
  await second.stop();
  t.strictSame(home.start().unwatched(), []);
});

t.test("the stamp is written when records were added, and at most every half minute", async (t) => {
  const home = newHome(t);
  const run = home.start();
  home.clock.pass(MINUTE);
  run.add();
  run.unwatched();
  await stampedAs(home, 1);
  const written = statSync(home.stamp).ino;
  for (let n = 0; n < 20; n += 1) {
    home.clock.pass(MINUTE);
    run.unwatched();
  }
  // One that was begun before this one would be through by then.
  await writePrivate(`${home.stamp}.other`, "{}");
  t.equal(statSync(home.stamp).ino, written, "nothing is written where nothing was added");
  run.add();
  run.unwatched();
  await stampedAs(home, 2);
  run.add();
  run.unwatched();
  home.clock.pass(29_000);
  run.unwatched();
  t.equal(home.stamped().newest, 2, "not yet");
  home.clock.pass(1000);
  run.unwatched();
  await stampedAs(home, 3);
});

t.test("a row that was suspected is judged again when its time turns out to be lost", (t) => {
  const { db } = mirrorFile(t);
  page(db, [row(2, { created_at: AT + HOUR })]);
  judgeAll(db, { now: AT + 24 * HOUR });
  const verdictOf = () => verdicts(db).map(([, verdict, , certain]) => [verdict, certain]);
  t.strictSame(verdictOf(), [["foreign", 0]]);
  addUnwatched(db, { from: AT + HOUR - MINUTE, to: AT + HOUR + MINUTE });
  judgeAll(db, { now: AT + 24 * HOUR, unwatched: readUnwatched(db) });
  t.strictSame(verdictOf(), [["unwatched", 0]]);
  t.end();
});

t.test("lost times that touch are one, and there are never many", (t) => {
  const { db } = mirrorFile(t);
  addUnwatched(db, { from: 100, to: 200 });
  addUnwatched(db, { from: 150, to: 250 });
  t.strictSame(readUnwatched(db), [{ from: 100, to: 250 }]);
  for (let n = 1; n <= 60; n += 1) addUnwatched(db, { from: n * 1000, to: n * 1000 + 10 });
  const all = readUnwatched(db);
  t.equal(all.length, 50);
  t.strictSame(
    [all[0], all.at(-1)],
    [
      { from: 100, to: 11_010 },
      { from: 60_000, to: 60_010 },
    ],
  );
  db.prepare("INSERT INTO log.facts (name, value) VALUES ('kept_from', '59500')").run();
  t.strictSame(readUnwatched(db), [{ from: 60_000, to: 60_010 }], "what is older is not kept anyway");
  t.end();
});
