import {
  appendFileSync,
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import type Database from "libsql";
import pino from "pino";
import t, { type Test } from "tap";
import type { Ticker } from "../../src/core/ticker.ts";
import { LostRecords } from "../../src/mirror/lost-records.ts";
import { addLogGap, type LogGap, readLogGaps } from "../../src/mirror/store/coverage-gaps.ts";
import { holdKeys, linkKeys } from "../../src/mirror/store/keys.ts";
import { queryNumber } from "../../src/mirror/store/query.ts";
import { catchUp as catchUpAndName, type LastRecord } from "../../src/mirror/usage.ts";
import { openIndex } from "../../src/usage/index/database.ts";
import { findChange } from "../../src/usage/index/journal-digest.ts";
import { dayOf, journalFiles } from "../../src/usage/journal/files.ts";
import type { RecordEnd, UsageRecord } from "../../src/usage/record.ts";
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
  /** How often the journal was flushed. */
  flushes(): number;
  stop(): Promise<void>;
  /** Ends without writing anything. */
  kill(): void;
}

/** A home with a usage log that is started and ended on a clock that moves only when the test says so. */
function newHome(t: Test) {
  const state = mkdtempSync(join(tmpdir(), "kb-end-"));
  t.teardown(() => rmSync(state, { recursive: true, force: true }));
  const folder = join(state, "usage");
  const copy = join(state, "copy");
  const index = join(state, "index.db");
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
    writeJournal(folder, [added]);
    return added;
  }

  function start(bootedAt = booted): Run {
    let last = lastIn(folder);
    const wasChanged = findChange(index, folder, 20) !== null;
    catchUp(state);
    let lostAt: number | null = null;
    let flushes = 0;
    const usage = { catchUp: async () => catchUp(state), last: () => last };
    const journal = {
      lostAt: () => lostAt,
      async flush() {
        flushes += 1;
        return true;
      },
    };
    const database = openMirror(state);
    const lostRecords = new LostRecords({
      clock,
      ticker,
      log,
      database,
      usage,
      journal,
      wasChanged,
      bootedAt,
    });
    t.teardown(() => database.close());
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
      flushes: () => flushes,
      async stop() {
        await lostRecords.close();
        database.close();
      },
      kill: () => database.close(),
    };
  }

  return {
    state,
    folder,
    clock,
    start,
    write,
    tick() {
      for (const work of ticks) work();
    },
    keep: () => cpSync(folder, copy, { recursive: true }),
    putBack() {
      // Not deleted: the next folder could get its inode, and the index would be taken for the one of this folder.
      renameSync(folder, mkdtempSync(`${folder}-`));
      cpSync(copy, folder, { recursive: true });
    },
    /** Removes the newest record's line, as a power cut may do. */
    cutEnd() {
      const path = journalFiles(folder).at(-1)?.path ?? "";
      const text = readFileSync(path, "utf8");
      truncateSync(path, Buffer.byteLength(text.slice(0, text.trimEnd().lastIndexOf("\n") + 1)));
    },
    /** The journal and both databases. */
    deleteLog() {
      rmSync(folder, { recursive: true });
      for (const name of readdirSync(state))
        if (/^(?:index|mirror)\.db/.test(name)) rmSync(join(state, name));
    },
  };
}

function lastIn(journal: string): LastRecord | null {
  const newest = journalFiles(journal).at(-1);
  if (newest === undefined) return null;
  const lines = readFileSync(newest.path, "utf8").trimEnd().split("\n");
  return (
    lines.map((line) => JSON.parse(line)).findLast(({ kind }) => kind === "open" || kind === "close") ?? null
  );
}

t.test("nothing is lost at the first start, nor by a stop and a start", async (t) => {
  const home = newHome(t);
  const first = home.start();
  t.strictSame(await first.gaps(), []);
  home.clock.pass(MINUTE);
  first.add();
  await first.stop();
  home.clock.pass(HOUR);
  // The machine was switched off in between.
  const second = home.start(home.clock.now() - MINUTE);
  t.strictSame(await second.gaps(), []);
  // It is stopped without a new record, and was switched off again.
  await second.stop();
  home.clock.pass(HOUR);
  t.strictSame(await home.start(home.clock.now() - MINUTE).gaps(), []);
});

t.test("nothing is lost by a stop on a day without records", async (t) => {
  const home = newHome(t);
  const first = home.start();
  await first.gaps();
  home.clock.pass(MINUTE);
  first.add();
  await first.stop();
  for (let day = 0; day < 2; day += 1) {
    home.clock.pass(24 * HOUR);
    const carry = JSON.stringify({ kind: "carry", tools: 0 });
    writeFileSync(join(home.folder, `${dayOf(home.clock.now())}.jsonl`), `${carry}\n`);
    const next = home.start(home.clock.now() - MINUTE);
    t.strictSame(await next.gaps(), []);
    await next.stop();
  }
});

