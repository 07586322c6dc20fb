import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { bareEnv, builtProgram, newHome, saveConfig } from "../doubles/command.ts";
import { until } from "../doubles/until.ts";

/** More than the log may have. */
const LARGE = Buffer.alloc(11 * 1024 * 1024, "a line of an old log, which is never rotated by launchd\n");

/** Starts the daemon with a file for its output, as launchd does. */
async function startWithLog(t: Test, home: string, log: string, flags: "a" | "w" = "a") {
  await saveConfig(
    home,
    "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: env:NONE } }\n",
  );
  const output = openSync(log, flags, 0o600);
  const child = spawn(process.execPath, [builtProgram(), "run"], {
    env: bareEnv(home),
    stdio: ["ignore", output, output],
  });
  closeSync(output);
  t.teardown(() => child.kill("SIGKILL"));
  let url = "";
  await until("it serves", () => {
    url = /http:\/\/localhost:\d+/.exec(readFileSync(log, "utf8").slice(-2000))?.[0] ?? "";
    return url !== "";
  });
  return {
    /** Makes it write a line. */
    refuse: async () => (await fetch(`${url}/v1/models`)).text(),
    async stop() {
      child.kill("SIGTERM");
      const [code] = await once(child, "exit");
      return code;
    },
  };
}

const sizeOf = (file: string) => statSync(file).size;

t.test("the log that launchd never rotates stays small, and one older file is kept", async (t) => {
  for (const flags of ["a", "w"] as const) {
    const home = await newHome(t);
    mkdirSync(join(home, "state"), { mode: 0o700 });
    const log = join(home, "state", "keybearer.log");
    const older = `${log}.1`;
    if (flags === "a") appendFileSync(log, LARGE);
    const daemon = await startWithLog(t, home, log, flags);
    if (flags === "a") {
      t.ok(readFileSync(older).equals(LARGE), "at the start");
      t.ok(sizeOf(log) < 100_000, "and it begins again");
    }
    appendFileSync(log, LARGE);
    await daemon.refuse();
    await until("it was cut while the daemon runs", () => existsSync(older) && sizeOf(log) < 100_000);
    t.match(
      readFileSync(older, "utf8").slice(-3000),
      /never rotated by launchd\n.*"refusal":"token-missing"/,
    );
    await daemon.refuse();
    t.equal(await daemon.stop(), 0);
    const text = readFileSync(log, "utf8");
    t.match(text, /"refusal":"token-missing"/, "it goes on");
    t.match(text, /^\{/, "from the beginning of the file");
    t.notMatch(text, /\0/);
  }
});

t.test("a file of the user's own is never cut", async (t) => {
  const home = await newHome(t);
  const own = join(home, "my.log");
  appendFileSync(own, LARGE);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  symlinkSync(own, join(home, "state", "keybearer.log"));
  const daemon = await startWithLog(t, home, own);
  await daemon.refuse();
  t.equal(await daemon.stop(), 0);
  t.ok(sizeOf(own) > LARGE.length);
  t.notOk(existsSync(`${own}.1`));
});
