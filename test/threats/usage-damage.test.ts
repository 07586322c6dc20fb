import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { openForWriting } from "../../src/usage/ledger/connect.ts";
import { newHome } from "../doubles/command.ts";
import { type OneTool, startWithOneTool } from "../doubles/daemon-under-test.ts";
import {
  chat,
  oneRecordEach,
  refusesAll,
  servesAgain,
  startLogScene,
  startStreams,
} from "../doubles/log-scene.ts";
import { until } from "../doubles/until.ts";
import { faultsIn, finishedModel, recordsIn } from "../doubles/usage-file.ts";

const noise = (bytes: number) => Buffer.from(Array.from({ length: bytes }, (_, n) => (n * 7919 + 13) % 251));

function overwrite(file: string, at: number, bytes: Buffer): void {
  const whole = readFileSync(file);
  bytes.copy(whole, at);
  writeFileSync(file, whole);
}

async function salvaged({ daemon }: OneTool): Promise<void> {
  await until("what can be saved is saved", async () =>
    (await daemon.status()).usage.aside.every(({ salvage }) => salvage !== "under way"),
  );
}

async function homeWith(t: Test, log: Buffer): Promise<string> {
  const home = await newHome(t);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  writeFileSync(join(home, "state", "usage.db"), log, { mode: 0o600 });
  return home;
}

/** What may have become of a log between two runs. */
const DAMAGE: Readonly<Record<string, (file: string) => void>> = {
  "noise at its beginning": (file) => overwrite(file, 0, noise(4096)),
  "noise in the middle": (file) =>
    overwrite(file, Math.floor(statSync(file).size / 8192) * 4096, noise(4096)),
  "noise in its header": (file) => overwrite(file, 16, noise(80)),
  "half of it missing": (file) => truncateSync(file, Math.floor(statSync(file).size / 8192) * 4096),
  "a part of a page missing": (file) => truncateSync(file, statSync(file).size - 100),
  "no database at all": (file) => writeFileSync(file, "hello\n".repeat(2000)),
  "nothing in it": (file) => truncateSync(file, 0),
  "nothing in it, beside a WAL": (file) => {
    copyFileSync(file, `${file}-wal`);
    truncateSync(file, 0);
  },
  "a WAL of noise": (file) => writeFileSync(`${file}-wal`, noise(40_000)),
  "an shm of noise": (file) => writeFileSync(`${file}-shm`, noise(32_768)),
  // Nothing leads to the records any more; what one that runs has in memory, it may never read again.
  "noise where its tables begin": (file) => overwrite(file, 8192, noise(4096)),
};

