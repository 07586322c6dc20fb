import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { createContext } from "../../src/cli/service/context.ts";
import { specFor } from "../../src/cli/service/install.ts";
import { loadConfig } from "../../src/config/load.ts";
import { StartError } from "../../src/core/errors.ts";
import { command, newHome, saveConfig, startServing } from "../doubles/command.ts";
import { canaryKey, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { LaunchctlRecorder } from "../doubles/launchctl-recorder.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { canary, filesBelow, scan, textsOf } from "../doubles/secret-scan.ts";
import { createSystemctl } from "../doubles/systemctl-script.ts";

const REST = 'listen: "localhost:0"\ngateway: http://127.0.0.1:9/v1\n';

/** Why a daemon does not start in this folder. */
async function failureIn(t: Test, home: string): Promise<StartError> {
  try {
    await startUnderTest(t, null, { home });
  } catch (error) {
    if (error instanceof StartError) return error;
    throw error;
  }
  throw new Error("it started");
}

t.test("CFG-05 a config.yaml with a key, or a folder, that others may open stops the start", async (t) => {
  const key = canaryKey();
  const config = `${REST}tools: { codex: { key: ${key} } }\n`;
  for (const mode of [0o644, 0o660, 0o640, 0o604, 0o666, 0o777]) {
    const home = await newHome(t);
    const file = await saveConfig(home, config);
    chmodSync(file, mode);
    const { exitCode, message } = await failureIn(t, home);
    t.equal(exitCode, 78);
    t.match(message, `→ chmod 600 ${file}`, mode.toString(8));
    t.notOk(message.includes(key), "the key is not shown");
    t.notOk(existsSync(join(home, "run", "control.sock")), "nothing was opened");
  }
  for (const name of ["", "state", "run"]) {
    for (const mode of [0o770, 0o702, 0o777]) {
      const home = await newHome(t);
      await saveConfig(home, config);
      const folder = join(home, name);
      mkdirSync(folder, { recursive: true });
      chmodSync(folder, mode);
      const { exitCode, message } = await failureIn(t, home);
      t.equal(exitCode, 78);
      t.match(message, `→ chmod 700 ${folder}`, `${name} ${mode.toString(8)}`);
      t.notOk(message.includes(key));
    }
  }
  // Without a secret inside, a warning is enough.
  const home = await newHome(t);
  chmodSync(await saveConfig(home, `${REST}tools: { codex: { key: env:NOT_SET } }\n`), 0o644);
  const under = await startUnderTest(t, null, { home });
  t.match(under.logText(), "chmod 600");
});

t.test("SEC-08 no file that the installer of the service writes contains a key or a token", async (t) => {
  const { token, hash } = freshToken();
  const secrets = {
    "the key in config.yaml": canary(),
    "the key in the environment": canary(),
    "a token in the environment": token,
    "the hash of the token": hash.replace("sha256:", ""),
  };
  for (const platform of ["linux", "darwin"] as const) {
    const home = await newHome(t);
    const config = `${REST}tools:
  one: { key: ${secrets["the key in config.yaml"]}, token: "${hash}" }
  two: { key: env:CODEX_KEY }
`;
    const file = await saveConfig(home, config);
    const systemctl = await createSystemctl(await newHome(t));
    const launchctl = new LaunchctlRecorder(501);
    const env = {
      ...systemctl.env,
      HOME: home,
      KEYBEARER_HOME: home,
      CODEX_KEY: secrets["the key in the environment"],
      OPENAI_API_KEY: token,
    };
    const run = platform === "darwin" ? { run: launchctl.run } : {};
    const context = await createContext({ env, home, platform, ...run });
    const { manager } = context;
    const loaded = await loadConfig(file, { home, strict: true });
    if (manager === null || loaded.config === null) throw new Error(JSON.stringify(loaded.problems));
    const { spec } = specFor(context, loaded.config, manager.kind);
    const plan = await manager.planInstall(spec);
    t.match(plan, { ok: true });
    t.match(plan.ok && (await manager.apply(plan.steps)), { ok: true });

    const written = filesBelow(home).filter((path) => path !== file);
    t.ok(written.includes(manager.file), `${platform}: the service's file is there`);
    t.strictSame(scan(textsOf(written), secrets), [], `${platform}: no secret is in it`);
    t.equal(scan({ config }, secrets).length, 2, "the scan finds what is in config.yaml");
  }
});

/** Every path below a folder, with its kind and mode. */
function walk(folder: string): { readonly path: string; readonly mode: string; readonly kind: string }[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    // A temporary file may be gone by now.
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found === undefined) return [];
    const mode = (found.mode & 0o777).toString(8);
    const kind = entry.isDirectory() ? "folder" : entry.isSocket() ? "socket" : "file";
    return [{ path, mode, kind }, ...(entry.isDirectory() ? walk(path) : [])];
  });
}

t.test(
  "SEC-10 only the owner may open what the daemon writes, and nothing is in the temporary folder",
  async (t) => {
    const gateway = await startRawGateway(t, (call) => call.ok());
    const home = await newHome(t);
    const temporary = await newHome(t);
    const key = canaryKey();
    await saveConfig(
      home,
      `listen: localhost:0\ngateway: ${gateway.origin}/v1\ntools:\n  codex: { key: ${key} }\n`,
    );
    // The widest umask: the daemon itself must make its files private.
    const umask = process.umask(0o000);
    t.teardown(() => process.umask(umask));
    const options = { env: { TMPDIR: temporary } };
    const running = await startServing(t, home, options);
    const made = await command(t, home, ["tools", "token", "codex"], options);
    const token = made.stdout.trim();
    t.equal(made.code, 0);
    await running.logs(/token/);
    const answer = await fetch(`${running.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
    t.equal(answer.status, 200);
    await answer.text();
    t.equal((await command(t, home, ["status", "--json"], options)).code, 0);

    const all = walk(home);
    const modes = { folder: "700", file: "600", socket: "600" };
    for (const { path, mode, kind } of all) t.equal(mode, modes[kind as keyof typeof modes], path);
    for (const name of ["config.yaml", "state", "state/trust.json", "run", "run/control.sock"]) {
      t.ok(
        all.some(({ path }) => path === join(home, name)),
        `${name} is there`,
      );
    }
    t.strictSame(readdirSync(temporary), [], "nothing is elsewhere");
    running.child.kill("SIGTERM");
    t.equal((await running.ended).code, 0);
    t.notOk(existsSync(join(home, "run", "control.sock")), "its socket is gone");
    for (const { path, kind } of walk(home)) {
      if (kind !== "file") continue;
      const text = readFileSync(path, "latin1");
      t.notOk(text.includes(token), `${path} has no token`);
      if (!path.endsWith("config.yaml")) t.notOk(text.includes(key), `${path} has no key`);
    }
  },
);
