import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Database from "libsql";
import pino from "pino";
import t, { type Test } from "tap";
import { writePrivateFile } from "../../src/core/private-file.ts";
import type { Ticker } from "../../src/core/ticker.ts";
import { LostRecords } from "../../src/mirror/lost-records.ts";
import { addLogGap, type LogGap, readLogGaps } from "../../src/mirror/store/coverage-gaps.ts";
import { holdKeys, linkKeys } from "../../src/mirror/store/keys.ts";
import { catchUp as catchUpAndName, type LastRecord } from "../../src/mirror/usage.ts";
import { openIndex } from "../../src/usage/index/database.ts";
import { journalFiles } from "../../src/usage/journal/files.ts";
import type { RecordEnd, UsageRecord } from "../../src/usage/record.ts";
import { longTest } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { catchUp, writeJournal } from "../doubles/journal.ts";
import { record } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";
import { AT, compareAll, mirrorFile, openMirror, page, row, verdicts } from "./mirror-file.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

interface Run {
  readonly lostRecords: LostRecords;
  ask<T>(question: (db: Database.Database) => T): T;
  hold(): void;
  /** Writes a record that begins now. */
  add(end?: RecordEnd | null): UsageRecord;
  /** The journal notices now that its file was replaced. Returns when that is. */
  noticeLoss(): number;
  gaps(): Promise<readonly LogGap[]>;
  stop(): Promise<void>;
  /** Ends without writing anything. */
  kill(): Promise<void>;
}

/** A home with a usage log that is started and ended on a clock that moves only when the test says so. */
function newHome(t: Test) {
  const state = mkdtempSync(join(tmpdir(), "kb-end-"));
  t.teardown(() => rmSync(state, { recursive: true, force: true }));
  const journal = join(state, "usage");
  const copy = join(state, "copy");
  const endFile = join(state, "log-end.json");
  const clock = heldClock();
  const booted = clock.now() - HOUR;
  const log = pino({ level: "silent" });
  const ticks = new Set<() => void>();
  const ticker: Ticker = {
    every(_, work) {
      ticks.add(work);
      return () => ticks.delete(work);
    },
  };
  let count = 0;

  function write(end: RecordEnd | null = "complete"): UsageRecord {
    count += 1;
    const added = record(count, { started_at: clock.now(), end });
    writeJournal(journal, [added]);
    return added;
  }

  function start(bootedAt = booted, sync: "normal" | "full" = "normal"): Run {
    let last = lastIn(journal);
    catchUp(state);
    let lostAt: number | null = null;
    const usage = { catchUp: async () => catchUp(state), last: () => last, lostAt: () => lostAt };
    const database = openMirror(state);
    const lostRecords = new LostRecords({
      file: endFile,
      clock,
      ticker,
      log,
      database,
      usage,
      sync,
      bootedAt,
    });
    let isEnded = false;
    const end = async (seals: boolean) => {
      if (isEnded) return;
      isEnded = true;
      const seal = lostRecords.stop();
      if (seals) await seal();
      database.close();
    };
    t.teardown(() => end(false));
    const ask = <T>(question: (db: Database.Database) => T): T => {
      const answer = database.ask(question);
      if (answer === null) throw new Error("the database cannot be asked");
      return answer;
    };
    const hold = () =>
      void ask((db) => holdKeys(db, [{ gateway: "main", key: "…a1b2", tool: "codex" }], clock.now()));
    hold();
    return {
      lostRecords,
      ask,
      hold,
      add(end) {
        const added = write(end);
        last = added;
        return added;
      },
      noticeLoss() {
        lostAt = clock.now();
        return lostAt;
      },
      async gaps() {
        const newest = await catchUpAndName(usage);
        return ask((db) => lostRecords.gaps(db, newest));
      },
      stop: () => end(true),
      kill: () => end(false),
    };
  }

  return {
    state,
    journal,
    clock,
    ticker,
    endFile,
    start,
    write,
    tick() {
      for (const work of ticks) work();
    },
    writtenEnd: () => JSON.parse(readFileSync(endFile, "utf8")),
    keep: () => cpSync(journal, copy, { recursive: true }),
    putBack() {
      // Not deleted: the next folder could get its inode, and the index would be taken for the one of this folder.
      renameSync(journal, mkdtempSync(`${journal}-`));
      cpSync(copy, journal, { recursive: true });
    },
    /** Everything but the written end. */
    deleteLog() {
      rmSync(journal, { recursive: true });
      for (const name of readdirSync(state))
        if (/^(?:index|mirror)\.db/.test(name)) rmSync(join(state, name));
    },
  };
}

type Home = ReturnType<typeof newHome>;

function lastIn(journal: string): LastRecord | null {
  const newest = journalFiles(journal).at(-1);
  if (newest === undefined) return null;
  return JSON.parse(readFileSync(newest.path, "utf8").trimEnd().split("\n").at(-1) ?? "");
}

