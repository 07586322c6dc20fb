import { request } from "node:http";
import t, { type Test } from "tap";
import {
  bareEnv,
  builtProgram,
  exportedRecords,
  newHome,
  saveConfig,
  startProgram,
} from "../doubles/command.ts";
import { credentials, startPlayGateway, tally } from "../doubles/limited-journey.ts";
import { until } from "../doubles/until.ts";

/** The program, where a process may have only so many files open. */
function startWithLimit(t: Test, home: string, openFiles: number, args: readonly string[]) {
  const shell = [
    "-c",
    `ulimit -n ${openFiles} && exec "$@"`,
    "sh",
    process.execPath,
    builtProgram(),
    ...args,
  ];
  return startProgram(t, "/bin/sh", shell, bareEnv(home));
}

t.test("a start with 64 file descriptors ends with a sentence and an exit code", async (t) => {
  const ended = await startWithLimit(t, await newHome(t), 64, ["run"]).ended;
  t.strictSame([ended.code, ended.signal, ended.stdout], [78, null, ""]);
  t.match(ended.stderr, /^keybearer: the limit of open files is 64 .* needs 128 → .*1024.*\n$/);
  t.equal(ended.stderr.trim().split("\n").length, 1);
});

t.test("a daemon that runs out of file descriptors refuses, loses no record and goes on", async (t) => {
  const gateway = await startPlayGateway(t);
  const { key, token, hash } = credentials();
  const home = await newHome(t);
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: ${gateway.baseUrl}\ntools: { codex: { key: ${key}, token: "${hash}" } }\n`,
  );
  const running = startWithLimit(t, home, 128, ["run"]);
  const [, port] = await running.says(/serves http:\/\/localhost:(\d+)/);
  /** How one request ended: its status and refusal, or that it has no answer. */
  const ask = (play: string) =>
    new Promise<string>((resolve) => {
      const headers = {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        "x-play": play,
      };
      const options = { host: "127.0.0.1", port, path: "/v1/chat/completions", method: "POST", headers };
      const sent = request({ ...options, agent: false }, (res) => {
        const refusal = res.headers["x-keybearer-refusal"];
        res.resume().once("close", () => resolve([res.statusCode, refusal].join(" ").trim()));
      });
      sent.once("error", () => resolve("no answer")).end('{"model":"penny","messages":[]}');
    });

  let ended = 0;
  const asked = Array.from({ length: 150 }, async () => {
    const how = await ask("hang");
    ended += 1;
    return how;
  });
  // Until then the gateway holds every request, so the descriptors run out.
  await until("one is refused", () => ended > 0);
  await until("all have ended", () => {
    gateway.release();
    return ended === 150;
  });
  const ends = tally(await Promise.all(asked));
  // A connection that the system cannot even hand over is closed without an answer.
  t.ok(ends["503 overloaded"] ?? ends["no answer"], JSON.stringify(ends));
  t.strictSame(
    Object.keys(ends).filter((how) => !["200", "503 overloaded", "no answer"].includes(how)),
    [],
  );
  t.equal(await ask("finish"), "200", "the next request is served");
  running.child.kill("SIGTERM");
  t.match(await running.ended, { code: 0, signal: null });
  const records = await exportedRecords(t, home);
  const answered = 151 - (ends["no answer"] ?? 0);
  t.ok(records.length >= answered, "each request that was answered is recorded");
  t.strictSame(
    records.filter(({ end }) => end === null || end === "interrupted"),
    [],
  );
});
