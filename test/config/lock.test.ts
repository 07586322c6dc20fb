import { spawnSync } from "node:child_process";
import {
  lstatSync,
  lutimesSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import t from "tap";
import { createConfig, underLock, writeConfig } from "../../src/config/edit-file.ts";
import { systemClock } from "../../src/core/clock.ts";

/** The id of a process that has ended. */
function deadPid(): string {
  return String(spawnSync(process.execPath, ["-e", "0"]).pid);
}

t.test("a second owner waits until the lock is free", async (t) => {
  const lock = join(t.testdir({}), "lock");
  symlinkSync(String(process.ppid), lock);
  let done = false;
  const work = underLock(lock, () => (done = true), systemClock);
  // It looks every 12 ms at the latest, by a timer of this process, and timers go off in order.
  await new Promise((resolve) => setTimeout(resolve, 60));
  t.equal(done, false, "not while another process has it");
  unlinkSync(lock);
  await work;
  t.equal(done, true);
  t.throws(() => lstatSync(lock), { code: "ENOENT" }, "and it is given back");
});

t.test("the lock of a process that was killed, or that hangs, blocks no other process", async (t) => {
  const dir = t.testdir({});
  const lock = join(dir, "lock");
  symlinkSync(deadPid(), lock);
  t.equal(await underLock(lock, () => "dead", systemClock), "dead");
  symlinkSync(String(process.ppid), lock);
  lutimesSync(lock, Date.now() / 1000 - 11, Date.now() / 1000 - 11);
  t.equal(await underLock(lock, () => "hangs", systemClock), "hangs");
  t.same(readdirSync(dir), []);
});

t.test("work that fails gives the lock back", async (t) => {
  const lock = join(t.testdir({}), "lock");
  const fails = underLock(
    lock,
    () => {
      throw new Error("no");
    },
    systemClock,
  );
  await t.rejects(fails, { message: "no" });
  t.throws(() => lstatSync(lock), { code: "ENOENT" });
});

t.test("a lock that is never given back ends in a reason, and nothing is written", async (t) => {
  const dir = t.testdir({ "config.yaml": "old" });
  symlinkSync(String(process.ppid), join(dir, ".config.yaml.lock"));
  const { mtimeMs } = lstatSync(join(dir, ".config.yaml.lock"));
  let elapsed = 0;
  const clock = { now: () => mtimeMs, elapsed: () => (elapsed += 5000) };
  const result = await writeConfig(join(dir, "config.yaml"), "old", "new", clock);
  t.match(result, { ok: false, isStale: false, problem: /another keybearer command has held .* for 15 s/ });
  t.equal(readFileSync(join(dir, "config.yaml"), "utf8"), "old");
});

t.test(
  "a new config.yaml is whole and its owner's alone, and never takes the place of another",
  async (t) => {
    const dir = t.testdir({});
    const file = join(dir, "deep", "er", "config.yaml");
    t.same(await createConfig(file, "new\n"), { ok: true });
    t.equal(readFileSync(file, "utf8"), "new\n");
    t.equal(lstatSync(file).mode & 0o777, 0o600);
    t.equal(lstatSync(join(dir, "deep")).mode & 0o777, 0o700);
    t.match(await createConfig(file, "other\n"), {
      ok: false,
      problem: /exists already and was left as it is/,
    });
    t.equal(readFileSync(file, "utf8"), "new\n");
    symlinkSync(join(dir, "nowhere"), join(dir, "config.yaml"));
    t.match(await createConfig(join(dir, "config.yaml"), "other\n"), { ok: false });
    writeFileSync(join(dir, "file"), "");
    t.match(await createConfig(join(dir, "file", "config.yaml"), "new\n"), { ok: false, isStale: false });
    t.same(readdirSync(join(dir, "deep", "er")), ["config.yaml"], "nothing is left beside it");
  },
);
