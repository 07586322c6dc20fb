import { type ChildProcess, execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { LedgerState } from "../../../src/usage/ledger/state.ts";
import { until } from "../../doubles/until.ts";
import { closing, isSound, newFolder, opening, recordsIn, startLedger } from "./ledger-under-test.ts";

/** A disk of a few hundred kilobytes, where root may have one. */
function smallDisk(t: Test): string | null {
  const folder = newFolder(t);
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=600k,mode=700", "keybearer-test", folder], {
      stdio: "ignore",
    });
  } catch {
    return null;
  }
  t.teardown(() => execFileSync("umount", [folder]));
  return folder;
}

t.test(
  "on a full disk requests under way finish, new ones are refused, and it goes on when there is room",
  async (t) => {
    const folder = smallDisk(t);
    if (folder === null) return void t.skip("only root can mount a small disk", async () => {});
    const file = join(folder, "usage.db");
    const { ledger } = startLedger(t, { file });
    const done: string[] = [];
    const running: string[] = [];
    // Until the disk is full.
    for (let i = 0; ledger.available() && i < 20_000; i += 1) {
      const one = opening();
      if (!(await ledger.open(one))) break;
      if (i % 3 === 0) {
        ledger.close(one.id, closing());
        // Everything finished is written before the log is asked.
        if (ledger.ask(() => true) === true) done.push(one.id);
        else running.push(one.id);
      } else running.push(one.id);
    }
    t.equal(ledger.available(), false);
    t.match(ledger.state(), { reason: /disk is full|disk failed/, lost: 0 });
    t.match(ledger.state().next, /it goes on by itself/);
    for (const id of running.slice(0, 100)) ledger.close(id, closing());
    t.equal(await ledger.open(opening()), false);
    const ends = () => new Map(recordsIn(file).map(({ id, end }) => [id, end]));
    const seen = ends();
    t.ok(
      done.every((id) => seen.get(id) === "complete"),
      "what was written is there",
    );
    const noted = readFileSync(`${file}-slips`, "utf8");
    t.ok(
      running.every((id) => seen.has(id) || noted.includes(id)),
      "every opening that was let through, too",
    );
    execFileSync("mount", ["-o", "remount,size=8m", folder]);
    await until("it is back", () => ledger.available());
    const after = ends();
    t.ok(
      running.slice(0, 100).every((id) => after.get(id) === "complete"),
      "what waited is written",
    );
    t.equal(ledger.state().waiting, 0);
    t.ok(isSound(file));
  },
);

interface Writer {
  readonly child: ChildProcess;
  readonly opened: Set<string>;
  readonly closed: Set<string>;
  state(): LedgerState | null;
}

function startWriter(t: Test, file: string): Writer {
  const child = fork(join(import.meta.dirname, "write-for-ever.js"), [file], {
    execArgv: [],
    stdio: "inherit",
  });
  t.teardown(() => child.kill("SIGKILL"));
  const [opened, closed] = [new Set<string>(), new Set<string>()];
  let state: LedgerState | null = null;
  child.on("message", (message: Partial<Record<"opened" | "closed", string>> & { state?: LedgerState }) => {
    if (message.opened !== undefined) opened.add(message.opened);
    if (message.closed !== undefined) closed.add(message.closed);
    if (message.state !== undefined) state = message.state;
  });
  return { child, opened, closed, state: () => state };
}

/** How large it may let a file become. */
function limitFiles({ child }: Writer, bytes: string): void {
  execFileSync("prlimit", ["--pid", String(child.pid), `--fsize=${bytes}:unlimited`]);
}

const noPrlimit = existsSync("/usr/bin/prlimit") ? false : "there is no prlimit here to lift the limit again";

t.test("a WAL that cannot grow makes the log unavailable until it can", { skip: noPrlimit }, async (t) => {
  const file = join(newFolder(t), "usage.db");
  const writer = startWriter(t, file);
  await until("it writes", () => writer.closed.size > 20);
  limitFiles(writer, String(statSync(`${file}-wal`).size + 100_000));
  await until("the limit is reached", () => writer.state()?.condition === "unavailable");
  t.match(writer.state(), { reason: /disk/, lost: 0 });
  const before = writer.closed.size;
  limitFiles(writer, "unlimited");
  await until("it is back", () => writer.state()?.condition === "ok" && writer.closed.size > before);
  writer.child.send("stop");
  await once(writer.child, "exit");
  const ends = new Map(recordsIn(file).map(({ id, end }) => [id, end]));
  t.same(
    [...writer.opened].filter((id) => !ends.has(id)),
    [],
  );
  t.same(
    [...writer.closed].filter((id) => ends.get(id) !== "complete"),
    [],
  );
  t.ok(isSound(file));
});
