import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import Database from "libsql";
import t, { type Test } from "tap";
import { command, newHome } from "../doubles/command.ts";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { LONG, oneOf } from "../doubles/effort.ts";
import {
  chat,
  oneRecordEach,
  type PacedDaemon,
  refusesAll,
  servesAgain,
  startPacedDaemon,
  startStreams,
} from "../doubles/paced-daemon.ts";
import { openRaw } from "../doubles/raw-client.ts";
import { startRecordingGateway } from "../doubles/recording-gateway.ts";
import { mountSmallDisk, type SmallDisk } from "../doubles/small-disk.ts";
import { post } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";
import { faultsIn, finishedModel, indexFaults, recordsIn } from "../doubles/usage-file.ts";

/** Asks until it is refused, which a disk that says no may take a few calls for. */
async function refusedSoon(it: PacedDaemon, round: string): Promise<Response> {
  let number = 0;
  let refused: Response | null = null;
  await until("a call is refused", async () => {
    number += 1;
    const answer = await chat(it, `${round}-until-refused-${number}`);
    if (answer.status === 503) refused = answer;
    else await answer.text();
    return refused !== null;
  });
  if (refused === null) throw new Error("nothing was refused");
  return refused;
}

/** Over one connection, without waiting for an answer before the next one is asked. */
async function flood(t: Test, it: PacedDaemon, count: number): Promise<void> {
  const client = await openRaw(t, it.port);
  const auth = { Host: it.host, Authorization: `Bearer ${it.token}` };
  client.send(post("POST /v1/chat/completions", auth, '{"model":"flood"}').repeat(count));
  const answers = () => client.text().split("HTTP/1.1 503").length - 1;
  await until("all of them are refused", () => answers() === count);
}

async function smallDisk(t: Test, megabytes: number): Promise<{ disk: SmallDisk; it: PacedDaemon } | null> {
  const disk = mountSmallDisk(t, megabytes);
  return disk === null ? null : { disk, it: await startPacedDaemon(t, disk.folder) };
}

t.test(
  "LOG-05 on a full disk requests in flight finish, and no new one begins until there is space",
  async (t) => {
    const small = await smallDisk(t, 4);
    if (small === null) return;
    const { disk, it } = small;
    await (await chat(it, "before")).text();
    for (const round of oneOf(["first", "second"], "second")) {
      const streams = await startStreams(
        it,
        [1, 2, 3].map((n) => `${round}-stream-${n}`),
      );
      disk.fill();
      await (await refusedSoon(it, round)).text();
      await refusesAll(t, it);
      t.match((await it.daemon.status()).usage.why, /disk is full/);
      await streams.end(t);
      await until("they wait", async () => (await it.daemon.status()).usage.waiting >= 3);
      // A client that does not give up must not push out what was sent.
      if (round === "second") await flood(t, it, 1050);
      disk.free();
      await servesAgain(t, it, `${round}-again`);
      for (const n of [1, 2, 3]) {
        const record = await finishedModel(it.file, `${round}-stream-${n}`);
        t.match(record, { end: "complete", status: 200, input_tokens: 12, output_tokens: 3, stream: true });
      }
      await oneRecordEach(t, it);
    }
    t.ok(recordsIn(it.file).filter(({ refusal }) => refusal === "log-unavailable").length >= 3);
  },
);

