import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import t from "tap";
import { commandName } from "../../src/core/command-name.ts";
import {
  bareEnv,
  command,
  newHome,
  runProgram,
  saveConfig,
  start,
  startProgram,
} from "../doubles/command.ts";
import { serveIn, startUnderTest } from "../doubles/daemon-under-test.ts";
import { freePort } from "../doubles/listen.ts";
import { ROOT } from "../doubles/paths.ts";
import { until } from "../doubles/until.ts";

t.test(
  "without a config.yaml, run prints lines that work when they are pasted, and the mirror lists their requests",
  async (t) => {
    const home = await newHome(t);
    const running = start(t, home, ["run"]);
    await running.says(/takes over as soon as it is saved\n/);
    const printed = running.stdout();
    t.equal(
      /https?:\/\/[^\s/]+/.exec(printed)?.[0],
      /serves (http:\/\/localhost:\d+)/.exec(printed)?.[1],
      "its own address comes first",
    );
    t.match(printed, `or write ${home}/config.yaml, see config.example.yaml`);
    const lines = printed.split("\n\n").filter((part) => part.startsWith("curl "));
    t.equal(lines.length, 4);

    const [list, chat, stream, straight] = await Promise.all(
      lines.map((line) => startProgram(t, "/bin/sh", ["-c", line], bareEnv(home)).ended),
    );
    t.ok(JSON.parse(list?.stdout ?? "").data.some(({ id }: { id: string }) => id.startsWith("sandbox-")));
    t.match(JSON.parse(chat?.stdout ?? "").choices[0].message.content, /hello/);
    const chunks = (stream?.stdout ?? "").split("\n").filter((line) => line.startsWith("data: "));
    t.ok(chunks.length > 3, `${chunks.length} chunks`);
    t.equal(chunks.at(-1), "data: [DONE]");
    t.match(JSON.parse(straight?.stdout ?? "").choices[0].message.content, /hello/);

    t.match(await command(t, home, ["mirror", "sync"]), { code: 0 });
    const mirror = await command(t, home, ["mirror", "--json"]);
    const [sandbox] = JSON.parse(mirror.stdout);
    // The sandbox's console is read at each full minute, too.
    t.match(sandbox, {
      gateway: "sandbox",
      kind: "sub2api",
      state: /^(ok|syncing)$/,
      rows: { total: 3, by_id: 2 },
    });
    t.equal(sandbox.rows.pending + sandbox.rows.foreign_certain, 1, "what went past keybearer");

    running.child.kill("SIGINT");
    t.match(await running.ended, { code: 0 });
  },
);

t.test("if another program has the sandbox's port, run takes another and says so", async (t) => {
  // Another test may have it for a while.
  await until("the port is ours", async () => {
    const server = createServer().listen(5397, "127.0.0.1");
    const isOurs = await once(server, "listening").then(
      () => true,
      () => false,
    );
    t.teardown(() => server.close());
    return isOurs;
  });
  const running = start(t, await newHome(t), ["run"]);
  const [, port] = await running.says(/serves http:\/\/localhost:(\d+)\n\nport 5397 is taken/);
  t.not(port, "5397");
  t.equal((await fetch(`http://127.0.0.1:${port}/healthz`)).status, 200);
});

t.test("run --port works without a config.yaml, and is refused with one", async (t) => {
  const free = await freePort();
  const home = await newHome(t);
  const running = start(t, home, ["run", "--port", String(free)]);
  await running.says(new RegExp(`serves http://localhost:${free}\n`));
  running.child.kill("SIGINT");
  t.match(await running.ended, { code: 0 });
  const again = await startUnderTest(t, null, { home });
  t.notMatch(again.logText(), "trust.json", "only the sandbox ran here before");
  await again.daemon.stop(0);
  await saveConfig(home, "gateway: https://gateway.example.com/v1\ntools: { a: { key: sk-0123456789 } }\n");
  const both = await runProgram(t, home, ["run", "--port", String(free)]);
  t.equal(both.code, 2);
  t.match(both.stderr, `change listen in ${join(home, "config.yaml")}`);
});

t.test("commands are shown as they can be typed where the program runs", async (t) => {
  t.equal(commandName("/usr/bin/keybearer", "/home/ann"), "keybearer");
  t.equal(commandName("/usr/lib/node_modules/keybearer/dist/cli/main.js", "/"), "keybearer");
  t.equal(
    commandName("/home/ann/src/keybearer/dist/cli/main.js", "/home/ann/src/keybearer"),
    "node dist/cli/main.js",
  );
  t.equal(commandName("/home/ann/kb/dist/cli/main.js", "/tmp"), "node /home/ann/kb/dist/cli/main.js");
  t.equal(commandName("/home/ann/my kb/dist/cli/main.js", "/tmp"), "node '/home/ann/my kb/dist/cli/main.js'");
  t.equal(commandName("/home/ann/kb/dist/cli/main.js", null), "node /home/ann/kb/dist/cli/main.js");
  const npx = "/home/ann/.npm/_npx/8f0e/node_modules/.bin/keybearer";
  t.equal(commandName(npx, "/tmp"), `node ${npx}`);
});

t.test("a refusal names the command as it can be typed in any folder", async (t) => {
  const home = await newHome(t);
  const main = join(ROOT, "dist", "cli", "main.js");
  const running = startProgram(t, process.execPath, [main, "run"], bareEnv(home));
  const [, port] = await running.says(/serves http:\/\/localhost:(\d+)/);
  const response = await fetch(`http://127.0.0.1:${port}/v1/models`);
  t.match(await response.text(), `${commandName(main, null)} tools token <tool>`);
});

t.test("check and status name commands as they can be typed in a clone", async (t) => {
  const home = await newHome(t);
  const key = join(home, "absent");
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: "file:${key}" } }\n`,
  );
  await serveIn(t, home);
  const main = join(ROOT, "dist", "cli", "main.js");
  for (const name of ["check", "status"]) {
    const { stdout, stderr } = await startProgram(t, process.execPath, [main, name], bareEnv(home)).ended;
    const shown = stdout + stderr;
    t.match(shown, `→ ${commandName(main)} tools rotate codex --store file`);
    t.notMatch(shown, /keybearer (?:tools|trust|doctor|usage|mirror|status)\b/, name);
  }
});
