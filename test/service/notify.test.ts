import { readFileSync } from "node:fs";
import { get } from "node:http";
import { join } from "node:path";
import t, { type Test } from "tap";
import { answersAt } from "../../src/service/answers.ts";
import { createNotify } from "../../src/service/notify.ts";
import { newHome, saveConfig, start } from "../doubles/command.ts";
import { cannotNotify, openNotifySocket } from "../doubles/notify-socket.ts";
import { until } from "../doubles/until.ts";

const CANNOT = cannotNotify();
if (CANNOT !== null) process.stderr.write(`!!! the notify protocol is not tested: ${CANNOT}\n`);
const LIVE = { skip: CANNOT ?? false };

const bare = (address: string, more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv => ({
  NOTIFY_SOCKET: address,
  ...more,
});

async function healthy(port: string): Promise<boolean> {
  return answersAt([`127.0.0.1:${port}`, `[::1]:${port}`], 2000);
}

t.test("messages come whole and in their order, to a path and to an abstract name", LIVE, async (t) => {
  for (const abstract of process.platform === "linux" ? [false, true] : [false]) {
    const socket = await openNotifySocket(t, await newHome(t), abstract);
    const notify = createNotify(bare(socket.address), process.pid);
    void notify.ready("serving");
    void notify.reloading();
    void notify.ready("serving\nREADY=0 again");
    void notify.stopping("soon");
    // A reload that ends after the stop has nothing more to say.
    void notify.ready("late");
    await notify.failed("x".repeat(500));
    t.same(socket.messages, [
      "READY=1\nSTATUS=serving",
      "RELOADING=1\nSTATUS=reading config.yaml and every key again",
      "READY=1\nSTATUS=serving READY=0 again",
      "STOPPING=1\nSTATUS=soon",
      `STATUS=${"x".repeat(200)}…`,
    ]);
  }
});

t.test("without a manager nothing is said and nothing goes wrong", async (t) => {
  for (const address of [undefined, "", "vsock:2:1234", "relative", "/"]) {
    const troubles: string[] = [];
    const env: NodeJS.ProcessEnv = { WATCHDOG_USEC: "2000", ...(address === undefined ? {} : bare(address)) };
    const means = { programs: ["/bin/false"], onTrouble: (words: string) => void troubles.push(words) };
    const notify = createNotify(env, process.pid, means);
    await notify.ready("serving");
    notify.watch(async () => t.fail("nobody asked for it") as never);
    await notify.stopping("");
    t.same(troubles, []);
    t.same(env, {}, "the variables are gone all the same");
  }
});

t.test("a manager that cannot be told is said so, and holds nothing up", async (t) => {
  const troubles: string[] = [];
  const onTrouble = (words: string) => void troubles.push(words);
  for (const programs of [["/no/such/program", "/nor/this"], ["/no/such/program", "/bin/false"], ["/etc"]]) {
    await createNotify(bare("/nowhere"), process.pid, { programs, onTrouble }).ready("serving");
  }
  t.match(troubles, [
    /no program \/no\/such\/program$/,
    /\/bin\/false ended with 1$/,
    /cannot be told: \/etc \(EACCES\)$/,
  ]);
});

t.test("the watchdog hears of it only while the daemon answers", LIVE, async (t) => {
  const socket = await openNotifySocket(t, await newHome(t));
  const troubles: string[] = [];
  const means = { onTrouble: (words: string) => void troubles.push(words) };
  let alive: "well" | "silent" | "broken" = "well";
  const look = async () => {
    if (alive === "broken") throw new Error("bug");
    return alive === "well" ? "fine" : null;
  };
  const env = bare(socket.address, { WATCHDOG_USEC: "40000", WATCHDOG_PID: String(process.pid) });
  const notify = createNotify(env, process.pid, means);
  notify.watch(look);
  const first = await socket.came(/^WATCHDOG=1\nSTATUS=fine$/);
  await socket.came(/^WATCHDOG=1/, first + 1);
  for (const state of ["silent", "broken"] as const) {
    alive = state;
    const before = troubles.length;
    await until("two looks that found nothing", () => troubles.length >= before + 2);
    const count = socket.messages.length;
    await until("two more", () => troubles.length >= before + 4);
    t.equal(socket.messages.length, count, `${state}: not a word`);
    alive = "well";
    await socket.came(/^WATCHDOG=1/, count);
  }
  t.match(troubles[0], /watchdog of the service is not told/);
  await notify.stopping("");
  const end = socket.messages.length;
  t.match(socket.messages[end - 1], /^STOPPING=1/);
  alive = "silent";
  const said = troubles.length;
  const other = createNotify(
    { ...env, ...bare(socket.address), WATCHDOG_USEC: "2000", WATCHDOG_PID: "1" },
    2,
  );
  other.watch(async () => t.fail("meant for another process") as never);
  await other.failed("the last word");
  t.equal(socket.messages.length, end + 1, "nothing after the stop");
  t.equal(troubles.length, said);
});

async function scene(t: Test, more: string) {
  const home = await newHome(t);
  const socket = await openNotifySocket(t, home);
  const file = await saveConfig(home, `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\n${more}`);
  const args = ["run", "--config", file];
  const watchdog = { WATCHDOG_USEC: "600000" };
  return { home, socket, running: start(t, home, args, { env: { ...bare(socket.address), ...watchdog } }) };
}

t.test("the program tells its life from READY to STOPPING, and its children cannot", LIVE, async (t) => {
  const { home, socket, running } = await scene(
    t,
    `tools: { codex: { key: { command: [/bin/sh, -c, 'env > "$HOME/seen"; echo sk-0123456789abcdef'] } } }\n`,
  );
  const ready = await socket.came(/^READY=1/);
  const port = /localhost:(\d+), 1 tool$/.exec(socket.messages[ready] ?? "")?.[1] ?? "";
  t.ok(await healthy(port), "at READY both addresses answer");
  t.equal(await controlStatus(join(home, "run", "control.sock")), 200, "and so does the control socket");
  t.equal(ready, 0, "nothing was said before");
  t.match(readFileSync(join(home, "seen"), "utf8"), /^HOME=/m);
  t.notMatch(readFileSync(join(home, "seen"), "utf8"), /NOTIFY_SOCKET|WATCHDOG/);

  await socket.came(/^WATCHDOG=1\nSTATUS=serving/);
  running.child.kill("SIGHUP");
  const reloading = await socket.came(/^RELOADING=1/);
  await socket.came(/^READY=1\nSTATUS=serving/, reloading + 1);
  running.child.kill("SIGTERM");
  const stopping = await socket.came(/^STOPPING=1/);
  t.match(await running.ended, { code: 0, signal: null });
  t.same(socket.messages.slice(stopping + 1), [], "STOPPING was the last word");
});

t.test("a start that fails says why, is never READY and keeps its exit code", LIVE, async (t) => {
  const { socket, running } = await scene(t, "tools: { codex: { key: sk-0123456789abcdef, nonsense: 1 } }\n");
  t.match(await running.ended, { code: 78 });
  t.equal(socket.messages.length, 1);
  t.match(socket.messages[0], /^STATUS=did not start: .*config\.yaml.*nonsense/);
  t.notMatch(socket.messages[0], /sk-0/);
});

function controlStatus(socketPath: string): Promise<number | undefined> {
  return new Promise((done, fail) => {
    get({ socketPath, path: "/status" }, (response) => {
      response.resume();
      response.once("close", () => done(response.statusCode));
    }).once("error", fail);
  });
}