t.test(
  "LOG-06 a log that is taken away while it is open is noticed, and nothing in flight is lost",
  async (t) => {
    await t.test("in a folder that cannot be written to it does not start, and says why", async (t) => {
      const home = await newHome(t);
      const state = join(home, "state");
      mkdirSync(state, { mode: 0o700 });
      const disk = process.getuid?.() === 0 ? mountSmallDisk(t, 8, state) : null;
      if (disk !== null) disk.readOnly(true);
      else if (process.getuid?.() !== 0) chmodSync(state, 0o500);
      else return;
      await t.rejects(startPacedDaemon(t, home), { message: /cannot lock .*lock\.db/ });
      if (disk !== null) disk.readOnly(false);
      else chmodSync(state, 0o700);
      const it = await startPacedDaemon(t, home);
      await servesAgain(t, it, "again");
      await oneRecordEach(t, it);
    });

    const changes: Readonly<Record<string, (folder: string) => void>> = {
      "today's file is deleted": (folder) => {
        for (const name of readdirSync(folder)) rmSync(join(folder, name));
      },
      "another file takes its place": (folder) => {
        for (const name of readdirSync(folder)) {
          copyFileSync(join(folder, name), join(folder, "copy"));
          renameSync(join(folder, "copy"), join(folder, name));
        }
      },
      "its folder is removed": (folder) => rmSync(folder, { recursive: true }),
    };
    for (const [what, change] of Object.entries(changes).slice(0, LONG ? 3 : 1)) {
      await t.test(what, async (t) => {
        const it = await startPacedDaemon(t);
        await (await chat(it, "before")).text();
        await finishedModel(it.file, "before");
        const streams = await startStreams(it, ["a", "b"]);
        const since = it.gateway.calls.length - 2;
        change(it.file);
        await until("it is noticed", async () => (await it.daemon.status()).usage.warnings.length > 0);
        await streams.end(t);
        await servesAgain(t, it, "after");
        await oneRecordEach(t, it, since);
        t.match((await it.daemon.status()).usage.warnings.join(), /\.jsonl was (?:deleted|replaced)/);
      });
    }

    await t.test("the folder is moved away and comes back", async (t) => {
      const it = await startPacedDaemon(t);
      await (await chat(it, "before")).text();
      await finishedModel(it.file, "before");
      const streams = await startStreams(it, ["a", "b"]);
      renameSync(it.paths.usage, `${it.paths.usage}-away`);
      writeFileSync(it.paths.usage, "in its way");
      await (await refusedSoon(it, "moved")).text();
      await refusesAll(t, it);
      await streams.end(t);
      rmSync(it.paths.usage);
      renameSync(`${it.paths.usage}-away`, it.paths.usage);
      await servesAgain(t, it, "after");
      await oneRecordEach(t, it);
    });
  },
);

t.test("LOG-13 no request waits for the index, even if another program locks or damages it", async (t) => {
  /** Each returns a function that ends it. */
  const faults: Readonly<Record<string, (file: string) => () => void>> = {
    locked: (file) => {
      const db = new Database(file, { timeout: 5000 });
      db.exec("BEGIN EXCLUSIVE");
      return () => db.close();
    },
    deleted: (file) => {
      for (const side of ["", "-wal", "-shm"]) rmSync(file + side, { force: true });
      return () => {};
    },
    "replaced by another file": (file) => {
      writeFileSync(`${file}-new`, "another program's\n".repeat(1000));
      renameSync(`${file}-new`, file);
      return () => {};
    },
    truncated: (file) => {
      truncateSync(file, Math.floor(statSync(file).size / 2));
      return () => {};
    },
    "filled with garbage": (file) => {
      const garbage = Buffer.from(Array.from({ length: statSync(file).size }, (_, n) => (n * 7919) % 251));
      writeFileSync(file, garbage);
      return () => {};
    },
  };
  const gateway = await startRecordingGateway(t, { pause: () => nextTurn(), events: () => 5 });
  const it = await startWithOneTool(t, gateway.origin);
  const { usage: folder, index } = it.paths;
  let number = 0;
  const ask = async () => {
    number += 1;
    const answer = await fetch(`${it.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${it.token}`, "x-marker": `m-${number}` },
      body: JSON.stringify({ model: `m-${number}`, stream: true, messages: [] }),
    });
    if (answer.status !== 200) throw new Error(`${answer.status}: ${await answer.text()}`);
    await answer.text();
  };
  const requestsPass = async () => {
    const enough = number + 40;
    await until("requests pass", () => number >= enough);
  };
  const readIndex = () => command(t, it.home, ["usage", "export", "--jsonl"]);
  for (const [what, fault] of Object.entries(faults).slice(0, LONG ? 5 : 2)) {
    await t.test(what, async (t) => {
      let done = false;
      const lanes = Array.from({ length: 8 }, async () => {
        while (!done) await ask();
      });
      await requestsPass();
      t.equal((await readIndex()).code, 0);
      const endFault = fault(index);
      // The index is written to and read while requests pass. What is printed may lack the newest records.
      const during = readIndex();
      await requestsPass();
      endFault();
      done = true;
      await Promise.all([...lanes, during]);
      const { code, stdout, stderr } = await readIndex();
      t.equal(code, 0, stderr);
      const exported = stdout
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line));
      const ends = (records: readonly { id: string; end: string | null }[]) =>
        records.map(({ id, end }) => `${id} ${end}`).toSorted();
      t.strictSame(ends(exported), ends(recordsIn(folder)), "usage equals the journal");
      t.strictSame(indexFaults(index), []);
    });
  }
  await it.daemon.stop();
  const markers = recordsIn(folder).map(({ model, end }) => `${model} ${end}`);
  t.strictSame(markers.toSorted(), gateway.arrivals.map(({ marker }) => `${marker} complete`).toSorted());
  t.strictSame(faultsIn(folder), []);
});
