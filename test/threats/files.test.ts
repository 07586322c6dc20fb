import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { StartFailure } from "../../src/core/errors.ts";
import { command, newHome, saveConfig, startServing } from "../doubles/command.ts";
import { canaryKey, startUnderTest } from "../doubles/daemon-under-test.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";

const REST = 'listen: "localhost:0"\ngateway: http://127.0.0.1:9/v1\n';

/** Why a daemon does not start in this folder, as it is. */
async function failureIn(t: Test, home: string): Promise<StartFailure> {
  try {
    await startUnderTest(t, null, { home });
  } catch (error) {
    if (error instanceof StartFailure) return error;
    throw error;
  }
  throw new Error("it started");
}

t.test("CFG-05 a file with a key, or a folder, that others may open stops the start", async (t) => {
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
  // Without a secret inside it is only warned of.
  const home = await newHome(t);
  chmodSync(await saveConfig(home, `${REST}tools: { codex: { key: env:NOT_SET } }\n`), 0o644);
  const under = await startUnderTest(t, null, { home });
  t.match(under.logText(), "chmod 600");
});

/** Every path below a folder, with what it is and who may. */
function walk(folder: string): { readonly path: string; readonly mode: string; readonly kind: string }[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    const mode = (lstatSync(path).mode & 0o777).toString(8);
    const kind = entry.isDirectory() ? "folder" : entry.isSocket() ? "socket" : "file";
    return [{ path, mode, kind }, ...(entry.isDirectory() ? walk(path) : [])];
  });
}

t.test(
  "SEC-10 whatever it writes is its owner's alone, and nothing is in the temporary folder",
  async (t) => {
    const gateway = await startRawGateway(t, (call) => call.ok());
    const home = await newHome(t);
    const temporary = await newHome(t);
    const key = canaryKey();
    await saveConfig(
      home,
      `listen: localhost:0\ngateway: ${gateway.origin}/v1\ntools:\n  codex: { key: ${key} }\n`,
    );
    // As wide as it can be: what is private must be so by its own doing.
    process.umask(0o000);
    t.teardown(() => process.umask(0o022));
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
        `${name} is among them`,
      );
    }
    t.strictSame(readdirSync(temporary), [], "nothing of it is elsewhere");
    for (const { path, kind } of all) {
      if (kind !== "file") continue;
      const text = readFileSync(path, "latin1");
      t.notOk(text.includes(token), `${path} has no token`);
      if (!path.endsWith("config.yaml")) t.notOk(text.includes(key), `${path} has no key`);
    }
    running.child.kill("SIGTERM");
    t.equal((await running.ended).code, 0);
    t.notOk(existsSync(join(home, "run", "control.sock")), "and its socket is gone");
  },
);
