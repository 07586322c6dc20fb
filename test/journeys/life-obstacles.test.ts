import { mkdirSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import {
  bareEnv,
  builtProgram,
  command,
  exportedRecords,
  newHome,
  saveConfig,
  startProgram,
} from "../doubles/command.ts";
import { freshToken, serveIn, startUnderTest } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { startPlayGateway } from "../doubles/limited-journey.ts";
import { until } from "../doubles/until.ts";

/** Folders where the dashboard writes files. */
const OBSTACLES = ["dashboard-sessions.json", "open-abcdefgh.html"];

async function scene(t: Test) {
  const gateway = await startPlayGateway(t);
  const { token, hash } = freshToken();
  const home = await newHome(t);
  await saveConfig(
    home,
    `listen: localhost:0
dashboard: { listen: localhost:0 }
gateway: ${gateway.baseUrl}
tools: { codex: { key: sk-obstacle-0123456789, token: "${hash}" } }
`,
  );
  const ask = (url: string, play: string) =>
    fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json", "x-play": play },
      body: '{"model":"penny","messages":[]}',
    });
  return { home, gateway, ask };
}

function putObstacles(home: string): void {
  for (const name of OBSTACLES)
    mkdirSync(join(home, "run", name, "inside"), { recursive: true, mode: 0o700 });
}

async function endsOf(t: Test, home: string): Promise<unknown[]> {
  return (await exportedRecords(t, home)).map(({ end }) => end);
}

t.test("folders in the way of the dashboard's files hinder neither the start nor the stop", async (t) => {
  const { home, gateway, ask } = await scene(t);
  mkdirSync(join(home, "run"), { mode: 0o700 });
  putObstacles(home);
  const { url, daemon } = await serveIn(t, home);
  const running = ask(url, "hang");
  await until("the gateway has the request", () => gateway.running() === 1);
  const stopped = daemon.stop();
  gateway.release();
  t.equal((await running).status, 200, "the stop waited for it");
  await stopped;
  t.same(await endsOf(t, home), ["complete"]);
});

t.test("folders that get in the way while the dashboard is open do not hinder the stop", async (t) => {
  const { home, gateway, ask } = await scene(t);
  const { url, daemon, logText } = await startUnderTest(t, null, { home });
  putObstacles(home);
  t.equal((await command(t, home, ["open", "--print"])).code, 0);
  const running = ask(url, "hang");
  await until("the gateway has the request", () => gateway.running() === 1);
  const stopped = daemon.stop();
  gateway.release();
  t.equal((await running).status, 200);
  await stopped;
  t.same(await endsOf(t, home), ["complete"]);
  t.notMatch(logText(), /bug in keybearer/);
});

t.test("an unhandled rejection is logged, requests in flight finish, and the daemon exits 1", async (t) => {
  const { home, gateway, ask } = await scene(t);
  // The program as it is, in a process where something else goes wrong.
  const script = `
    process.on("SIGUSR2", () => void Promise.reject(new Error("injected")));
    process.argv[1] = ${JSON.stringify(builtProgram())};
    await import(${JSON.stringify(builtProgram())});
  `;
  const program = join(t.testdir({ "program.mjs": script }), "program.mjs");
  const running = startProgram(t, process.execPath, [program, "run"], bareEnv(home));
  const [, port] = await running.says(/serves http:\/\/localhost:(\d+)/);
  const asking = ask(`http://127.0.0.1:${port}`, "hang");
  await until("the gateway has the request", () => gateway.running() === 1);
  running.child.kill("SIGUSR2");
  await running.logs(/injected[\s\S]*bug: stopping/);
  gateway.release();
  t.equal((await asking).status, 200);
  t.match(await running.ended, { code: 1, signal: null });
  t.same(await endsOf(t, home), ["complete"]);
});

longTest(t, "a third signal exits at once with 1 if even a cut does not end the stop", async (t) => {
  const { home } = await scene(t);
  // A stop that waits for something that never comes.
  const script = `
    process.argv[1] = ${JSON.stringify(builtProgram())};
    const { Server } = await import("node:http");
    Server.prototype.close = () => {};
    await import(${JSON.stringify(builtProgram())});
  `;
  const program = join(t.testdir({ "program.mjs": script }), "program.mjs");
  const running = startProgram(t, process.execPath, [program, "run"], bareEnv(home));
  await running.says(/serves http/);
  running.child.kill("SIGTERM");
  await running.logs(/SIGTERM: stopping/);
  running.child.kill("SIGINT");
  running.child.kill("SIGTERM");
  t.match(await running.ended, { code: 1, signal: null });
});