/** It is written in the background. A tick that comes while a write runs leaves the new end to the next one. */
async function endWritten(home: Home, { id }: UsageRecord): Promise<void> {
  await until("the end is written", () => {
    home.tick();
    return existsSync(home.endFile) && home.writtenEnd().record === id;
  });
}

t.test("nothing is lost at the first start, nor by a stop and a start", async (t) => {
  const home = newHome(t);
  const first = home.start();
  t.strictSame(await first.gaps(), []);
  home.clock.pass(MINUTE);
  const { id } = first.add();
  await first.stop();
  t.match(home.writtenEnd(), { record: id, clean: true });
  t.equal(statSync(home.endFile).mode & 0o777, 0o600);
  home.clock.pass(HOUR);
  // The machine was switched off in between.
  const second = home.start(home.clock.now() - MINUTE);
  t.strictSame(await second.gaps(), []);
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
    const newest = first.add();
    await first.gaps();
    await endWritten(home, newest);
    await first[way]();
    home.putBack();
    home.clock.pass(HOUR);
    const lost = [{ from: last.started_at, to: newest.started_at + MINUTE }];
    const second = home.start();
    t.strictSame(await second.gaps(), lost);
    second.add();
    await second.stop();
    t.strictSame(await home.start().gaps(), lost, "and is not forgotten");
  });
}

const NO_PROOF: Readonly<Record<string, (home: ReturnType<typeof newHome>) => void>> = {
  "an interrupted request": (home) => home.write("interrupted"),
  "a record of another machine, which comes at any time,": (home) => {
    const others = record(900, { started_at: home.clock.now() });
    writeJournal(home.journal, [{ ...others, machine: "laptop", machine_id: "machine-1" }]);
  },
};

for (const [what, write] of Object.entries(NO_PROOF)) {
  t.test(`${what} does not prove that the requests before it are in the log`, async (t) => {
    const home = newHome(t);
    const first = home.start();
    home.clock.pass(MINUTE);
    const last = first.add();
    home.keep();
    home.clock.pass(10 * MINUTE);
    const newest = first.add();
    await first.gaps();
    await endWritten(home, newest);
    await first.kill();
    home.putBack();
    write(home);
    home.clock.pass(HOUR);
    const second = home.start();
    t.strictSame(await second.gaps(), [{ from: last.started_at, to: newest.started_at + MINUTE }]);
  });
}

t.test("a lost end is noticed without a console, before the stored end is overwritten", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(MINUTE);
  const last = first.add();
  home.keep();
  home.clock.pass(10 * MINUTE);
  const newest = first.add();
  await first.stop();
  home.putBack();
  home.clock.pass(HOUR);
  const second = home.start();
  // A start does not wait for the index.
  home.clock.pass(10_000);
  home.tick();
  await until("it is noted", () => second.ask(readLogGaps).length > 0);
  t.strictSame(second.ask(readLogGaps), [{ from: last.started_at, to: newest.started_at + MINUTE }]);
  await until("the end of this run is written", () => home.writtenEnd().record === last.id);
});

t.test("while the index cannot be read, the end that the earlier run wrote stays", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(MINUTE);
  first.add();
  await first.stop();
  const before = home.writtenEnd();
  const database = { ask: () => null };
  const usage = { catchUp: async () => {}, last: () => null, lostAt: () => null };
  const { endFile: file, clock, ticker } = home;
  const deps = { file, clock, ticker, log: pino({ level: "silent" }), database, usage };
  const lostRecords = new LostRecords({ ...deps, sync: "normal", bootedAt: 0 });
  await lostRecords.stop()();
  t.strictSame(home.writtenEnd(), before);
});

