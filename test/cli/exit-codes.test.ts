import { chmodSync, existsSync, mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { StartError } from "../../src/core/errors.ts";
import { findPaths } from "../../src/core/paths.ts";
import { startDaemon } from "../../src/daemon/daemon.ts";
import { newHome, runProgram, saveConfig, startServing } from "../doubles/command.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import { mountSmallDisk } from "../doubles/small-disk.ts";

const GOOD = "gateway: http://127.0.0.1:9/v1\ntools: { codex: { key: env:NOT_SET_HERE } }\n";

function config(port: number): string {
  return `listen: localhost:${port}\n${GOOD}`;
}

/** How a start in this home fails. */
async function failure(home: string, config?: string): Promise<{ code: number; message: string }> {
  const paths = findPaths({
    ...(config === undefined ? {} : { config }),
    env: { KEYBEARER_HOME: home },
    home,
  });
  const sandboxListen = { host: "localhost", port: 0 } as const;
  try {
    const daemon = await startDaemon({ paths, env: {}, logTo: { write: () => {} }, sandboxListen });
    await daemon.stop(0);
  } catch (error) {
    if (error instanceof StartError) return { code: error.exitCode, message: error.message };
    throw error;
  }
  throw new Error("it started");
}

t.test("a file named with --config that is not there exits 78", async (t) => {
  const home = await newHome(t);
  const file = join(home, "elsewhere.yaml");
  t.match(await failure(home, file), { code: 78, message: `${file}: there is no ${file}` });
});

t.test("a broken config.yaml exits 78 and every problem is shown with its place", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(
    home,
    "listen: 0.0.0.0:80\ngateway: http://gateway.example.com/v1/chat/completions\ntools:\n  codex: { kee: env:A }\n",
  );
  const { code, stdout, stderr } = await runProgram(t, home, ["run"]);
  t.equal(code, 78);
  t.equal(stdout, "");
  t.match(stderr, `${file}:1:9: listen: `);
  t.match(stderr, "    listen: 0.0.0.0:80\n            ^\n    → ");
  t.match(stderr, `${file}:2:10: gateway: `);
  t.match(stderr, `${file}:4:12: tools.codex`);
  t.match(stderr, "      codex: { kee: env:A }\n               ^\n");
  t.notMatch(stderr, /^\s+at /m, "no stack trace");
  t.notOk(existsSync(join(home, "run", "control.sock")), "nothing was claimed");
});

t.test("a key that others can read exits 78 and names the chmod", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, `${config(0)}`.replace("env:NOT_SET_HERE", "sk-readable-by-all-0001"));
  chmodSync(file, 0o644);
  const { code, message } = await failure(home);
  t.equal(code, 78);
  t.match(message, `other users can read ${file}\n    → chmod 600 ${file}`);
  t.notMatch(message, "readable-by-all");
});

t.test("a folder that other users can write to exits 78 and names the chmod", async (t) => {
  for (const name of ["", "state", "run"]) {
    const home = await newHome(t);
    await saveConfig(home, config(0));
    const folder = join(home, name);
    mkdirSync(folder, { recursive: true });
    chmodSync(folder, 0o770);
    const { code, message } = await failure(home);
    t.equal(code, 78, name);
    t.match(message, `other users can write to ${join(home, name)} → chmod 700 ${join(home, name)}`);
  }
});

t.test("a second daemon on the same home exits 75 and leaves the first alone", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, config(0));
  const first = await serveIn(t, home);
  const second = await runProgram(t, home, ["run"]);
  t.equal(second.code, 75);
  t.match(second.stderr, /already running here, or still stopping → keybearer status/);
  t.equal((await fetch(`${first.url}/healthz`)).status, 200);
  t.ok(statSync(join(home, "run", "control.sock")).isSocket(), "the first one's socket is still there");
});

t.test("a socket left by kill -9 does not block the next start", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, config(0));
  const first = await startServing(t, home);
  first.child.kill("SIGKILL");
  t.equal((await first.ended).signal, "SIGKILL");
  t.ok(existsSync(join(home, "run", "control.sock")), "it is left behind");
  const second = await serveIn(t, home);
  t.equal((await fetch(`${second.url}/healthz`)).status, 200);
});

t.test("a control socket whose path is too long is reported clearly", async (t) => {
  const home = join(await newHome(t), "x".repeat(120));
  const { code, message } = await failure(home);
  t.equal(code, 1);
  t.match(
    message,
    /the path of the control socket is too long for the system: .*set a shorter KEYBEARER_HOME/,
  );
});

t.test("a run folder that cannot be written is an error, not an endless wait", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, config(0));
  mkdirSync(join(home, "run"), { mode: 0o500 });
  if (process.getuid?.() === 0) {
    // Root can write to every folder, but not to a read-only disk.
    const disk = mountSmallDisk(t, 1, join(home, "run"));
    if (disk === null) return;
    disk.readOnly(true);
  }
  await t.rejects(failure(home), { message: join(home, "run") });
});