t.test("refusals that are counted together are no sign of an unclean end", async (t) => {
  const home = newHome(t);
  const first = home.start();
  await first.gaps();
  home.clock.pass(MINUTE);
  first.add();
  home.clock.pass(MINUTE);
  const minute = Math.floor(home.clock.now() / MINUTE) * MINUTE;
  const { id, tool, gateway } = record(800, { started_at: home.clock.now() });
  const run = { tool, gateway, code: "rate-limited", minute, count: 30, first_id: id, last_id: id };
  appendFileSync(
    journalFiles(home.folder).at(-1)?.path ?? "",
    `${JSON.stringify({ kind: "refusals", ...run })}\n`,
  );
  await first.stop();
  home.clock.pass(HOUR);
  const second = home.start(home.clock.now() - MINUTE);
  t.strictSame(await second.gaps(), []);
  t.equal(
    second.ask((db) => queryNumber(db, "SELECT count(*) FROM usage.records")),
    2,
    "they have a record",
  );
});

t.test("an older log that is put back after a stop lost its end", async (t) => {
  const home = newHome(t);
  const first = home.start();
  await first.gaps();
  home.clock.pass(MINUTE);
  const last = first.add();
  home.keep();
  home.clock.pass(10 * MINUTE);
  first.add();
  home.clock.pass(10 * MINUTE);
  const newest = first.add();
  await first.gaps();
  await first.stop();
  home.putBack();
  home.clock.pass(HOUR);
  const lost = [{ from: last.started_at, to: newest.started_at + MINUTE }];
  const second = home.start();
  t.strictSame(await second.gaps(), lost);
  second.add();
  await second.stop();
  t.strictSame(await home.start().gaps(), lost, "and is not forgotten");
});

t.test("an older log that is put back is noticed although the index had not read its end", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(MINUTE);
  const last = first.add();
  await first.gaps();
  home.keep();
  home.clock.pass(10 * MINUTE);
  const newest = first.add();
  await first.stop();
  home.putBack();
  home.clock.pass(HOUR);
  t.strictSame(await home.start().gaps(), [{ from: last.started_at, to: newest.started_at + MINUTE }]);
});

t.test("a log that was edited after a stop, and has its end, lost none", async (t) => {
  const home = newHome(t);
  const first = home.start();
  await first.gaps();
  for (let n = 0; n < 3; n += 1) {
    home.clock.pass(MINUTE);
    first.add();
  }
  await first.gaps();
  await first.stop();
  const path = journalFiles(home.folder).at(-1)?.path ?? "";
  const lines = readFileSync(path, "utf8").split("\n");
  writeFileSync(path, lines.slice(1).join("\n"));
  home.clock.pass(HOUR);
  t.strictSame(await home.start().gaps(), []);
});

t.test("after a kill, an older log may have lost everything until the next start", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(MINUTE);
  const last = first.add();
  home.keep();
  home.clock.pass(10 * MINUTE);
  first.add();
  await first.gaps();
  first.kill();
  home.putBack();
  home.clock.pass(HOUR);
  const lost = [{ from: last.started_at, to: home.clock.now() }];
  const second = home.start();
  t.strictSame(await second.gaps(), lost);
  second.add();
  await second.stop();
  home.clock.pass(HOUR);
  t.strictSame(await home.start().gaps(), lost, "and is not forgotten");
});

t.test(
  "after a kill, a log that is older than the last stop lost what came after that stop, too",
  async (t) => {
    const home = newHome(t);
    const first = home.start();
    await first.gaps();
    home.clock.pass(MINUTE);
    const last = first.add();
    home.keep();
    home.clock.pass(10 * MINUTE);
    first.add();
    await first.stop();
    const second = home.start();
    home.clock.pass(HOUR);
    second.add();
    await second.gaps();
    second.kill();
    home.putBack();
    home.clock.pass(HOUR);
    t.strictSame(await home.start().gaps(), [{ from: last.started_at, to: home.clock.now() }]);
  },
);

t.test("after a kill, a file that was cut off lost what the index had not read", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(MINUTE);
  first.add();
  home.clock.pass(10 * MINUTE);
  const indexed = first.add();
  await first.gaps();
  first.kill();
  home.cutEnd();
  home.clock.pass(HOUR);
  t.strictSame(await home.start().gaps(), [{ from: indexed.started_at, to: home.clock.now() }]);
});

const NO_PROOF: Readonly<Record<string, (home: ReturnType<typeof newHome>) => void>> = {
  "an interrupted request": (home) => home.write("interrupted"),
  "a record of another machine, which comes at any time,": (home) => {
    const others = record(900, { started_at: home.clock.now() });
    writeJournal(home.folder, [{ ...others, machine: "laptop", machine_id: "machine-1" }]);
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
    await first.stop();
    home.putBack();
    write(home);
    home.clock.pass(HOUR);
    const second = home.start();
    t.strictSame(await second.gaps(), [{ from: last.started_at, to: newest.started_at + MINUTE }]);
  });
}