t.test("a row in the lost time is unwatched, and one outside it is foreign", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(MINUTE);
  first.add();
  home.keep();
  home.clock.pass(HOUR);
  const { started_at: lost } = first.add();
  await first.stop();
  home.putBack();
  home.clock.pass(4 * HOUR);
  const second = home.start();
  const logGaps = await second.gaps();
  second.ask((db) => {
    linkKeys(db, "main", [{ ref: "id:1", key: "…a1b2" }]);
    page(db, [
      row(7, { created_at: lost + 2333, request_id: "lost" }),
      row(8, { created_at: lost + 2 * HOUR, request_id: "leak" }),
    ]);
    const mirror = { state: home.state, db, append: () => {}, catchUp: () => {} };
    compareAll(mirror, { now: home.clock.now(), logGaps });
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
  t.strictSame(await run.gaps(), []);
  home.clock.pass(MINUTE);
  home.putBack();
  // The process that runs it appends it to the other log, which proves nothing about those before it.
  home.write(null);
  const lost = [{ from: last.started_at, to: home.clock.now() }];
  t.strictSame(await run.gaps(), lost);
  home.clock.pass(MINUTE);
  t.strictSame(await run.gaps(), lost, "it does not grow while nothing is added");
  for (let n = 0; n < 5; n += 1) run.add();
  t.strictSame(await run.gaps(), lost);
});

t.test("lines of a replaced file that the index had not read are lost, and noted at once", async (t) => {
  const home = newHome(t);
  const run = home.start();
  home.clock.pass(MINUTE);
  const indexed = run.add();
  t.strictSame(await run.gaps(), []);
  home.clock.pass(MINUTE);
  const lost = [{ from: indexed.started_at, to: run.noticeLoss() }];
  home.tick();
  t.strictSame(run.ask(readLogGaps), lost);
  home.clock.pass(MINUTE);
  run.add();
  t.strictSame(await run.gaps(), lost, "records after it are not");
});

t.test("a record that begins while the index catches up is not lost", async (t) => {
  const home = newHome(t);
  const run = home.start();
  const first = run.add();
  t.strictSame(await run.gaps(), []);
  run.add();
  t.strictSame(
    run.ask((db) => run.lostRecords.gaps(db, first)),
    [],
  );
});

t.test("a power cut may have taken what was written last", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  const added = first.add();
  const at = added.started_at;
  await first.gaps();
  await endWritten(home, added);
  await first.kill();
  home.clock.pass(3 * MINUTE);
  const bootedAt = home.clock.now();
  home.clock.pass(MINUTE);
  const second = home.start(bootedAt);
  const lost = [{ from: at - MINUTE, to: bootedAt }];
  t.strictSame(await second.gaps(), lost);
  await second.stop();
  home.clock.pass(24 * HOUR);
  t.strictSame(await home.start(home.clock.now() - MINUTE).gaps(), lost, "reported once");
});

t.test("after a power cut long ago only the minutes around the last record are unwatched", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  const added = first.add();
  const at = added.started_at;
  await first.gaps();
  await endWritten(home, added);
  await first.kill();
  home.clock.pass(24 * HOUR);
  const second = home.start(home.clock.now() - MINUTE);
  t.strictSame(await second.gaps(), [{ from: at - MINUTE, to: at + 10 * MINUTE }]);
});

t.test("a power cut takes nothing from a log that is synced with every request", async (t) => {
  const home = newHome(t);
  const first = home.start(undefined, "full");
  home.clock.pass(HOUR);
  const added = first.add();
  await first.gaps();
  await endWritten(home, added);
  await first.kill();
  home.clock.pass(HOUR);
  t.strictSame(await home.start(home.clock.now() - MINUTE, "full").gaps(), []);
});

t.test("a kill alone loses nothing", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  const added = first.add();
  await first.gaps();
  await endWritten(home, added);
  await first.kill();
  t.match(home.writtenEnd(), { clean: false });
  home.clock.pass(HOUR);
  t.strictSame(await home.start().gaps(), []);
});

for (const [what, text] of Object.entries({
  "no json": "{",
  "another shape": '{"record":"99","at":"now"}',
  "a list": "[99]",
  "very long": `"${"x".repeat(9999)}"`,
})) {
  t.test(`a log-end.json that is ${what} is ignored, and replaced at the next stop`, async (t) => {
    const home = newHome(t);
    const first = home.start();
    home.clock.pass(MINUTE);
    first.add();
    await first.stop();
    writeFileSync(home.endFile, text);
    home.clock.pass(HOUR);
    const second = home.start(home.clock.now());
    t.strictSame(await second.gaps(), []);
    const { id } = second.add();
    await second.stop();
    t.match(home.writtenEnd(), { record: id, clean: true });
  });
}

t.test("a new log lost no end: everything earlier is from before the keys were held", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  for (let n = 0; n < 3; n += 1) first.add();
  await first.stop();
  home.deleteLog();
  home.clock.pass(HOUR);
  const second = home.start();
  t.strictSame(await second.gaps(), []);
  // The written end is still that of the old log, as after a kill in the first moments.
  const before = readFileSync(home.endFile);
  home.clock.pass(HOUR);
  second.add();
  await second.stop();
  writeFileSync(home.endFile, before);
  t.strictSame(await home.start().gaps(), []);
});

t.test("a log that was deleted and started over while it runs lost no end", async (t) => {
  const home = newHome(t);
  const run = home.start();
  home.clock.pass(HOUR);
  for (let n = 0; n < 3; n += 1) run.add();
  await run.gaps();
  home.deleteLog();
  home.clock.pass(MINUTE);
  catchUp(home.state);
  run.hold();
  home.clock.pass(MINUTE);
  t.strictSame(await run.gaps(), []);
  run.add();
  await run.stop();
  t.strictSame(await home.start().gaps(), []);
});

