import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer as createHttp, get } from "node:http";
import { connect, createServer, type Server, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import t, { type Test } from "tap";
import { isHealthy, isHung, probeHealth } from "../../src/service/health.ts";
import { findNotifyProblem, Notify } from "../../src/service/notify.ts";
import { bareEnv, builtProgram, newHome, saveConfig, start, startProgram } from "../doubles/command.ts";
import { listen } from "../doubles/listen.ts";
import { HANG_MS, until } from "../doubles/until.ts";

/**
 * The service manager's end of NOTIFY_SOCKET: a real datagram socket. Node has no such socket; perl does, and is
 * part of every Debian and of macOS.
 */
interface NotifySocket {
  /** For NOTIFY_SOCKET. */
  readonly address: string;
  /** What came, one datagram each, without the barriers that a sender waits for. */
  messages(): string[];
  /** Waits for a message like this at or after the given index; resolves with its index. */
  came(what: RegExp, from?: number): Promise<number>;
}

/** Prints one line of hexadecimal digits for each datagram. The first, empty one says that it listens. */
const RECEIVER = `
  use Socket; $| = 1;
  my $name = $ARGV[0]; $name =~ s/^@/\\0/;
  socket(my $socket, PF_UNIX, SOCK_DGRAM, 0) or die "socket: $!";
  bind($socket, pack_sockaddr_un($name)) or die "bind: $!";
  print "\\n";
  while (defined(recv($socket, my $text, 65536, 0))) { print unpack("H*", $text), "\\n"; }
`;

/** What is missing here for a real message to a real socket; null: nothing. */
function cannotNotify(): string | null {
  if (!existsSync("/usr/bin/systemd-notify")) return "there is no systemd-notify";
  return spawnSync("perl", ["-e", "use Socket"]).status === 0 ? null : "there is no perl";
}

async function openNotifySocket(t: Test, home: string, abstract = false): Promise<NotifySocket> {
  const address = abstract ? `@keybearer-test-${process.pid}` : join(home, "notify");
  const child = spawn("perl", ["-e", RECEIVER, address], { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => child.kill("SIGKILL"));
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) =>
    lines.push(Buffer.from(line, "hex").toString()),
  );
  await until("the receiver listens", () => lines.length > 0);
  lines.length = 0;
  const messages = () => lines.filter((line) => line !== "BARRIER=1");
  const find = (what: RegExp, from: number) =>
    messages().findIndex((line, index) => index >= from && what.test(line));
  return {
    address,
    messages,
    async came(what, from = 0) {
      await until(`${what} on the notify socket`, () => find(what, from) !== -1);
      return find(what, from);
    },
  };
}

/** The addresses that localhost has here. */
const LOOPBACK = Object.values(networkInterfaces())
  .flat()
  .some((one) => one?.address === "::1")
  ? ["127.0.0.1", "::1"]
  : ["127.0.0.1"];
const CANNOT = cannotNotify();
const LIVE = { skip: CANNOT ?? false };

