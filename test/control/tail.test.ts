import { createServer, request } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import t, { type Test } from "tap";
import { followTail, type TailEnd } from "../../src/control/client.ts";
import { ControlServer } from "../../src/control/server.ts";
import { Tail, type TailLine } from "../../src/control/tail.ts";
import { newHome } from "../doubles/command.ts";
import { serveControls } from "../doubles/idle-control.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { record } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";

/** A control socket with nothing behind it but a tail. */
async function startTail(t: Test): Promise<{ tail: Tail; socket: string; stop: () => Promise<void> }> {
  const home = await newHome(t);
  const tail = new Tail();
  const server = await serveControls(t, home, { tail });
  return { tail, socket: join(home, "run", "control.sock"), stop: () => server.close() };
}

interface Follower {
  readonly lines: TailLine[];
  readonly ended: TailEnd[];
  pause(): void;
  resume(): void;
}

async function follow(socket: string): Promise<Follower> {
  const lines: TailLine[] = [];
  const ended: TailEnd[] = [];
  let paused: Promise<void> | null = null;
  let resume = () => {};
  const read = async () => {
    const following = followTail(socket);
    for (;;) {
      const next = await following.next();
      if (next.done) return void ended.push(next.value);
      lines.push(next.value);
      await paused;
    }
  };
  const reading = read();
  await until("it follows", () => lines.length > 0 || ended.length > 0);
  reading.catch((error) => t.fail(String(error)));
  return {
    lines,
    ended,
    pause() {
      paused = new Promise((resolve) => {
        resume = resolve;
      });
    },
    resume() {
      paused = null;
      resume();
    },
  };
}

t.test("every follower gets every record, complete and in order", async (t) => {
  const { tail, socket } = await startTail(t);
  tail.notify(record(0));
  const [first, second] = [await follow(socket), await follow(socket)];
  const records = [1, 2, 3].map((number) => record(number, { model: `模型 ${number}\n"quoted"` }));
  for (const one of records) tail.notify(one);
  for (const { lines } of [first, second]) {
    await until("all came", () => lines.length === 4);
    t.same(lines, [{ following: true }, ...records.map((one) => ({ record: one }))]);
  }
});

t.test("a follower that does not read loses lines, learns how many, and costs bounded memory", async (t) => {
  const { tail, socket } = await startTail(t);
  const quick = await follow(socket);
  const slow = await follow(socket);
  slow.pause();
  const sent = 5000;
  for (let number = 0; number < sent; number += 1) {
    tail.notify(record(number, { endpoint: `/v1/${"x".repeat(2000)}` }));
    if (number % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  const count = ({ lines }: Follower) => {
    let [records, lost] = [0, 0];
    for (const line of lines) {
      if ("record" in line) records += 1;
      if ("lost" in line) lost += line.lost;
    }
    return { records, lost, all: records + lost };
  };
  await until("the quick one has everything", () => count(quick).all === sent);
  slow.resume();
  await until("the slow one knows of everything", () => count(slow).all === sent);
  const kept = count(slow).records;
  t.ok(kept < 1500, `of ${sent} records of 3 kB, ${kept} waited in the daemon and the socket`);
  const number = (line: TailLine) => ("record" in line ? Number(line.record.id.slice(10)) : -1);
  const numbers = slow.lines.map(number).filter((one) => one >= 0);
  t.same(
    numbers,
    [...numbers].sort((a, b) => a - b),
    "what came is in order",
  );
  tail.notify(record(sent));
  await until("it gets the next one again", () => slow.lines.some((line) => number(line) === sent));
});

t.test("sixteen clients can follow; the next is refused with the reason until one leaves", async (t) => {
  const { tail, socket } = await startTail(t);
  const leaving = connect(socket);
  leaving.write("GET /tail HTTP/1.1\r\nhost: x\r\n\r\n");
  await new Promise((resolve) => leaving.once("data", resolve));
  for (let number = 0; number < 15; number += 1) await follow(socket);
  const one = await follow(socket);
  t.match(one.ended, [{ problem: /16 others are following already/, final: true }]);
  leaving.destroy();
  await until("one more can follow", async () => {
    const next = await follow(socket);
    return next.ended.length === 0;
  });
  // Writing to a follower that left would throw.
  tail.notify(record(1));
});

t.test("when the daemon stops, the follower learns that, and that another attempt may help", async (t) => {
  const { socket, stop } = await startTail(t);
  const follower = await follow(socket);
  await stop();
  await until("it ended", () => follower.ended.length > 0);
  t.same(follower.ended, [{ problem: "keybearer stopped", next: null, final: false }]);
  const late = await follow(socket);
  t.same(late.ended, [{ problem: "keybearer is not running", next: null, final: false }]);
});

t.test("a follower may try again while a daemon starts, but not at an older one with no tail", async (t) => {
  const socket = join(await newHome(t), "control.sock");
  const server = new ControlServer(socket, quietLog());
  await server.listen();
  t.teardown(() => server.close());
  t.match((await follow(socket)).ended, [{ problem: /starting/, final: false }]);

  const older = join(await newHome(t), "control.sock");
  const without = createServer((_req, res) => void res.writeHead(404).end('{"error":"no such control"}'));
  await new Promise<void>((resolve) => without.listen(older, resolve));
  t.teardown(() => without.close());
  t.match((await follow(older)).ended, [
    { problem: /older than this program and cannot be followed/, next: "restart it", final: true },
  ]);
});

t.test("a browser cannot follow, and only GET can", async (t) => {
  const { socket } = await startTail(t);
  const ask = (method: string, headers: Record<string, string>) =>
    new Promise<number>((resolve, reject) => {
      const asking = request({ socketPath: socket, path: "/tail", method, headers }, (answer) => {
        answer.destroy();
        resolve(answer.statusCode ?? 0);
      });
      asking.on("error", reject);
      asking.end();
    });
  t.equal(await ask("GET", { origin: "http://localhost:5397" }), 403);
  t.equal(await ask("POST", {}), 404);
  t.equal(await ask("GET", {}), 200);
});
