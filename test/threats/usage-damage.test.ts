import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { dayOf } from "../../src/usage/journal/files.ts";
import { exportedRecords, newHome } from "../doubles/command.ts";
import { writeTrust } from "../doubles/journal.ts";
import {
  chat,
  oneRecordEach,
  PACED_START,
  refusesAll,
  servesAgain,
  startPacedDaemon,
} from "../doubles/paced-daemon.ts";
import { finishedModel, recordsIn } from "../doubles/usage-file.ts";

const noise = (bytes: number) => Buffer.from(Array.from({ length: bytes }, (_, n) => (n * 7919 + 13) % 251));

function overwrite(file: string, at: number, bytes: Buffer): void {
  const whole = readFileSync(file);
  bytes.copy(whole, at);
  writeFileSync(file, whole);
}

/** What may have become of a journal file between two runs. */
const DAMAGE: Readonly<Record<string, (file: string) => void>> = {
  "noise at its beginning": (file) => overwrite(file, 0, noise(4096)),
  "noise in the middle": (file) => overwrite(file, Math.floor(statSync(file).size / 2), noise(4096)),
  "half of it missing": (file) => truncateSync(file, Math.floor(statSync(file).size / 2)),
  "its last byte missing": (file) => truncateSync(file, statSync(file).size - 1),
  "nothing in it": (file) => truncateSync(file, 0),
  "zeroes at its end": (file) =>
    writeFileSync(file, Buffer.concat([readFileSync(file), Buffer.alloc(10_000)])),
  "no journal at all": (file) => writeFileSync(file, "hello\n".repeat(2000)),
};

/** A home whose journal has one file of today. */
async function homeWith(t: Test, journal: Buffer): Promise<{ readonly home: string; readonly file: string }> {
  const home = await newHome(t);
  const file = join(home, "state", "usage", `${dayOf(PACED_START)}.jsonl`);
  mkdirSync(join(home, "state", "usage"), { recursive: true, mode: 0o700 });
  writeFileSync(file, journal, { mode: 0o600 });
  writeTrust(join(home, "state"));
  return { home, file };
}

t.test(
  "LOG-07 what can be read of a damaged journal counts, the rest is reported, and keybearer serves",
  async (t) => {
    const first = await startPacedDaemon(t);
    const lanes = Array.from({ length: 10 }, async (_, lane) => {
      for (let n = 0; n < 10; n += 1) await (await chat(first, `old-${lane}-${n}`)).text();
    });
    await Promise.all(lanes);
    await first.daemon.stop();
    const [name = ""] = readdirSync(first.file);
    const good = readFileSync(join(first.file, name));
    const before = recordsIn(first.file).length;
    t.equal(before, 100);

    for (const [what, damage] of Object.entries(DAMAGE)) {
      await t.test(what, async (t) => {
        const { home, file } = await homeWith(t, good);
        damage(file);
        const readable = recordsIn(join(home, "state", "usage")).length;
        if (/middle|half/.test(what)) t.ok(readable > before / 3, `most can be read (${readable})`);
        const it = await startPacedDaemon(t, home);
        const answer = await chat(it, "new");
        await answer.text();
        t.equal(answer.status, 200, "it serves");
        t.match(await finishedModel(it.file, "new"), { end: "complete", input_tokens: 12 });
        t.equal((await exportedRecords(t, home)).length, readable + 1, "usage shows what can be read");
        const { usage } = await it.daemon.status();
        t.equal(usage.state, "ok");
        const damaged = usage.index.damaged_lines ?? 0;
        t.equal(/last byte|nothing/.test(what), damaged === 0, `${damaged} damaged lines`);
        if (damaged > 0) t.match(usage.warnings.join(), /damaged lines of the usage log/, "status says so");
      });
    }
  },
);

t.test(
  "a file or folder in the log's place is left alone, and nothing is sent until it is gone",
  async (t) => {
    const day = `${dayOf(PACED_START)}.jsonl`;
    const inTheWay: Readonly<Record<string, (state: string) => string>> = {
      "a file where the folder belongs": (state) => {
        writeFileSync(join(state, "usage"), "mine");
        return join(state, "usage");
      },
      "a folder where today's file belongs": (state) => {
        mkdirSync(join(state, "usage", day), { recursive: true, mode: 0o700 });
        return join(state, "usage", day);
      },
    };
    for (const [what, put] of Object.entries(inTheWay)) {
      await t.test(what, async (t) => {
        const home = await newHome(t);
        mkdirSync(join(home, "state"), { mode: 0o700 });
        writeTrust(join(home, "state"));
        const path = put(join(home, "state"));
        const it = await startPacedDaemon(t, home);
        await refusesAll(t, it);
        t.ok(statSync(path), "it is left as it is");
        rmSync(path, { recursive: true });
        await servesAgain(t, it, "after");
        await oneRecordEach(t, it);
      });
    }
  },
);
