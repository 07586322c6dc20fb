import type { Socket } from "node:net";
import t, { type Test } from "tap";
import { type OneTool, startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { type GatewayCall, type RawGateway, startRawGateway } from "../doubles/raw-gateway.ts";
import { ResponseReader } from "../doubles/response-reader.ts";
import { settledAs } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";

const KB = 1024;
/** From what fits into one read to more than all buffers on the way hold. One of them ends while the daemon waits. */
const SIZES = [20 * KB, 700 * KB, 3000 * KB, 9000 * KB, 16_000 * KB];

/** Different at each place, and for each answer. */
function contentOf(size: number, seed: number): Buffer {
  const bytes = Buffer.alloc(size);
  for (let at = 0; at + 4 <= size; at += 4) bytes.writeUInt32LE((seed + at * 2_654_435_761) >>> 0, at);
  return bytes;
}

const CONTENT = contentOf(Math.max(...SIZES), 7);

/** Asks for an answer of this size and reads nothing of it until all that can be on its way is. */
async function askSlowly(t: Test, one: OneTool, gateway: RawGateway, size: number) {
  const client = await openRaw(t, one.port);
  const reader = new ResponseReader();
  client.socket.pause();
  client.socket.on("data", (bytes: Buffer) => reader.read(bytes));
  client.socket.on("close", () => reader.end());
  client.send(head(`GET /v1/size-${size}`, { Host: one.host, Authorization: `Bearer ${one.token}` }));
  await until("it is asked", () => gateway.calls.at(-1)?.target === `/v1/size-${size}`);
  const { socket } = gateway.calls.at(-1) as GatewayCall;
  await settled(socket);
  return { client, reader, socket };
}

/** Waits until the system takes no more of what was written, or has taken all of it. */
async function settled(socket: Socket): Promise<void> {
  let before = -1;
  for (let turns = 0; turns < 50; turns += 1) {
    if (socket.bytesWritten - socket.writableLength !== before) turns = 0;
    before = socket.bytesWritten - socket.writableLength;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const HEADS: Readonly<Record<string, (size: number) => string>> = {
  "up to the end of the connection": () => "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
  "with a length": (size) => `HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`,
};

for (const [framing, headFor] of Object.entries(HEADS)) {
  t.test(`a slow client gets all of a response ${framing} from a gateway that closes after it`, async (t) => {
    const gateway = await startRawGateway(t, (call) => {
      const size = Number(call.target.split("-")[1]);
      call.send(headFor(size));
      call.socket.end(CONTENT.subarray(0, size));
    });
    const one = await startWithOneTool(t, gateway.origin);
    for (const size of SIZES) {
      const { client, reader } = await askSlowly(t, one, gateway, size);
      client.socket.resume();
      await until("all of it came", () => reader.isWhole);
      t.ok(reader.body().equals(CONTENT.subarray(0, size)), `${size} bytes`);
      client.socket.destroy();
      await settledAs(t, one, `/v1/size-${size}`, [{ end: "complete", status: 200, bytes_out: size }]);
    }
    await stillHealthy(t, one, [one.key, one.token]);
  });

  t.test(
    `a response ${framing} that the gateway resets does not look whole to a slow client`,
    // For a paused response without a length, node:http reports a reset as its end.
    { todo: framing === "with a length" ? false : "node:http does not distinguish the two" },
    async (t) => {
      const gateway = await startRawGateway(t, (call) => {
        const size = Number(call.target.split("-")[1]);
        // One byte is missing to its length.
        call.send(headFor(size));
        call.send(CONTENT.subarray(0, size - 1));
      });
      const one = await startWithOneTool(t, gateway.origin);
      for (const size of SIZES) {
        const { client, reader, socket } = await askSlowly(t, one, gateway, size);
        socket.resetAndDestroy();
        client.socket.resume();
        await client.closed();
        t.notOk(reader.isWhole, `${size} bytes: cut off`);
        const body = reader.body();
        t.ok(body.equals(CONTENT.subarray(0, body.length)), "and right up to there");
        await settledAs(t, one, `/v1/size-${size}`, [{ end: "gateway-failed", status: 200 }]);
      }
      await stillHealthy(t, one, [one.key, one.token]);
    },
  );
}

longTest(t, "responses that arrive interleaved do not mix", async (t) => {
  const SIZE = 3000 * KB;
  const CLIENTS = 6;
  const calls: GatewayCall[] = [];
  const gateway = await startRawGateway(t, (call) => {
    call.send(`HTTP/1.1 200 OK\r\nContent-Length: ${SIZE}\r\n\r\n`);
    calls.push(call);
  });
  const one = await startWithOneTool(t, gateway.origin);
  const clients = await Promise.all(Array.from({ length: CLIENTS }, () => openRaw(t, one.port)));
  for (const [n, client] of clients.entries())
    client.send(head(`GET /v1/number-${n}`, { Host: one.host, Authorization: `Bearer ${one.token}` }));
  await until("all are asked", () => calls.length === CLIENTS);
  const contents = clients.map((_, n) => contentOf(SIZE, n * 1_000_003));
  const PIECE = 50_000;
  for (let at = 0; at < SIZE; at += PIECE) {
    for (const call of calls) {
      const content = contents[Number(call.target.split("-")[1])];
      if (content !== undefined) call.send(content.subarray(at, at + PIECE));
    }
    const { socket } = clients[(at / PIECE) % CLIENTS] as (typeof clients)[number];
    if (socket.isPaused()) socket.resume();
    else socket.pause();
    await new Promise((resolve) => setImmediate(resolve));
  }
  for (const { socket } of clients) socket.resume();
  for (const [n, client] of clients.entries()) {
    await until("all of it came", () => client.size() > SIZE);
    const reader = new ResponseReader();
    reader.read(client.bytes());
    t.ok(reader.isWhole && reader.body().equals(contents[n] ?? Buffer.alloc(0)), `client ${n} has its own`);
  }
  await stillHealthy(t, one, [one.key, one.token]);
});
