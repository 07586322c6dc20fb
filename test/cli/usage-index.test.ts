import {
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { advice } from "../../src/core/advice.ts";
import { openIndex } from "../../src/usage/index/database.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { advised, command, type Ended, newHome } from "../doubles/command.ts";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { LONG, longTest } from "../doubles/effort.ts";
import { serveControls } from "../doubles/idle-control.ts";
import { catchUp, writeJournal } from "../doubles/journal.ts";
import { CLOSED_PORT } from "../doubles/listen.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { CURRENT } from "../doubles/no-usage.ts";
import { record } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";
import { indexFaults } from "../doubles/usage-file.ts";

const AT = Date.UTC(2026, 10, 1);
const DAY = 86_400_000;

/** Several days, so that a rebuild passes from file to file. */
function someDays(count: number): UsageRecord[] {
  return Array.from({ length: count }, (_, number) =>
    record(number, { started_at: AT + (number % 3) * DAY }),
  );
}

async function homeWith(t: Test, records: readonly UsageRecord[]) {
  const home = await newHome(t);
  const state = join(home, "state");
  mkdirSync(state, { mode: 0o700 });
  const journal = join(state, "usage");
  writeJournal(journal, records);
  return { home, state, journal, index: join(state, "index.db") };
}

async function exported(t: Test, home: string): Promise<Ended & { readonly count: number }> {
  const ended = await command(t, home, ["usage", "export"]);
  return { ...ended, count: ended.code === 0 ? JSON.parse(ended.stdout).length : -1 };
}

/** A daemon in this home, in the days of the records. Its tool's gateway is down: each call of `fail` is recorded. */
async function serve(t: Test, home: string) {
  const origin = `http://127.0.0.1:${CLOSED_PORT}`;
  const { daemon, url, token } = await startWithOneTool(t, origin, {
    home,
    clock: movableClock(AT + 4 * DAY),
    gateway: ["timeouts: { retry_connect: 0s }"],
  });
  const fail = async () => {
    const answer = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
    await answer.text();
    return answer.status;
  };
  return { stop: () => daemon.stop(), fail };
}

/** Locks the index as another program would that writes to it. */
function lockIndex(t: Test, index: string): () => void {
  const { db, close } = openIndex(index);
  t.teardown(close);
  db.exec("BEGIN IMMEDIATE");
  return close;
}

function changeIndex(index: string, sql: string): void {
  const { db, close } = openIndex(index);
  db.exec(sql);
  close();
}

/** What may have become of an index: another program wrote to it through SQLite, */
const CHANGES: readonly (readonly [string, (index: string) => void])[] = [
  ["of another version", (index) => changeIndex(index, "PRAGMA usage.user_version = 99")],
  ["of another program", (index) => changeIndex(index, "PRAGMA usage.application_id = 7")],
  ["without one of its tables", (index) => changeIndex(index, "DROP TABLE usage.records")],
];

/** or something happened to the file. */
const DAMAGES: readonly (readonly [string, (index: string) => void])[] = [
  ["no database", (index) => writeFileSync(index, "this is no database at all ".repeat(400))],
  ["empty", (index) => truncateSync(index, 0)],
  ["cut off", (index) => truncateSync(index, Math.floor(statSync(index).size / 2) + 100)],
  [
    "damaged in the middle",
    (index) => {
      const bytes = readFileSync(index);
      bytes.fill(0xee, 4096 * 3);
      writeFileSync(index, bytes);
    },
  ],
  ["gone", (index) => rmSync(index)],
  [
    "a folder",
    (index) => {
      rmSync(index);
      mkdirSync(index);
    },
  ],
];

t.test("an index that cannot be used is rebuilt from the journal silently", async (t) => {
  const { home, state, index } = await homeWith(t, someDays(1000));
  for (const [what, damage] of LONG
    ? [...CHANGES, ...DAMAGES]
    : [...CHANGES.slice(0, 1), ...DAMAGES.slice(0, 1)]) {
    catchUp(state);
    damage(index);
    const { code, stderr, count } = await exported(t, home);
    t.same({ code, stderr, count }, { code: 0, stderr: "", count: 1000 }, what);
    t.same(indexFaults(index), [], what);
    t.equal(statSync(index).mode & 0o777, 0o600);
  }
  const report = await command(t, home, ["usage", "--since", "all", "--json"]);
  t.match(JSON.parse(report.stdout), { total: { requests: 1000 } });
});

t.test("a running daemon rebuilds a damaged index, and usage asks the daemon", async (t) => {
  const { home, index } = await homeWith(t, someDays(300));
  const daemon = await serve(t, home);
  for (const [what, damage] of DAMAGES) {
    t.equal((await exported(t, home)).count, 300);
    damage(index);
    // On a busy machine the command does not wait until the end, and says so.
    await until(`rebuilt: ${what}`, async () => {
      const { code, stderr, count } = await exported(t, home);
      t.equal(code, 0);
      if (stderr === "") t.equal(count, 300, what);
      else t.match(stderr, /^the index is being rebuilt: \d+ % of the usage log is in it\n$/);
      return stderr === "";
    });
  }
  t.equal(await daemon.fail(), 400);
  t.equal((await exported(t, home)).count, 301, "what was just recorded is in it");
  await daemon.stop();
  t.same(indexFaults(index), []);
});

t.test(
  "damage that a running daemon does not notice is reported, and usage rebuild repairs it",
  async (t) => {
    const { home, index } = await homeWith(t, someDays(30));
    await serve(t, home);
    for (const [what, change] of CHANGES) {
      t.equal((await exported(t, home)).count, 30);
      change(index);
      const { code, stderr, count } = await exported(t, home);
      // A daemon whose thread has closed the index by then finds out, and rebuilds it.
      if (code === 0) t.equal(count, 30, what);
      else {
        t.match(stderr, /^the usage index .*index\.db cannot be read: .* → /, what);
        t.equal((await command(t, home, advised(t, stderr, advice.usageRebuild()))).code, 0);
      }
    }
    t.equal((await exported(t, home)).count, 30);
  },
);

t.test("usage waits for an index that the daemon has only begun to make", async (t) => {
  const { home, index } = await homeWith(t, someDays(10));
  let asked = 0;
  const answer = async () => {
    asked += 1;
    if (asked < 3) return { ...CURRENT, current: false, share: 0 };
    catchUp(join(home, "state"));
    return CURRENT;
  };
  await serveControls(t, home, { usage: { catchUp: answer, rebuild: answer } });
  t.notOk(existsSync(index));
  t.equal((await exported(t, home)).count, 10);
  t.equal(asked, 3);
});

t.test("usage only asks a daemon to bring the index up to date, and says how far it is", async (t) => {
  const { home, index } = await homeWith(t, someDays(10));
  catchUp(join(home, "state"));
  const before = statSync(index).mtimeMs;
  writeJournal(join(home, "state", "usage"), [record(11, { started_at: AT + 2 * DAY })]);
  const answers = [
    { state: CURRENT, words: "" },
    {
      state: { ...CURRENT, current: false, share: 0.429 },
      words: "the index is catching up: 42 % of the usage log is in it\n",
    },
    {
      state: { ...CURRENT, current: false, share: 0.429, rebuilding: true },
      words: "the index is being rebuilt: 42 % of the usage log is in it\n",
    },
    {
      state: { ...CURRENT, current: false, share: 0.999, waitingFor: "another program has locked it" },
      words: "the index is behind (99 % of the usage log is in it): another program has locked it\n",
    },
  ];
  let asked = 0;
  const answer = async () => {
    const { state } = answers[asked] ?? { state: CURRENT };
    asked += 1;
    return state;
  };
  await serveControls(t, home, { usage: { catchUp: answer, rebuild: answer } });
  for (const { words } of answers) {
    const { code, stderr, count } = await exported(t, home);
    t.same({ code, stderr, count }, { code: 0, stderr: words, count: 10 });
  }
  t.equal(asked, answers.length);
  t.equal(statSync(index).mtimeMs, before, "the command itself writes nothing while a daemon runs");
});

longTest(
  t,
  "while another program has the index locked, usage shows what is in it and says so",
  async (t) => {
    const { home, state, journal, index } = await homeWith(t, someDays(30));
    catchUp(state);
    const unlock = lockIndex(t, index);
    const current = await exported(t, home);
    t.same(
      [current.code, current.stderr, current.count],
      [0, "", 30],
      "an index that has everything is enough",
    );
    writeJournal(
      journal,
      someDays(60)
        .slice(30)
        .map((one) => ({ ...one, started_at: AT + 2 * DAY })),
    );
    const behind =
      /^the index is behind \((\d+) % of the usage log is in it\): another program has locked it\n$/;
    const alone = await exported(t, home);
    t.same([alone.code, alone.count], [0, 30]);
    t.match(alone.stderr, behind);
    const share = Number(behind.exec(alone.stderr)?.[1]);
    t.ok(share >= 45 && share <= 55, `${share} %`);

    const daemon = await serve(t, home);
    const served = await exported(t, home);
    t.same([served.code, served.count], [0, 30]);
    t.match(served.stderr, behind, "a daemon says the same");
    t.ok(Number(behind.exec(served.stderr)?.[1]) >= 45);
    t.equal(await daemon.fail(), 400, "and requests do not wait for it");
    const status = JSON.parse((await command(t, home, ["status", "--json"])).stdout);
    t.match(status.usage, {
      state: "ok",
      folder: journal,
      index: { current: false, rebuilding: false, waiting_for: "another program has locked it" },
    });
    unlock();
    const after = await exported(t, home);
    t.same([after.code, after.stderr, after.count], [0, "", 61], "it goes on by itself");
  },
);

longTest(t, "an index that another program keeps locked is reported as unreadable", async (t) => {
  const { home, state, index } = await homeWith(t, someDays(3));
  catchUp(state);
  const { db, close } = openIndex(index);
  t.teardown(close);
  db.exec("PRAGMA usage.locking_mode = exclusive");
  db.exec("BEGIN EXCLUSIVE; UPDATE usage.meta SET value = value; COMMIT");
  const ended = await Promise.all(
    [["usage"], ["usage", "show", "last"]].map((args) => command(t, home, args)),
  );
  for (const { code, stdout, stderr } of ended) {
    t.same([code, stdout], [1, ""]);
    t.match(stderr, /cannot be read: another program has locked it → close the program that has it open\n$/);
    t.notMatch(stderr, /^\s+at /m, "no stack trace");
  }
});

longTest(t, "usage rebuild reads the whole journal again, with and without a daemon", async (t) => {
  const { home, state, journal, index } = await homeWith(t, someDays(30));
  const backup = join(state, "backup");
  renameSync(join(journal, "2026-11-01.jsonl"), backup);
  t.equal((await exported(t, home)).count, 20);
  const rebuild = () => command(t, home, ["usage", "rebuild"]);

  // A day that comes back from a backup is before the index's position.
  writeFileSync(join(journal, "2026-11-01.jsonl.gz"), gzipSync(readFileSync(backup)));
  const alone = await rebuild();
  t.same(
    [alone.code, alone.stdout, alone.stderr],
    [0, "the index was rebuilt from 3 days of the usage log\n", ""],
  );
  t.equal((await exported(t, home)).count, 30);
  t.same(indexFaults(index), []);

  const daemon = await serve(t, home);
  t.equal(await daemon.fail(), 400);
  rmSync(join(journal, "2026-11-01.jsonl.gz"));
  t.equal((await exported(t, home)).count, 21, "a day that is deleted leaves the reports");
  renameSync(backup, join(journal, "2026-11-01.jsonl"));
  const served = await rebuild();
  t.equal(served.code, 0);
  t.match(served.stdout, /^the index was rebuilt from [34] days of the usage log\n$/);
  t.equal(served.stderr, "");
  const { stderr, count } = await exported(t, home);
  t.same([stderr, count], ["", 31]);
  await daemon.stop();
  t.same(indexFaults(index), []);
});

t.test("usage rebuild says why it failed, and exits with 1", async (t) => {
  const nothing = await newHome(t);
  const none = await command(t, nothing, ["usage", "rebuild"]);
  t.same([none.code, none.stdout, none.stderr], [1, "", `there is no usage log in ${nothing}/state/usage\n`]);
  t.notOk(existsSync(join(nothing, "state", "index.db")));

  const { home } = await homeWith(t, someDays(3));
  const behind = { ...CURRENT, current: false, share: 0.5, waitingFor: "the disk is full" };
  await serveControls(t, home, { usage: { catchUp: async () => behind, rebuild: async () => behind } });
  const full = await command(t, home, ["usage", "rebuild"]);
  t.same(
    [full.code, full.stdout, full.stderr],
    [1, "", "the index is behind (50 % of the usage log is in it): the disk is full\n"],
  );
});

t.test("a line that cannot be read is skipped, and status counts it", async (t) => {
  const { home, journal } = await homeWith(t, someDays(30));
  const file = join(journal, "2026-11-02.jsonl");
  const lines = readFileSync(file, "utf8").split("\n");
  lines[4] = (lines[4] ?? "").slice(0, 90);
  writeFileSync(file, lines.join("\n"));
  t.equal((await exported(t, home)).count, 29);
  await serve(t, home);
  t.equal((await exported(t, home)).count, 29);
  const status = await command(t, home, ["status", "--json"]);
  t.match(JSON.parse(status.stdout).usage, {
    index: { current: true, share: 1, rebuilding: false, waiting_for: null, damaged_lines: 1 },
    warnings: ["damaged lines of the usage log that were skipped: 1"],
  });
});