t.test("LOG-07 a damaged log is kept aside, and keybearer serves", async (t) => {
  const first = await startLogScene(t);
  const old = Array.from({ length: 10 }, async (_, lane) => {
    for (let n = 0; n < 30; n += 1) await (await chat(first, `old-${lane}-${n}`)).text();
  });
  await Promise.all(old);
  await first.daemon.stop();
  const good = readFileSync(first.file);
  const before = recordsIn(first.file).length;
  t.equal(before, 300);
  for (const side of ["-wal", "-shm"]) rmSync(first.file + side, { force: true });

  for (const [what, damage] of Object.entries(DAMAGE)) {
    await t.test(`at the start: ${what}`, async (t) => {
      const home = await homeWith(t, good);
      const state = join(home, "state");
      const file = join(state, "usage.db");
      damage(file);
      const damaged = readFileSync(file);
      const it = await startLogScene(t, home);
      const answer = await chat(it, "new");
      await answer.text();
      t.equal(answer.status, 200, "it serves");
      t.match(await finishedModel(it.file, "new"), { end: "complete", input_tokens: 12 });
      const kept = () => readdirSync(state).filter((name) => name.startsWith("usage.db.corrupt-"));
      const { usage } = await it.daemon.status();
      t.equal(usage.state, "ok");
      if (kept().length > 0) {
        const aside = kept().find((name) => !/-(?:wal|shm)$/.test(name)) ?? "";
        t.ok(readFileSync(join(state, aside)).equals(damaged), "byte for byte as it was");
        t.match(it.logText(), /usage log is damaged/, "said in the log");
        t.ok(
          usage.aside.some((one) => one.file === join(state, aside)),
          "said in status",
        );
        await salvaged(it);
      } else t.ok(recordsIn(it.file).length > 1 || damaged.length === 0, "or it was not damaged after all");
      const saved = recordsIn(it.file).length - 1;
      t.comment(`${what}: ${saved} of ${before} saved`);
      if (/middle|part of a page/.test(what)) t.ok(saved > before / 2, `most were saved (${saved})`);
      if (/half/.test(what)) t.ok(saved > before / 10, `what lies in the other half was saved (${saved})`);
      t.strictSame(faultsIn(it.file), []);
    });
  }

  for (const what of [
    "noise in the middle",
    "half of it missing",
    "a part of a page missing",
    "nothing in it",
  ]) {
    const damage = DAMAGE[what] ?? t.fail;
    await t.test(`while it runs: ${what}`, async (t) => {
      const it = await startLogScene(t, await homeWith(t, good));
      await (await chat(it, "before")).text();
      const streams = await startStreams(it, ["a", "b"]);
      outside(damage, it.file);
      await streams.end(t);
      await servesAgain(t, it, "after");
      await salvaged(it);
      await it.daemon.stop();
      // What nobody came upon while it ran is found by the next one.
      const again = await startWithOneTool(t, it.gateway.origin, { home: it.home });
      await salvaged(again);
      t.match((await again.daemon.status()).usage, { state: "ok" });
      const records = recordsIn(it.file);
      t.comment(`${what}: ${records.length} of ${before + 4} are there`);
      // What is overwritten under a program that has it in memory may never be read again, and so not be noticed.
      const models = /missing|middle|nothing/.test(what) ? ["a", "b", "after"] : [];
      for (const model of models) {
        const mine = records.filter((record) => record.model === model && record.end !== "refused");
        t.strictSame(
          mine.map(({ end }) => end),
          ["complete"],
          `${model} has one record`,
        );
      }
      // SQLite reads zeroes where a page ends too early. Written again before anybody looked, it holds them for good, and
      // the numbers of an old record with them.
      if (what !== "a part of a page missing") t.strictSame(faultsIn(it.file), []);
    });
  }
});

/** By a process of its own, as somebody else would: see copyFileOutside. */
function outside(damage: (file: string) => void, file: string): void {
  const script = `const { readFileSync, writeFileSync, truncateSync, statSync, copyFileSync } = require("node:fs");
const noise = ${noise.toString()};
const overwrite = (file, at, bytes) => {
  const { openSync, writeSync, closeSync } = require("node:fs");
  const fd = openSync(file, "r+");
  writeSync(fd, bytes, 0, bytes.length, at);
  closeSync(fd);
};
(${damage.toString()})(process.argv[1]);`;
  execFileSync(process.execPath, ["-e", script, file]);
}

t.test("a log that is not ours to write is left as it is, and nothing is sent", async (t) => {
  const foreign: Readonly<Record<string, (file: string) => void>> = {
    "a newer keybearer": (file) => pragma(file, "PRAGMA log.user_version = 99"),
    "another program": (file) => pragma(file, "PRAGMA log.application_id = 7"),
  };
  for (const [whose, change] of Object.entries(foreign)) {
    const home = await newHome(t);
    const file = join(home, "state", "usage.db");
    mkdirSync(join(home, "state"), { mode: 0o700 });
    openForWriting(file, { sync: "normal" }).close();
    change(file);
    const before = readFileSync(file);
    const it = await startLogScene(t, home);
    await refusesAll(t, it);
    await it.daemon.stop();
    t.ok(readFileSync(file).equals(before), `${whose}: not a byte of it has changed`);
    t.strictSame(
      readdirSync(join(home, "state")).filter((name) => name.includes("corrupt")),
      [],
      `${whose}: and it lies where it lay`,
    );
  }
});

t.test("a folder in the log's place is left alone, and nothing is sent until it is gone", async (t) => {
  const home = await newHome(t);
  const file = join(home, "state", "usage.db");
  mkdirSync(join(file, "theirs"), { recursive: true, mode: 0o700 });
  const it = await startLogScene(t, home);
  await refusesAll(t, it);
  t.strictSame(readdirSync(file), ["theirs"]);
  rmSync(file, { recursive: true });
  await servesAgain(t, it, "after");
  await oneRecordEach(t, it);
});

function pragma(file: string, sql: string): void {
  const { db, close } = openForWriting(file, { sync: "normal" });
  db.exec(sql);
  close();
}
