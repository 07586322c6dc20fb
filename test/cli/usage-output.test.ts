import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { openForWriting } from "../../src/usage/ledger/connect.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { bareEnv, builtProgram, command, newHome, startProgram } from "../doubles/command.ts";
import { record, writeRecords } from "../doubles/records.ts";

const DAY = 86_400_000;

async function homeWith(t: Test, records: readonly UsageRecord[]): Promise<string> {
  const home = await newHome(t);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  writeRecords(join(home, "state", "usage.db"), records);
  return home;
}

t.test("what was pruned is told of where a report leaves it out", async (t) => {
  const home = await homeWith(t, [record(1, { started_at: 5 })]);
  const now = Date.now();
  const kept = now - (now % DAY);
  const { db, close } = openForWriting(join(home, "state", "usage.db"), { sync: "normal" });
  db.exec(`DELETE FROM log.records; INSERT INTO log.facts VALUES ('kept_from', '${kept}')`);
  close();
  const usage = (...args: string[]) => command(t, home, ["usage", ...args], { env: { TZ: "UTC" } });
  const [words, whole, part] = await Promise.all([
    usage("--until", "2020-01-01"),
    usage("--since", "all", "--json"),
    usage("--until", "2020-01-01", "--json"),
  ]);
  t.match(
    words.stdout.replace(/\n +/g, " "),
    /^nothing was recorded in it\nbefore .* 00:00 only sums are kept \(usage\.keep\): keybearer usage --since all/m,
  );
  const found = JSON.parse(whole.stdout);
  t.match(found, { total: { requests: 1, first_byte_p50_ms: Number }, first_byte_exact: false });
  t.equal(found.only_sums_before, null);
  t.match(JSON.parse(part.stdout), { total: { requests: 0 }, only_sums_before: kept });
});

t.test(
  "output that cannot be written is said in words, and a reader that went away not at all",
  async (t) => {
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
    const commands = [
      "usage",
      "usage --json",
      "usage --csv",
      "usage export",
      "usage show last",
      "usage tail",
    ];
    for (const words of commands) {
      const { code, stderr } = await into(words, `> ${full}`).ended;
      t.equal(code, 1, words);
      // A tail may say before that it waits.
      const said = stderr.replace(/^keybearer is not running; .*\n/, "");
      t.match(said, /^the output cannot be written: ENOSPC.* → write it somewhere else\n$/);
    }
    for (const words of ["usage", "usage show last"]) {
      const gone = into(words, "");
      gone.child.stdout?.destroy();
      const { code, stderr } = await gone.ended;
      t.same({ code, stderr }, { code: 0, stderr: "" }, `${words}: nobody reads`);
    }
  },
);