const bare = (address: string, more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv => ({
  NOTIFY_SOCKET: address,
  ...more,
});

t.test("messages arrive complete and in order, at a path and at an abstract name", LIVE, async (t) => {
  for (const abstract of process.platform === "linux" ? [false, true] : [false]) {
    const socket = await openNotifySocket(t, await newHome(t), abstract);
    const notify = new Notify(bare(socket.address), process.pid);
    void notify.ready("serving");
    void notify.reloading();
    void notify.ready("serving\nREADY=0 again");
    void notify.stopping("soon");
    // A reload that ends after the stop reports nothing.
    void notify.ready("late");
    await notify.failed("x".repeat(500));
    t.same(socket.messages(), [
      "READY=1\nSTATUS=serving",
      "RELOADING=1\nSTATUS=reading config.yaml and every key again",
      "READY=1\nSTATUS=serving READY=0 again",
      "STOPPING=1\nSTATUS=soon",
      `STATUS=${"x".repeat(200)}…`,
    ]);
  }
});

t.test("without a manager nothing is sent and nothing fails", async (t) => {
  for (const address of [undefined, "", "vsock:2:1234", "relative", "/"]) {
    const problems: string[] = [];
    const env: NodeJS.ProcessEnv = { WATCHDOG_USEC: "2000", ...(address === undefined ? {} : bare(address)) };
    const deps = { programs: ["/bin/false"], onProblem: (message: string) => void problems.push(message) };
    const notify = new Notify(env, process.pid, deps);
    await notify.ready("serving");
    void notify.watch(async () => t.fail("no manager asked for it") as never);
    await notify.stopping("");
    t.same(problems, []);
    t.same(env, {}, "the variables are removed nevertheless");
  }
});

t.test("a manager that cannot be notified is reported, and nothing waits for it", async (t) => {
  const problems: string[] = [];
  const onProblem = (message: string) => void problems.push(message);
  for (const programs of [["/no/such/program", "/nor/this"], ["/no/such/program", "/bin/false"], ["/etc"]]) {
    await new Notify(bare("/nowhere"), process.pid, { programs, onProblem }).ready("serving");
  }
  t.match(problems, [
    /no program \/no\/such\/program$/,
    /\/bin\/false ended with 1$/,
    /cannot be notified: \/etc \(EACCES\)$/,
  ]);
  t.match(findNotifyProblem(["/no/such/program", "/nor/this"])?.problem, /there is no \/no\/such\/program/);
  t.equal(findNotifyProblem(["/no/such/program", "/bin/false"]), null);
});

t.test("a READY that was lost is repeated soon, and so is a health check that failed", LIVE, async (t) => {
  const home = await newHome(t);
  const socket = await openNotifySocket(t, home);
  const program = join(home, "second-time");
  writeFileSync(program, `#!/bin/sh\nmkdir "${home}/tried" && exit 1\nexec systemd-notify "$@"\n`, {
    mode: 0o700,
  });
  const problems: string[] = [];
  const deps = { programs: [program], onProblem: (message: string) => void problems.push(message) };
  // The interval is a minute: what comes sooner is a retry.
  const notify = new Notify(bare(socket.address, { WATCHDOG_USEC: "120000000" }), process.pid, deps);
  void notify.ready("lost");
  const results = [null, "fine"];
  void notify.watch(async () => results.shift() ?? null);
  t.equal(await socket.came(/^READY=1\nWATCHDOG=1\nSTATUS=fine$/), 0);
  t.match(problems, [/ended with 1$/, /the watchdog gets no message/], "each is reported once");
  await notify.stopping("");
});

t.test("a watchdog message does not end a reload", LIVE, async (t) => {
  const socket = await openNotifySocket(t, await newHome(t));
  const notify = new Notify(bare(socket.address, { WATCHDOG_USEC: "40000" }), process.pid);
  await notify.reloading();
  void notify.watch(async () => "fine");
  const first = await socket.came(/WATCHDOG=1/);
  await socket.came(/WATCHDOG=1/, first + 1);
  t.same([...new Set(socket.messages().slice(1))], ["WATCHDOG=1"]);
  await notify.ready("again");
  await socket.came(/^READY=1\nWATCHDOG=1\nSTATUS=fine$/);
  await notify.stopping("");
});

async function listening(t: Test, server: Server): Promise<string> {
  const { port } = await listen(t, server);
  return `127.0.0.1:${port}`;
}

t.test("a daemon that hangs differs from one that cannot be reached", async (t) => {
  const healthy = await listening(
    t,
    createHttp((_, response) => void response.end("{}")),
  );
  const wrong = await listening(
    t,
    createHttp((_, response) => void response.writeHead(500).end()),
  );
  const mute = await listening(t, createServer());
  const full = await listening(
    t,
    createServer((socket) => void socket.destroy()),
  );
  const gone = createServer();
  const closed = await listening(t, gone);
  await new Promise((done) => gone.close(done));
  const answers = await probeHealth([healthy, wrong, full, closed], HANG_MS);
  t.same(answers, ["ok", "silent", "unreachable", "refused"]);
  t.same(await probeHealth([mute], 50), ["silent"]);
  t.ok(await isHealthy([healthy], HANG_MS));
  t.notOk(await isHealthy([healthy, full], HANG_MS));
  t.notOk(await isHealthy([], HANG_MS));

  for (const answers of [
    ["ok", "silent"],
    ["unreachable", "silent"],
    ["refused"],
    ["refused", "unreachable"],
  ] as const)
    t.ok(isHung(answers), answers.join(" "));
  for (const answers of [
    ["ok"],
    ["ok", "unreachable"],
    ["ok", "refused"],
    ["unreachable", "unreachable"],
  ] as const)
    t.notOk(isHung(answers), answers.join(" "));
});

t.test("the watchdog gets a message only while the daemon answers", LIVE, async (t) => {
  const socket = await openNotifySocket(t, await newHome(t));
  const problems: string[] = [];
  const deps = { onProblem: (message: string) => void problems.push(message) };
  let alive: "ok" | "silent" | "broken" = "ok";
  let checks = 0;
  const check = async () => {
    checks += 1;
    if (alive === "broken") throw new Error("bug");
    return alive === "ok" ? "fine" : null;
  };
  const env = bare(socket.address, { WATCHDOG_USEC: "40000", WATCHDOG_PID: String(process.pid) });
  const notify = new Notify(env, process.pid, deps);
  void notify.watch(check);
  const first = await socket.came(/^READY=1\nWATCHDOG=1\nSTATUS=fine$/);
  await socket.came(/^READY=1\nWATCHDOG=1/, first + 1);
  for (const state of ["silent", "broken"] as const) {
    alive = state;
    const before = problems.length;
    await until("a check that failed", () => problems.length > before);
    const count = socket.messages().length;
    const seen = checks;
    await until("two more", () => checks >= seen + 3);
    t.equal(socket.messages().length, count, `${state}: no message`);
    t.equal(problems.length, before + 1, "which is reported once");
    alive = "ok";
    await socket.came(/^READY=1\nWATCHDOG=1/, count);
  }
  t.match(problems[0], /the watchdog gets no message/);
  await notify.stopping("");
  const end = socket.messages().length;
  t.match(socket.messages()[end - 1], /^STOPPING=1/);
  alive = "silent";
  const reported = problems.length;
  const other = new Notify({ ...env, ...bare(socket.address), WATCHDOG_USEC: "2000", WATCHDOG_PID: "1" }, 2);
  void other.watch(async () => t.fail("meant for another process") as never);
  await other.failed("the last status");
  t.equal(socket.messages().length, end + 1, "nothing after the stop");
  t.equal(problems.length, reported);
});

async function prepared(t: Test, more: string) {
  const home = await newHome(t);
  const socket = await openNotifySocket(t, home);
  const file = await saveConfig(home, `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\n${more}`);
  const env = { ...bare(socket.address), WATCHDOG_USEC: "600000" };
  return { home, socket, args: ["run", "--config", file], env };
}

async function startDaemon(t: Test, more: string) {
  const { home, socket, args, env } = await prepared(t, more);
  return { home, socket, running: start(t, home, args, { env }) };
}

t.test("the program reports from READY to STOPPING, and its children cannot", LIVE, async (t) => {
  const { home, socket, running } = await startDaemon(
    t,
    `tools: { codex: { key: { command: [/bin/sh, -c, 'env > "$HOME/seen"; echo sk-0123456789abcdef'] } } }\n`,
  );
  const ready = await socket.came(/^READY=1/);
  const port = /localhost:(\d+), 1 tool$/.exec(socket.messages()[ready] ?? "")?.[1] ?? "";
  const addresses = LOOPBACK.map((host) => (host === "::1" ? `[::1]:${port}` : `${host}:${port}`));
  t.ok(await isHealthy(addresses, HANG_MS), "at READY every address answers");
  t.equal(await controlStatus(join(home, "run", "control.sock")), 200, "and so does the control socket");
  t.equal(ready, 0, "the first message");
  t.match(readFileSync(join(home, "seen"), "utf8"), /^HOME=/m);
  t.notMatch(readFileSync(join(home, "seen"), "utf8"), /NOTIFY_SOCKET|WATCHDOG/);

  await socket.came(/^READY=1\nWATCHDOG=1\nSTATUS=serving/);

  const taken = await takeAll(t, Number(port));
  t.same(
    await probeHealth(addresses, HANG_MS),
    addresses.map(() => "unreachable"),
  );
  const full = await socket.came(/WATCHDOG=1\n.*no new connection gets through to 127\.0\.0\.1:\d+/);
  await socket.came(/WATCHDOG=1/, full + 1);
  for (const connection of taken) connection.destroy();
  await socket.came(/WATCHDOG=1\n.*, 1 tool$/, full + 1);

  running.child.kill("SIGHUP");
  const reloading = await socket.came(/^RELOADING=1/);
  await socket.came(/^READY=1\nSTATUS=serving/, reloading + 1);
  running.child.kill("SIGTERM");
  const stopping = await socket.came(/^STOPPING=1/);
  t.match(await running.ended, { code: 0, signal: null });
  t.same(socket.messages().slice(stopping + 1), [], "STOPPING was the last message");
});

/** Takes every connection that the daemon accepts, as any program on the machine can. */
async function takeAll(t: Test, port: number): Promise<Socket[]> {
  const sockets = LOOPBACK.flatMap((host) =>
    Array.from({ length: 512 }, () => connect({ host, port }).on("error", () => {})),
  );
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
  });
  await Promise.all(sockets.map((socket) => once(socket, "connect")));
  return sockets;
}

