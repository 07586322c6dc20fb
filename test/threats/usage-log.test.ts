import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import t, { type Test } from "tap";
import { openForWriting } from "../../src/usage/ledger/connect.ts";
import { startBookedGateway } from "../doubles/booked-gateway.ts";
import { newHome, saveConfig, startServing } from "../doubles/command.ts";
import { canaryKey, freshToken } from "../doubles/daemon-under-test.ts";
import {
  chat,
  type LogScene,
  oneRecordEach,
  refusesAll,
  servesAgain,
  startLogScene,
  startStreams,
} from "../doubles/log-scene.ts";
import { openRaw } from "../doubles/raw-client.ts";
import { mountSmallDisk, type SmallDisk } from "../doubles/small-disk.ts";
import { post } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";
import { faultsIn, finishedModel, recordsIn } from "../doubles/usage-file.ts";

/** Asks until it is refused, which a disk that says no may take a few calls for. */
async function refusedSoon(it: LogScene, round: string): Promise<Response> {
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
async function flood(t: Test, it: LogScene, count: number): Promise<void> {
  const client = await openRaw(t, it.port);
  const auth = { Host: it.host, Authorization: `Bearer ${it.token}` };
  client.send(post("POST /v1/chat/completions", auth, '{"model":"flood"}').repeat(count));
  const answers = () => client.text().split("HTTP/1.1 503").length - 1;
  await until("all of them are refused", () => answers() === count);
}

async function smallDisk(t: Test, megabytes: number): Promise<{ disk: SmallDisk; it: LogScene } | null> {
  const disk = mountSmallDisk(t, megabytes);
  return disk === null ? null : { disk, it: await startLogScene(t, disk.folder) };
}

t.test(
  "LOG-05 on a full disk what runs is finished, and nothing new is begun until there is room",
  async (t) => {
    const small = await smallDisk(t, 4);
    if (small === null) return;
    const { disk, it } = small;
    await (await chat(it, "before")).text();
    for (const round of ["first", "second"]) {
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
    t.ok(recordsIn(it.file).filter(({ refusal }) => refusal === "log-unavailable").length >= 6);
  },
);

t.test(
  "LOG-06 a log that is taken away while it is open is noticed, and nothing under way is lost",
  async (t) => {
    await t.test("in a folder that cannot be written to it does not start, and says why", async (t) => {
      const home = await newHome(t);
      const state = join(home, "state");
      mkdirSync(state, { mode: 0o700 });
      const disk = process.getuid?.() === 0 ? mountSmallDisk(t, 8, state) : null;
      if (disk !== null) disk.readOnly(true);
      else if (process.getuid?.() !== 0) chmodSync(state, 0o500);
      else return;
      await t.rejects(startLogScene(t, home), { message: /cannot lock .*lock\.db/ });
      if (disk !== null) disk.readOnly(false);
      else chmodSync(state, 0o700);
      const it = await startLogScene(t, home);
      await servesAgain(t, it, "again");
      await oneRecordEach(t, it);
    });

    await t.test("the files are deleted", async (t) => {
      const it = await startLogScene(t);
      await (await chat(it, "before")).text();
      await finishedModel(it.file, "before");
      const streams = await startStreams(it, ["a", "b"]);
      const since = it.gateway.calls.length - 2;
      for (const side of ["", "-wal", "-shm"]) rmSync(it.file + side);
      await until("a new one is there", () => existsSync(it.file));
      await streams.end(t);
      await servesAgain(t, it, "after");
      await oneRecordEach(t, it, since);
      const { usage } = await it.daemon.status();
      t.match(usage.warnings.join(), /usage\.db.*gone/, "status tells");
    });

    await t.test("another file takes its place", async (t) => {
      const it = await startLogScene(t);
      await (await chat(it, "before")).text();
      await finishedModel(it.file, "before");
      const streams = await startStreams(it, ["a", "b"]);
      const since = it.gateway.calls.length - 2;
      const other = join(it.places.state, "other");
      copyFileOutside(it.file, other);
      renameSync(other, it.file);
      await until("it is noticed", async () => (await it.daemon.status()).usage.warnings.length > 0);
      await streams.end(t);
      await servesAgain(t, it, "after");
      await oneRecordEach(t, it, since);
    });

    await t.test("the folder is moved away and comes back", async (t) => {
      const it = await startLogScene(t);
      await (await chat(it, "before")).text();
      await finishedModel(it.file, "before");
      const streams = await startStreams(it, ["a", "b"]);
      renameSync(it.places.state, `${it.places.state}-away`);
      await (await refusedSoon(it, "moved")).text();
      await refusesAll(t, it);
      await streams.end(t);
      renameSync(`${it.places.state}-away`, it.places.state);
      await servesAgain(t, it, "after");
      await oneRecordEach(t, it);
    });
  },
);

/** By a process of its own: to close a descriptor of the log here would drop its locks. */
function copyFileOutside(from: string, to: string): void {
  execFileSync("cp", [from, to]);
}

t.test("LOG-13 while another process holds the lock, nothing waits for it but the log", async (t) => {
  const gateway = await startBookedGateway(t, { pause: () => wait(40), events: () => 10 });
  const home = await newHome(t);
  const { token, hash } = freshToken();
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: ${gateway.origin}/v1\ntools: { codex: { key: ${canaryKey()}, token: "${hash}" } }\n`,
  );
  const running = await startServing(t, home);
  const file = join(home, "state", "usage.db");
  const ask = async (marker: string) => {
    const answer = await fetch(`${running.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "x-marker": marker },
      body: JSON.stringify({ model: marker, stream: true, messages: [] }),
    });
    return { status: answer.status, text: await answer.text() };
  };
  const early = Array.from({ length: 10 }, (_, n) => ask(`early-${n}`));
  await until("they are at the gateway", () => gateway.book.length === 10);
  const { db, close } = openForWriting(file, { sync: "normal" });
  db.exec("BEGIN EXCLUSIVE");
  const late: ReturnType<typeof ask>[] = [];
  for (let n = 0; n < 20; n += 1) {
    late.push(ask(`late-${n}`));
    t.equal((await fetch(`${running.url}/healthz`)).status, 200, "others are answered");
  }
  // One that comes right behind another, before the lock is noticed, is noted beside the log.
  const noted = readFileSync(`${file}-slips`, "utf8");
  const unwritten = gateway.book.slice(10).filter(({ marker }) => !noted.includes(`"model":"${marker}"`));
  t.strictSame(unwritten, [], "nothing was sent that could not be written down");
  t.ok(gateway.book.length < 30, "and the others wait");
  for (const { text } of await Promise.all(early)) t.match(text, /\[DONE\]/, "what was under way came whole");
  db.exec("ROLLBACK");
  close();
  for (const { status, text } of await Promise.all(late)) {
    t.equal(status, 200);
    t.match(text, /\[DONE\]/, "what waited was sent then");
  }
  running.child.kill("SIGTERM");
  t.equal((await running.ended).code, 0);
  const ends = recordsIn(file).map(({ model, end }) => `${model} ${end}`);
  const wanted = gateway.book.map(({ marker }) => `${marker} complete`);
  t.strictSame(ends.toSorted(), wanted.toSorted(), "each has one record, and none is lost");
  t.strictSame(faultsIn(file), []);
});
