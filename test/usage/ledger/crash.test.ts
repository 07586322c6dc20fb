import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { createTally, SUMS } from "../../../src/usage/ledger/cells.ts";
import { until } from "../../doubles/until.ts";
import { ask, isSound, newFolder, recordsIn, startLedger } from "./ledger-under-test.ts";

interface Told {
  readonly opened: Set<string>;
  readonly closed: Set<string>;
}

function startWriter(t: Test, file: string, told: Told): ChildProcess {
  const child = fork(join(import.meta.dirname, "write-for-ever.js"), [file], {
    execArgv: [],
    stdio: "inherit",
  });
  t.teardown(() => child.kill("SIGKILL"));
  child.on("message", (message: { readonly opened?: string; readonly closed?: string }) => {
    if (message.opened !== undefined) told.opened.add(message.opened);
    if (message.closed !== undefined) told.closed.add(message.closed);
  });
  return child;
}

t.test(
  "after kill -9 in the middle of writing every record is there once, and the sums are right",
  async (t) => {
    const file = join(newFolder(t), "usage.db");
    const told: Told = { opened: new Set(), closed: new Set() };
    for (let round = 0; round < 3; round += 1) {
      const before = told.closed.size;
      const child = startWriter(t, file, told);
      // The first one is killed while it makes the file.
      if (round === 0) await until("the file is there", () => existsSync(file));
      else await until("it writes", () => told.closed.size > before + 100 + round * 37);
      child.kill("SIGKILL");
      await once(child, "exit");
    }
    const finished = new Map(recordsIn(file).map((record) => [record.id, record]));
    const { ledger } = startLedger(t, { file });
    t.equal(ledger.available(), true);
    const records = recordsIn(file);
    const ids = new Set(records.map(({ id }) => id));
    t.equal(ids.size, records.length, "each once");
    t.same(
      [...told.opened].filter((id) => !ids.has(id)),
      [],
      "every one of which was said that it is on disk",
    );
    const ends = new Map(records.map(({ id, end }) => [id, end]));
    t.same(
      [...told.closed].filter((id) => ends.get(id) !== "complete"),
      [],
      "what was completed stays so",
    );
    t.same(new Set(ends.values()), new Set(["complete", "interrupted"]), "the rest was cut off");
    t.ok(
      records.every((record) => {
        const was = finished.get(record.id);
        return was === undefined || was.end === null || JSON.stringify(was) === JSON.stringify(record);
      }),
      "finished records are unchanged",
    );
    const tally = createTally();
    for (const record of records) tally.count(record);
    const expected = [...tally.cells()].reduce((sum, cell) => sum + cell.sums.requests, 0);
    const sums = ask(file, `SELECT ${SUMS.map((name) => `sum(${name})`).join(", ")} FROM cells`).flat();
    t.equal(sums[0], expected);
    t.equal(sums[SUMS.indexOf("interrupted")], records.filter(({ end }) => end === "interrupted").length);
    t.ok(isSound(file));
  },
);
