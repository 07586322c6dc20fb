import { randomBytes } from "node:crypto";
import { createServer, type Socket } from "node:net";
import t, { type Test } from "tap";
import type { Clock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import { ReplyReader } from "../../src/shared/connection.ts";
import { Signer } from "../../src/shared/signature.ts";
import { listen } from "../doubles/listen.ts";
import { until } from "../doubles/until.ts";
import { LimiterMachine } from "./limiter-machine.ts";
import { emptyStore, missingStore } from "./redis.ts";

/* What someone can do who has taken over the store. */

const skip = missingStore() ?? false;

t.test("only a signed message says that a key was rotated elsewhere", { skip }, async (t) => {
  const store = await emptyStore();
  const secret = randomBytes(32).toString("hex");
  const settings = "limits: { requests: 40/day }";
  const laptop = new LimiterMachine(t, store, "laptop", { settings, secret });
  const desktop = new LimiterMachine(t, store, "desktop", { settings, secret });
  await laptop.connected();
  await desktop.connected();
  const rotated = { key: "…abcd", successor: "codex-abc1234" };
  const generation = await store.admin(["HGET", "keybearer:generation", "id"]);
  const invent = (id: string, more: object) => {
    const machine = { name: id, connection: "one", seen: Date.now(), generation, keys: [], ...more };
    return store.admin(["HSET", "keybearer:machines", id, JSON.stringify(machine)]);
  };
  const signer = Signer.of(new Secret(randomBytes(32).toString("hex")), "keybearer");
  const statement = JSON.stringify({ name: "bbbb", published: null, keys: [], rotated: [rotated] });
  await invent("aaaa", { rotated: [rotated] });
  await invent("bbbb", { statement, signature: signer?.sign("presence", "bbbb", statement) });
  await invent("cccc", { statement, signature: "" });
  await desktop.shared.refresh();
  t.equal(desktop.shared.status()?.machines.length, 5);
  t.strictSame(desktop.shared.rotatedElsewhere(), []);

  await laptop.shared.noteRotated(rotated);
  await desktop.shared.refresh();
  t.strictSame(desktop.shared.rotatedElsewhere(), [{ ...rotated, machine: "laptop" }]);
  t.strictSame(laptop.shared.rotatedElsewhere(), [], "the one that says so is not notified");
  await laptop.shared.stop();
  const again = new LimiterMachine(t, store, "laptop", { settings, secret, folder: laptop.folder });
  await again.connected();
  await again.shared.refresh();
  await desktop.shared.refresh();
  t.strictSame(
    desktop.shared.rotatedElsewhere(),
    [{ ...rotated, machine: "laptop" }],
    "also after a restart",
  );
});
const MB = 1024 * 1024;

/** Answers with `first`, and then with `more` as long as anything takes it, up to a bound. */
function sendWithoutEnd(socket: Socket, first: string, more: Buffer): void {
  const send = () => {
    while (!socket.destroyed && socket.bytesWritten < 512 * MB) if (!socket.write(more)) return;
  };
  socket.once("data", () => {
    socket.write(first);
    socket.on("drain", send);
    send();
  });
}

t.test("an answer without end is read up to 8 MB, and the store counts as away", { skip }, async (t) => {
  const store = await emptyStore();
  const forms: readonly [first: string, more: string][] = [
    ["$4000000000\r\n", "x".repeat(65_536)],
    ["*4000000000\r\n", ":1\r\n".repeat(16_384)],
    ["*100\r\n", "$5\r\nhello\r\n".repeat(6000)],
    ["*9000\r\n", `$65000\r\n${"x".repeat(65_000)}\r\n`],
  ];
  for (const [first, more] of forms) {
    let sent = 0;
    const server = createServer((socket) => {
      socket.on("close", () => {
        sent = Math.max(sent, socket.bytesWritten);
      });
      sendWithoutEnd(socket, first, Buffer.from(more));
    });
    const { port } = await listen(t, server);
    const machine = new LimiterMachine(t, store, "laptop", { settings: "limits: { requests: 5/day }", port });
    await until("the store is away", () => sent > 0);
    t.match(machine.shared.status(), { state: "unreachable" });
    t.match(
      machine.shared.status()?.problem,
      /longer than 8 MB|too many parts|answered more than it was asked/,
    );
    t.ok(sent < 64 * MB, `${Math.round(sent / MB)} MB were taken, with what the system buffers`);
    await machine.shared.stop();
  }
});

t.test("a password that the store repeats is not shown", { skip }, async (t) => {
  const store = await emptyStore();
  const server = createServer((socket) => {
    socket.on("data", () => socket.write(`-ERR unknown password ${store.password}\r\n`));
  });
  const { port } = await listen(t, server);
  const machine = new LimiterMachine(t, store, "laptop", { settings: "limits: { requests: 5/day }", port });
  await until("the store refuses", () => machine.shared.status()?.problem !== null);
  t.equal(machine.shared.status()?.problem, "ERR unknown password [redacted]");
});

interface Call {
  readonly id: string;
  readonly to?: string;
  readonly asks?: readonly { readonly limit: number }[];
}

/** A store that grants whatever is asked for, at a time of its own. */
async function generousStore(t: Test, time: () => number): Promise<number> {
  const answerTo = (call: Call): object => {
    const base = { time: time(), generation: "one", settled: true };
    if (call.to !== undefined) return { ...base, position: call.to };
    const answers = call.asks?.map(({ limit }) => ({ granted: limit, parts: [] }));
    return { ...base, answers, machines: [{ id: call.id, name: "laptop", seen: time() }] };
  };
  const bulk = (text: string) => `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
  const server = createServer((socket) => {
    // A command is a list of texts, so it can be read as an answer.
    const reader = new ReplyReader();
    socket.on("data", (chunk) => {
      for (const command of reader.read(chunk)) {
        const [name, , count, ...rest] = command as string[];
        if (name === "AUTH") socket.write("+OK\r\n");
        else if (name === "INFO") socket.write(bulk("run_id:1\r\nredis_version:7.0.0\r\n"));
        else socket.write(bulk(JSON.stringify(answerTo(JSON.parse(rest[Number(count)] ?? "")))));
      }
    });
  });
  return (await listen(t, server)).port;
}

t.test("moving the store's clock brings no request more than the limit", { skip }, async (t) => {
  const store = await emptyStore();
  const MINUTE = 60_000;
  for (const [step, limit] of [
    [0, "5/minute"],
    [61_000, "5/minute"],
    [-61_000, "5/minute"],
    [1900, "5/second"],
    [1900, "5/minute"],
    [3_700_000, "5/hour"],
    [-20 * MINUTE, "5/hour"],
  ] as const) {
    // This machine's own clock stands still, in the middle of every window.
    const now = Date.UTC(2026, 5, 15, 12, 30, 30, 500);
    const clock: Clock = { now: () => now, elapsed: () => 0 };
    let sent = 0;
    const port = await generousStore(t, () => now + sent * step);
    const settings = `limits: { requests: ${limit} }`;
    const machine = new LimiterMachine(t, store, "laptop", { settings, port, clock, timezone: "UTC" });
    await machine.connected();
    let passed = 0;
    for (; sent < 60; sent += 1) if ((await machine.send()) === "go") passed += 1;
    t.ok(passed >= 1 && passed <= 5, `${passed} of 60 passed at ${limit}, with ${step / 1000} s for each`);
    await machine.shared.stop();
  }
});

t.test("an answer is read in whatever pieces it arrives", async (t) => {
  const text = "+OK\r\n*3\r\n$5\r\nhé\r\n\r\n:42\r\n*2\r\n$-1\r\n*0\r\n-ERR no\r\n$0\r\n\r\n";
  const expected = ["OK", ["hé\r\n", 42, [null, []]], "Error: ERR no", ""];
  const bytes = Buffer.from(text);
  for (const size of [1, 2, 3, 7, bytes.length]) {
    const reader = new ReplyReader();
    const replies: unknown[] = [];
    for (let at = 0; at < bytes.length; at += size)
      replies.push(...reader.read(bytes.subarray(at, at + size)));
    t.same(
      replies.map((reply) => (reply instanceof Error ? String(reply) : reply)),
      expected,
    );
  }
  for (const wrong of ["hello\r\n", "$x\r\n", "*-5\r\n", "*1\r\n".repeat(9), "+".repeat(70_000)])
    t.throws(() => [...new ReplyReader().read(Buffer.from(wrong))], /damaged/);
});