const OWN_NETWORK = ["--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"];
const NO_NETWORK =
  spawnSync("unshare", [...OWN_NETWORK, "test", "-w", "/proc/sys/net/ipv6/conf/all/disable_ipv6"]).status !==
    0 && "it takes root, ip and IPv6 to switch IPv6 off in a network of its own";

t.test("a daemon that loses IPv6 does not count as hung", { skip: LIVE.skip || NO_NETWORK }, async (t) => {
  const { home, socket, args, env } = await prepared(t, "tools: { codex: { key: sk-0123456789abcdef } }\n");
  const program = [process.execPath, builtProgram(), ...args];
  const { pid } = startProgram(t, "unshare", [...OWN_NETWORK, ...program], bareEnv(home, env));
  await socket.came(/WATCHDOG=1\nSTATUS=[^;]*$/);
  const off = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6";
  execFileSync("nsenter", ["--target", String(pid), "--net", "sh", "-c", off]);
  const lost = await socket.came(/WATCHDOG=1\n.*; no new connection gets through to \[::1\]:\d+$/);
  await socket.came(/WATCHDOG=1/, lost + 1);
});

t.test("a start that fails reports why, is never READY and keeps its exit code", LIVE, async (t) => {
  const { socket, running } = await startDaemon(
    t,
    "tools: { codex: { key: sk-0123456789abcdef, nonsense: 1 } }\n",
  );
  t.match(await running.ended, { code: 78 });
  t.equal(socket.messages().length, 1);
  t.match(socket.messages()[0], /^STATUS=did not start: .*config\.yaml.*nonsense/);
  t.notMatch(socket.messages()[0], /sk-0/);
});

function controlStatus(socketPath: string): Promise<number | undefined> {
  return new Promise((done, fail) => {
    get({ socketPath, path: "/status" }, (response) => {
      response.resume();
      response.once("close", () => done(response.statusCode));
    }).once("error", fail);
  });
}
