import { existsSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import Database from "libsql";
import t, { type Test } from "tap";
import { findPaths, type Paths } from "../../src/core/paths.ts";
import { startDaemon } from "../../src/daemon/daemon.ts";
import {
  command,
  exportedRecords,
  newHome,
  runProgram,
  saveConfig,
  startServing,
} from "../doubles/command.ts";
import { startUnderTest } from "../doubles/daemon-under-test.ts";
import { LONG, longTest } from "../doubles/effort.ts";
import { credentials, startLimited, startPlayGateway, tally } from "../doubles/limited-journey.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

/** A home whose daemon has one tool, codex, before a gateway that does what the header x-play says. */
async function scene(t: Test) {
  const gateway = await startPlayGateway(t);
  const { key, token, hash } = credentials();
  const home = await newHome(t);
  const configure = (port: number) =>
    saveConfig(
      home,
      `listen: localhost:${port}\ngateway: ${gateway.baseUrl}\ntools: { codex: { key: ${key}, token: "${hash}" } }\n`,
    );
  await configure(0);
  const ask = (url: string, play: string) =>
    fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json", "x-play": play },
      body: '{"model":"penny","messages":[]}',
    });
  return { home, gateway, configure, ask };
}

/** Not a copy: reading the file in the daemon's process would end the lock on it. */
function replaceFile(file: string): void {
  writeFileSync(`${file}-new`, "", { mode: 0o600 });
  renameSync(`${file}-new`, file);
}

async function endsOf(t: Test, home: string): Promise<Record<string, number>> {
  return tally((await exportedRecords(t, home)).map(({ end }) => end));
}

t.test(
  "without its socket file a daemon is still the only one, and its open records stay open",
  async (t) => {
    const { home, gateway, ask } = await scene(t);
    const { daemon, url, paths } = await startUnderTest(t, null, { home });
    const running = ask(url, "hang");
    await until("the gateway has the request", () => gateway.running() === 1);
    rmSync(paths.socket);
    t.match(await runProgram(t, home, ["run"]), { code: 75, stderr: /already running here/ });
    t.same(await endsOf(t, home), { null: 1 }, "the record is still running");
    gateway.release();
    t.equal((await running).status, 200);
    await daemon.stop();
    t.same(await endsOf(t, home), { complete: 1 });
  },
);

longTest(t, "a control socket that vanishes with its folder is created again", async (t) => {
  const { home } = await scene(t);
  const { paths, logText } = await startUnderTest(t, null, { home });
  rmSync(paths.run, { recursive: true });
  await until("status answers again", async () => (await command(t, home, ["status"])).code === 0);
  t.equal(statSync(paths.run).mode & 0o777, 0o700);
  t.match(logText(), /control socket .* had been removed and was created again/);
});

/** The daemon may write files into it meanwhile. Under another name it is not found. */
function removeAtOnce(folder: string): void {
  renameSync(folder, `${folder}-gone`);
  rmSync(`${folder}-gone`, { recursive: true });
}

const LOSSES: [string, (paths: Paths) => void][] = [
  ["deleted", ({ lock }) => rmSync(lock)],
  ["replaced", ({ lock }) => replaceFile(lock)],
  ["deleted with its folder", ({ state }) => removeAtOnce(state)],
];
for (const [what, lose] of LONG ? LOSSES : LOSSES.slice(0, 1)) {
  t.test(`a daemon whose lock is ${what} refuses, finishes what is in flight and stops`, async (t) => {
    const { home, gateway, ask } = await scene(t);
    const { daemon, url, paths, logText } = await startUnderTest(t, null, { home });
    const running = ask(url, "hang");
    await until("the gateway has the request", () => gateway.running() === 1);
    lose(paths);
    await daemon.lostLock;
    await t.rejects(ask(url, "hang"), "new requests are refused");
    gateway.release();
    t.equal((await running).status, 200, "what was in flight is answered");
    await daemon.stop();
    t.match(logText(), /lock\.db was (deleted|replaced) while keybearer ran.* → keybearer run/);
    t.same(await endsOf(t, home), { complete: 1 }, "and recorded");
    t.ok(existsSync(paths.trust), "the next start is not a first one");
  });
}