t.test("after only the journal was deleted, the whole time since the keys are held is unknown", async (t) => {
  const home = newHome(t);
  const first = home.start();
  const held = home.clock.now();
  home.clock.pass(HOUR);
  const newest = first.add();
  await first.stop();
  rmSync(home.journal, { recursive: true });
  home.clock.pass(HOUR);
  home.write();
  t.strictSame(await home.start().gaps(), [{ from: held, to: newest.started_at + MINUTE }]);
});

t.test("a log that was pruned completely lost no end", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  first.add();
  await first.stop();
  for (const { path } of journalFiles(home.journal)) rmSync(path);
  home.clock.pass(24 * HOUR);
  home.write();
  const second = home.start();
  t.strictSame(await second.gaps(), []);
  await second.stop();
  t.strictSame(await home.start().gaps(), []);
});

t.test("the end is written when records were added, and at most every half minute", async (t) => {
  const home = newHome(t);
  const run = home.start();
  home.clock.pass(MINUTE);
  const first = run.add();
  await run.gaps();
  await endWritten(home, first);
  const written = statSync(home.endFile).ino;
  for (let n = 0; n < 20; n += 1) {
    home.clock.pass(MINUTE);
    await run.gaps();
  }
  // A write that began before this one is finished by then.
  await writePrivateFile(`${home.endFile}.other`, "{}");
  t.equal(statSync(home.endFile).ino, written, "nothing is written where nothing was added");
  const second = run.add();
  await run.gaps();
  await endWritten(home, second);
  const third = run.add();
  await run.gaps();
  home.clock.pass(29_000);
  await run.gaps();
  t.equal(home.writtenEnd().record, second.id, "not yet");
  home.clock.pass(1000);
  await run.gaps();
  await endWritten(home, third);
});

longTest(t, "a log-end.json that is damaged, or not a file, is no gap", async (t) => {
  const at = Date.now();
  const whole = { record: null, started_at: at, at, clean: false, synced: false };
  const damages = [
    "",
    "null",
    "[]",
    JSON.stringify({ ...whole, record: { a: 1 } }),
    JSON.stringify({ ...whole, record: 7 }),
    JSON.stringify({ ...whole, record: undefined }),
    JSON.stringify({ ...whole, at: "now" }),
    JSON.stringify({ ...whole, clean: 1 }),
    `${JSON.stringify(whole)}${" ".repeat(5000)}`,
  ];
  for (const text of damages) {
    const home = newHome(t);
    writeFileSync(home.endFile, text);
    const run = home.start();
    run.add();
    t.strictSame(await run.gaps(), [], text.slice(0, 60));
    await run.stop();
  }
  const home = newHome(t);
  execFileSync("mkfifo", [home.endFile]);
  t.strictSame(await home.start().gaps(), [], "a named pipe");
});

t.test("a loss that the journal notices when it is closed is a gap at the next start", async (t) => {
  const home = newHome(t);
  const first = home.start();
  const last = first.add();
  await first.gaps();
  home.clock.pass(MINUTE);
  const lostAt = first.noticeLoss();
  await first.stop();
  t.strictSame(await home.start().gaps(), [{ from: last.started_at, to: lostAt }]);
});

t.test("a suspected row is compared again when its time turns out to be lost", (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  page(db, [row(2, { created_at: AT + HOUR })]);
  compareAll(mirror, { now: AT + 24 * HOUR });
  const verdictOf = () => verdicts(db).map(([, verdict, , certain]) => [verdict, certain]);
  t.strictSame(verdictOf(), [["foreign", 0]]);
  addLogGap(db, { from: AT + HOUR - MINUTE, to: AT + HOUR + MINUTE });
  compareAll(mirror, { now: AT + 24 * HOUR, logGaps: readLogGaps(db) });
  t.strictSame(verdictOf(), [["unwatched", 0]]);
  t.end();
});

t.test("lost times that touch become one, and end with the records of their time", (t) => {
  const mirror = mirrorFile(t);
  const { db } = mirror;
  const gap = (from: number, to: number) => ({ from: AT + from, to: AT + to });
  t.ok(addLogGap(db, gap(100, 200)));
  t.ok(addLogGap(db, gap(150, 250)));
  t.notOk(addLogGap(db, gap(120, 220)), "it is known");
  t.ok(addLogGap(db, gap(60_000, 60_010)));
  t.strictSame(readLogGaps(db), [gap(100, 250), gap(60_000, 60_010)]);
  const index = openIndex(join(mirror.state, "index.db"));
  index.db
    .prepare("INSERT OR REPLACE INTO usage.meta (name, value) VALUES ('kept_from', ?)")
    .run(String(AT + 59_500));
  index.close();
  t.strictSame(readLogGaps(db), [gap(60_000, 60_010)], "what is older is not kept anyway");
  t.end();
});
