import { execFileSync } from "node:child_process";
import {
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import t from "tap";
import { openForReading, openForWriting } from "../../../src/usage/ledger/connect.ts";
import { until } from "../../doubles/until.ts";
import { heldBeat, newFolder, openAll, opening, startLedger } from "./ledger-under-test.ts";

const NOBODY = 65_534;

t.test("a folder in the log's place is left alone, and requests are refused until it is gone", async (t) => {
  const file = join(newFolder(t), "usage.db");
  mkdirSync(file, { mode: 0o755 });
  const beat = heldBeat();
  const { ledger } = startLedger(t, { file, beat });
  t.match(ledger.state(), {
    condition: "unavailable",
    reason: /there is a folder in its place/,
    next: /^mv /,
  });
  t.equal(await ledger.open(opening()), false);
  beat.pass();
  t.same(readdirSync(dirname(file)), ["usage.db"], "also after it was tried again");
  t.equal(statSync(file).mode & 0o777, 0o755);
  t.match(openForReading(file), { ok: false, why: "foreign", words: /there is a folder in its place/ });
  rmdirSync(file);
  beat.pass();
  t.ok(ledger.available(), "then it goes on");
});

t.test("nor is a pipe waited for", async (t) => {
  const file = join(newFolder(t), "usage.db");
  execFileSync("mkfifo", [file]);
  const { ledger } = startLedger(t, { file });
  t.match(ledger.state(), { condition: "unavailable", reason: /a device or a pipe in its place/ });
  t.ok(lstatSync(file).isFIFO());
});

t.test("nor is a link that leads nowhere replaced", async (t) => {
  const file = join(newFolder(t), "usage.db");
  symlinkSync("/nowhere/usage.db", file);
  const { ledger } = startLedger(t, { file });
  t.match(ledger.state(), { condition: "unavailable", reason: /a link in its place that leads nowhere/ });
  t.ok(lstatSync(file).isSymbolicLink());
});

t.test("a folder that comes into the place of an open log is left alone", async (t) => {
  const { ledger, file } = startLedger(t);
  const running = opening();
  await openAll(ledger, [running]);
  rmSync(file);
  mkdirSync(file);
  await until("it is noticed", () => !ledger.available());
  t.match(ledger.state(), { reason: /there is a folder in its place/ });
  t.ok(statSync(file).isDirectory());
});

const root = process.geteuid?.() === 0;

t.test(
  "the log of another user is not touched",
  { skip: !root && "only root can be somebody else" },
  async (t) => {
    const folder = newFolder(t);
    const file = join(folder, "usage.db");
    openForWriting(file, { sync: "normal" }).close();
    const before = readFileSync(file);
    for (const mode of ["600", "644", "666"]) {
      execFileSync("chmod", [mode, file]);
      chownSync(folder, NOBODY, NOBODY);
      process.seteuid?.(NOBODY);
      const { ledger } = startLedger(t, { file });
      const state = ledger.state();
      await ledger.stop();
      process.seteuid?.(0);
      t.match(state, { condition: "unavailable", reason: /belongs to another user/, next: /^mv / }, mode);
      t.same(readdirSync(folder), ["usage.db"]);
      t.equal((statSync(file).mode & 0o777).toString(8), mode);
      t.ok(before.equals(readFileSync(file)));
    }
  },
);

t.test("nor when it is damaged", { skip: !root && "only root can be somebody else" }, async (t) => {
  for (const [owner, user] of [
    [0, NOBODY],
    [NOBODY, 0],
  ] as const) {
    const folder = newFolder(t);
    const file = join(folder, "usage.db");
    writeFileSync(file, "not a database ".repeat(1000), { mode: 0o644 });
    chownSync(file, owner, owner);
    chownSync(folder, user, user);
    process.seteuid?.(user);
    const { ledger } = startLedger(t, { file });
    const state = ledger.state();
    await ledger.stop();
    process.seteuid?.(0);
    t.match(state, { condition: "unavailable", reason: /belongs to another user/ }, `user ${user}`);
    t.same(readdirSync(folder), ["usage.db"]);
    t.equal(readFileSync(file, "utf8").slice(0, 5), "not a");
  }
});