t.test("a lost end is noticed without a console, and before it is written down again", async (t) => {
  const home = newHome(t);
  const first = home.start();
  await first.gaps();
  home.clock.pass(MINUTE);
  const last = first.add();
  home.keep();
  home.clock.pass(10 * MINUTE);
  const newest = first.add();
  await first.stop();
  home.putBack();
  home.clock.pass(HOUR);
  const second = home.start();
  home.tick();
  t.strictSame(second.ask(readLogGaps), [], "a start does not wait for the index");
  home.clock.pass(10_000);
  home.tick();
  await until("it is noted", () => second.ask(readLogGaps).length > 0);
  t.strictSame(second.ask(readLogGaps), [{ from: last.started_at, to: newest.started_at + MINUTE }]);
});

t.test("a run that could not check what was lost leaves that to the next one", async (t) => {
  const home = newHome(t);
  const first = home.start();
  await first.gaps();
  home.clock.pass(MINUTE);
  const last = first.add();
  home.keep();
  home.clock.pass(10 * MINUTE);
  const newest = first.add();
  await first.stop();
  home.putBack();
  home.clock.pass(MINUTE);
  const second = home.start();
  second.add();
  await second.stop();
  home.clock.pass(HOUR);
  t.strictSame(await home.start().gaps(), [{ from: last.started_at, to: newest.started_at + MINUTE }]);
});

t.test("a row in the lost time is unwatched, and one outside it is foreign", async (t) => {
  const home = newHome(t);
  const first = home.start();
  await first.gaps();
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
  const { started_at: at } = first.add();
  await first.gaps();
  first.kill();
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

t.test("a power cut that took records which the index has leaves the time until the start", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  first.add();
  home.clock.pass(MINUTE);
  const { started_at: at } = first.add();
  await first.gaps();
  first.kill();
  home.cutEnd();
  home.clock.pass(3 * MINUTE);
  const bootedAt = home.clock.now();
  home.clock.pass(MINUTE);
  t.strictSame(await home.start(bootedAt).gaps(), [{ from: at - MINUTE, to: home.clock.now() }]);
});

t.test("after a power cut long ago only the minutes around the last record are unwatched", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  const { started_at: at } = first.add();
  await first.gaps();
  first.kill();
  home.clock.pass(24 * HOUR);
  const second = home.start(home.clock.now() - MINUTE);
  t.strictSame(await second.gaps(), [{ from: at - MINUTE, to: at + 10 * MINUTE }]);
});

t.test("a power cut soon after a stop and a start is noticed, too", async (t) => {
  const home = newHome(t);
  const first = home.start();
  await first.gaps();
  first.add();
  await first.stop();
  home.clock.pass(MINUTE);
  // It ends before anything was checked.
  const second = home.start();
  const { started_at: at } = second.add();
  second.kill();
  home.clock.pass(24 * HOUR);
  t.strictSame(await home.start(home.clock.now() - MINUTE).gaps(), [
    { from: at - MINUTE, to: at + 10 * MINUTE },
  ]);
});

t.test("a kill alone loses nothing", async (t) => {
  const home = newHome(t);
  const first = home.start();
  home.clock.pass(HOUR);
  first.add();
  await first.gaps();
  first.kill();
  home.clock.pass(HOUR);
  t.strictSame(await home.start().gaps(), []);
});

t.test("a new log lost no end: everything earlier is from before the keys were held", async (t) => {
  const home = newHome(t);
  const first = home.start();
  await first.gaps();
  home.clock.pass(HOUR);
  for (let n = 0; n < 3; n += 1) first.add();
  await first.stop();
  home.deleteLog();
  home.clock.pass(HOUR);
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
  await first.gaps();
  const held = home.clock.now();
  home.clock.pass(HOUR);
  const newest = first.add();
  await first.stop();
  rmSync(home.folder, { recursive: true });
  home.clock.pass(HOUR);
  home.write();
  t.strictSame(await home.start().gaps(), [{ from: held, to: newest.started_at + MINUTE }]);
});

t.test("a log that was pruned completely lost no end", async (t) => {
  const home = newHome(t);
  const first = home.start();
  await first.gaps();
  home.clock.pass(HOUR);
  first.add();
  await first.stop();
  for (const { path } of journalFiles(home.folder)) rmSync(path);
  home.clock.pass(24 * HOUR);
  home.write();
  const second = home.start();
  t.strictSame(await second.gaps(), []);
  await second.stop();
  t.strictSame(await home.start().gaps(), []);
});

t.test("the journal is flushed when records were added, and at most every half minute", async (t) => {
  const home = newHome(t);
  const run = home.start();
  await run.gaps();
  home.clock.pass(MINUTE);
  run.add();
  home.tick();
  t.equal(run.flushes(), 1);
  for (let n = 0; n < 20; n += 1) {
    home.clock.pass(MINUTE);
    await turn();
    home.tick();
  }
  t.equal(run.flushes(), 1, "not where nothing was added");
  run.add();
  home.tick();
  t.equal(run.flushes(), 2);
  run.add();
  home.clock.pass(29_000);
  await turn();
  home.tick();
  t.equal(run.flushes(), 2, "not yet");
  home.clock.pass(1000);
  home.tick();
  t.equal(run.flushes(), 3);
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