t.test("a daemon without its lock exits with 75 and says what to do, and the next one starts", async (t) => {
  const { home } = await scene(t);
  const first = await startServing(t, home);
  rmSync(findPaths({ env: { KEYBEARER_HOME: home }, home }).lock);
  const ended = await first.ended;
  t.match(ended, { code: 75, signal: null, stderr: /lock\.db was deleted while keybearer ran.*start again/ });
  const { url } = await startUnderTest(t, null, { home });
  t.equal((await fetch(`${url}/healthz`)).status, 200);
});

t.test("a start that finds its port taken changes no record", async (t) => {
  const { home, gateway, configure, ask } = await scene(t);
  const first = await startServing(t, home);
  const cut = ask(first.url, "hang").catch(() => null);
  await until("the gateway has the request", () => gateway.running() === 1);
  first.child.kill("SIGKILL");
  await Promise.all([first.ended, cut]);

  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  t.teardown(() => void other.close());
  const address = other.address();
  await configure(typeof address === "object" && address !== null ? address.port : 0);
  await t.rejects(begin(findPaths({ env: { KEYBEARER_HOME: home }, home })), {
    message: /is taken/,
    exitCode: 69,
  });
  t.same(await endsOf(t, home), { null: 1 }, "the record is as kill -9 left it");

  await configure(0);
  await startUnderTest(t, null, { home });
  t.same(await endsOf(t, home), { interrupted: 1 });
});

t.test("a start that fails late leaves nothing open: the next one in the same process works", async (t) => {
  const { paths, home } = await startAndStop(t);
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  t.teardown(() => void other.close());
  const address = other.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  await saveConfig(home, `listen: localhost:${port}\n${NO_GATEWAY}`);
  await t.rejects(begin(paths), { message: /is taken/ });
  await saveConfig(home, `listen: localhost:0\n${NO_GATEWAY}`);
  const daemon = await begin(paths);
  t.equal((await fetch(`http://127.0.0.1:${daemon.port}/healthz`)).status, 200);
  await daemon.stop(0);
});

t.test("while a stop waits for calls no other daemon starts, and finished calls stay finished", async (t) => {
  const journey = await startLimited(t, "");
  const { paths, gateway, daemon } = journey;
  const calls = Array.from({ length: 30 }, () => journey.call({ play: "hang" }));
  await until("the gateway has them all", () => gateway.running() === 30);
  const stopped = daemon.stop(60_000);
  await t.rejects(begin(paths), { message: /still stopping/ });
  gateway.release();
  for (const call of calls) t.equal((await call).status, 200);
  await stopped;
  const next = await begin(paths);
  t.same(tally(recordsIn(paths.usage).map(({ end }) => String(end))), { complete: 30 });
  await next.stop(0);
});

longTest(t, "an index that another program has locked does not delay a stop", async (t) => {
  const { paths, call, control, daemon } = await startLimited(t, "");
  await call();
  await control("POST", "/index", {});
  const locker = new Database(paths.index, { timeout: 1000 });
  locker.exec("BEGIN IMMEDIATE");
  await call();
  await control("POST", "/index", {});
  await daemon.stop(0);
  locker.exec("ROLLBACK");
  locker.close();
  t.same(recordsIn(paths.usage).length, 2);
});

const NO_GATEWAY = "gateway: http://127.0.0.1:9/v1\ntools: { codex: { key: env:NOT_SET } }\n";

function begin(paths: Paths) {
  return startDaemon({ paths, env: {}, logTo: { write: () => {} } });
}

/** A home that a daemon has used before. */
async function startAndStop(t: Test): Promise<{ paths: Paths; home: string }> {
  const { paths, home, daemon } = await startLimited(t, "");
  await daemon.stop(0);
  return { paths, home };
}
