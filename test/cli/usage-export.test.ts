import {
  createReadStream,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setImmediate as nextTurn } from "node:timers/promises";
import t, { type Test } from "tap";
import { openIndex } from "../../src/usage/index/database.ts";
import { EXPORTED, NOT_CLOSED, type UsageRecord } from "../../src/usage/record.ts";
import { exportedRecord } from "../../src/usage/reports/records.ts";
import { command, newHome, runProgram, start } from "../doubles/command.ts";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { serveControls } from "../doubles/idle-control.ts";
import { catchUp, writeJournal } from "../doubles/journal.ts";
import { startRecordingGateway } from "../doubles/recording-gateway.ts";
import { plausible, record } from "../doubles/records.ts";
import { mountSmallDisk } from "../doubles/small-disk.ts";
import { until } from "../doubles/until.ts";

const AT = Date.UTC(2026, 10, 1);
const DAY = 86_400_000;

async function homeWith(t: Test, records: Iterable<UsageRecord>): Promise<string> {
  const home = await newHome(t);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  writeJournal(join(home, "state", "usage"), records);
  return home;
}

/** The names in docs/usage-and-cost.md, in their order. */
const NAMES =
  "id started_at first_byte_at ended_at tool gateway group multiplier key protocol method endpoint model model_answered " +
  "stream status end cause cause_detail refusal input_tokens cache_read_tokens cache_write_tokens output_tokens reasoning_tokens " +
  "tokens_from list_microdollars cost_microdollars billed_microdollars bytes_in bytes_out waited_ms process session project branch token user_agent sent_at gateway_ids machine requests last_id";

t.test("every record is exported with all its fields, in their order", async (t) => {
  const records = [
    record(1, { started_at: AT }),
    record(2, { started_at: AT + 1, stream: false, tool: null, gateway_ids: {} }),
    record(3, { started_at: AT + 2, ...NOT_CLOSED, model: "gpt-5.1" }),
    record(4, { started_at: AT - 100 * DAY, model: 'a,"b"\n=1', end: "refused" }),
  ];
  const home = await homeWith(t, records);
  const json = await command(t, home, ["usage", "export"]);
  t.same([json.code, json.stderr], [0, ""]);
  const exported = JSON.parse(json.stdout);
  const [first0, second, third, fourth] = records.map(exportedRecord);
  t.same(exported, [fourth, first0, second, third], "oldest first, all times");
  for (const one of exported) t.equal(Object.keys(one).join(" "), NAMES);

  const lines = await command(t, home, ["usage", "export", "--jsonl"]);
  t.same(
    lines.stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line)),
    exported,
  );
  const csv = await command(t, home, ["usage", "export", "--csv"]);
  const [head, oldest, first] = csv.stdout.split("\r\n");
  t.equal(
    head,
    `${EXPORTED.join(",")},started_at_iso,first_byte_at_iso,ended_at_iso,list_dollars,cost_dollars,billed_dollars`,
  );
  t.match(oldest, ',"a,""b""?=1",');
  t.match(
    first,
    `${record(1, { started_at: AT }).id},${AT},${AT + 878},${AT + 2333},codex,main,coding,1.5,…a1b2,`,
  );
  t.match(
    first,
    /,true,200,complete,,,,1200,800,0,342,128,reported,5420,8130,,40192,18231,0,,,,,,,1793491200000,"\{""x-client/,
  );
  t.match(
    first,
    /,2026-11-01T00:00:00\.000Z,2026-11-01T00:00:00\.878Z,2026-11-01T00:00:02\.333Z,0\.00542,0\.00813,$/,
  );
});

longTest(
  t,
  "after the index is deleted under load, records come back in start order, each once",
  async (t) => {
    const gateway = await startRecordingGateway(t, { pause: () => nextTurn(), events: () => 3 });
    const { daemon, url, home, token, paths } = await startWithOneTool(t, gateway.origin);
    const exported = async (): Promise<UsageRecord[]> => {
      const { code, stdout } = await command(t, home, ["usage", "export"]);
      return code === 0 ? JSON.parse(stdout) : [];
    };
    let asked = 0;
    let loaded = true;
    const lanes = Array.from({ length: 8 }, async () => {
      while (loaded) {
        asked += 1;
        const marker = `m-${asked}`;
        const answer = await fetch(`${url}/v1/chat/completions`, {
          method: "POST",
          headers: { authorization: `Bearer ${token}`, "x-marker": marker },
          body: JSON.stringify({ model: marker, stream: true, messages: [] }),
        });
        await answer.text();
      }
    });
    await until("there is something to lose", async () => (await exported()).length > 100);
    for (const side of ["", "-wal", "-shm"]) rmSync(paths.index + side, { force: true });
    const before = gateway.arrivals.length;
    await until("everything of before is back", async () => {
      const records = await exported();
      t.ok(isInStartOrder(records), `${records.length} records in the order in which they began`);
      return records.length >= before;
    });
    loaded = false;
    await Promise.all(lanes);
    await daemon.stop();
    const records = await exported();
    t.ok(isInStartOrder(records), "in the order in which they began");
    t.same(
      records.map(({ model }) => model).toSorted(),
      gateway.arrivals.map(({ marker }) => marker).toSorted(),
      "every request that reached the gateway, once",
    );
  },
);

