import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, openSync } from "node:fs";
import t from "tap";
import { LogStream } from "../../src/core/log-stream.ts";
import { builtProgram, newHome, saveConfig } from "../doubles/command.ts";
import { until } from "../doubles/until.ts";

const FULL = "/dev/full";
const skip = existsSync(FULL) ? false : "there is no /dev/full here";

t.test(
  "a log disk that is full costs log lines, not requests, and the daemon still stops",
  { skip },
  async (t) => {
    const home = await newHome(t);
    await saveConfig(
      home,
      "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: env:NONE } }\n",
    );
    const child = spawn(process.execPath, [builtProgram(), "run"], {
      env: { KEYBEARER_HOME: home, HOME: home },
      stdio: ["ignore", "pipe", openSync(FULL, "w")],
    });
    t.teardown(() => child.kill("SIGKILL"));
    let said = "";
    child.stdout?.on("data", (chunk: Buffer) => {
      said += chunk;
    });
    await until("it serves", () => /serves http:\/\/localhost:\d+/.test(said));
    const url = /http:\/\/localhost:\d+/.exec(said)?.[0] ?? "";
    for (let n = 0; n < 20; n += 1) {
      const answer = await fetch(`${url}/v1/models`);
      t.equal(answer.status, 401);
      await answer.text();
    }
    child.kill("SIGTERM");
    const [code] = await once(child, "exit");
    t.equal(code, 0);
  },
);

t.test("log lines that are written faster than they are read arrive whole and in order", async (t) => {
  const reader = spawn("cat", [], { stdio: ["pipe", "pipe", "inherit"] });
  t.teardown(() => reader.kill("SIGKILL"));
  const fd = (reader.stdin as unknown as { _handle: { fd: number } })._handle.fd;
  let text = "";
  reader.stdout?.on("data", (chunk: Buffer) => {
    text += chunk;
  });
  const log = new LogStream(fd, () => {});
  const lines = Array.from({ length: 20_000 }, (_, n) => `line ${n} ${"x".repeat(20)}\n`);
  for (const line of lines) log.write(line);
  const whole = lines.join("");
  await until("everything came", () => text.length === whole.length);
  t.ok(text === whole);
});
