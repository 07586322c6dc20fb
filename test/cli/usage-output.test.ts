import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import { bareEnv, builtProgram, newHome, startProgram } from "../doubles/command.ts";
import { writeJournal } from "../doubles/journal.ts";
import { record } from "../doubles/records.ts";

async function homeWith(t: Test, records: readonly UsageRecord[]): Promise<string> {
  const home = await newHome(t);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  writeJournal(join(home, "state", "usage"), records);
  return home;
}

t.test("output that cannot be written is reported in words", async (t) => {
  const full = "/dev/full";
  if (!existsSync(full)) return void t.skip(`there is no ${full} here`, async () => {});
  const home = await homeWith(t, [record(1, { started_at: Date.now() - 1000 })]);
  const into = (words: string, redirect: string) =>
    startProgram(
      t,
      "/bin/sh",
      ["-c", `exec "$0" "$@" ${redirect}`, process.execPath, builtProgram(), ...words.split(" ")],
      bareEnv(home),
    );
  // Each writes in its own way.
  for (const words of ["usage", "usage export", "usage tail"]) {
    const { code, stderr } = await into(words, `> ${full}`).ended;
    t.equal(code, 1, words);
    // A tail may say before that it waits.
    const said = stderr.replace(/^keybearer is not running; .*\n/, "");
    t.match(said, /^the output cannot be written: ENOSPC.* → write it somewhere else\n$/);
  }
});