function isInStartOrder(records: readonly UsageRecord[]): boolean {
  return records.every((record, at) => {
    const last = records[at - 1];
    if (last === undefined || last.started_at < record.started_at) return true;
    return last.started_at === record.started_at && last.id < record.id;
  });
}

t.test("where nothing was recorded yet, the export is empty and valid", async (t) => {
  const home = await newHome(t);
  const json = await command(t, home, ["usage", "export"]);
  t.same([json.code, JSON.parse(json.stdout)], [0, []]);
  t.match(json.stderr, /there is no usage log yet/);
  const empty = await homeWith(t, []);
  writeFileSync(join(empty, "state", "usage", "2026-11-01.jsonl"), '{"kind":"carry","tools":0}\n');
  t.same(JSON.parse((await command(t, empty, ["usage", "export"])).stdout), []);
});

t.test("the export's file is private, and an existing file is left as it is", async (t) => {
  const home = await homeWith(t, [record(1)]);
  const file = join(home, "out.json");
  const first = await command(t, home, ["usage", "export", "-o", file]);
  t.same([first.code, first.stdout, first.stderr], [0, "", ""]);
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.same(JSON.parse(readFileSync(file, "utf8")), [exportedRecord(record(1))]);
  writeFileSync(file, "mine");
  const again = await command(t, home, ["usage", "export", "-o", file]);
  t.equal(again.code, 1);
  t.match(again.stderr, `${file} exists already and was left as it is`);
  t.equal(readFileSync(file, "utf8"), "mine");
  const nowhere = await command(t, home, ["usage", "export", "-o", join(home, "no", "folder.json")]);
  t.equal(nowhere.code, 1);
  t.match(nowhere.stderr, /^cannot write .*folder\.json: /);
});

t.test("an export that cannot be finished leaves no file that looks whole", async (t) => {
  const home = await homeWith(
    t,
    Array.from({ length: 1000 }, (_, number) => record(number, { started_at: AT + number })),
  );
  catchUp(join(home, "state"));
  const index = join(home, "state", "index.db");
  const bytes = readFileSync(index);
  bytes.fill(0xee, Math.floor(bytes.length / 2));
  writeFileSync(index, bytes);
  // A daemon that has not noticed the damage yet. Without one the index would be rebuilt first.
  await serveControls(t, home);
  const out = join(home, "out.json");
  const { code, stderr } = await command(t, home, ["usage", "export", "-o", out]);
  t.equal(code, 1);
  t.match(stderr, /^the usage index .*index\.db cannot be read: it is damaged → keybearer usage rebuild\n$/);
  t.notOk(existsSync(out));
});

t.test("a disk that fills up during an export is reported, and no file is left", async (t) => {
  const disk = mountSmallDisk(t, 1);
  if (disk === null) return;
  const home = await homeWith(t, [record(1)]);
  const large = await homeWith(t, plausible(2000, AT, 4));
  disk.fill();
  for (const from of [home, large]) {
    const out = join(disk.folder, "out.json");
    const { code, stderr } = await command(t, from, ["usage", "export", "-o", out]);
    t.equal(code, 1);
    t.match(stderr, /^the export was not finished: ENOSPC.*\n$/);
    t.notOk(existsSync(out));
  }
});

longTest(
  t,
  "an export needs little memory, ends when its reader leaves, and never holds a lock",
  async (t) => {
    const count = 20_000;
    const long = `/v1/${"x".repeat(1400)}`;
    const records = [...plausible(count, AT, 30)].map((one) => ({ ...one, endpoint: long }));
    const home = await homeWith(t, records);
    // All of them together are more than this; a page is not.
    const env = { NODE_OPTIONS: "--max-old-space-size=48" };
    const out = join(home, "all.jsonl");
    const whole = await runProgram(t, home, ["usage", "export", "--jsonl", "-o", out], { env });
    t.same([whole.code, whole.stderr], [0, ""]);
    t.ok(statSync(out).size > 40_000_000, "it would not have fitted");
    let [lines, before, ordered] = [0, "", true];
    for await (const line of createInterface({ input: createReadStream(out) })) {
      const { id } = JSON.parse(line);
      ordered &&= id > before;
      before = id;
      lines += 1;
    }
    t.same([lines, ordered], [count, true]);

    const piped = start(t, home, ["usage", "export"], { env });
    await piped.says(/"tool":/);
    piped.child.stdout?.destroy();
    const { code, stderr } = await piped.ended;
    t.same([code, stderr], [0, ""], "no word about a broken pipe");

    const stalled = start(t, home, ["usage", "export", "--jsonl"], { env });
    stalled.child.stdout?.pause();
    await until("it has begun", () => (stalled.child.stdout?.readableLength ?? 0) > 0);
    const writer = openIndex(join(home, "state", "index.db"));
    t.teardown(() => writer.close());
    const [busy] = writer.db.prepare("PRAGMA usage.wal_checkpoint(TRUNCATE)").raw().get() as number[];
    t.equal(
      busy,
      0,
      "while its reader stands still, it holds nothing that keeps the WAL from being taken over",
    );
    stalled.child.kill("SIGKILL");
  },
);
