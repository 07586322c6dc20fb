import { once } from "node:events";
import type { Socket } from "node:net";
import t, { type Test } from "tap";
import { DirectReading } from "../../src/proxy/direct-reading.ts";
import { socketPair } from "../doubles/socket-pair.ts";
import { until } from "../doubles/until.ts";

async function scene(t: Test) {
  const line = { held: false };
  const reading = new DirectReading(line);
  const { socket, gateway } = await socketPair(t, { onread: reading.onread });
  reading.begin(socket);
  return { line, socket, gateway };
}

/** What is handed over, as long as nobody stops it. */
function reader(socket: Socket, onPiece: () => void = () => {}): Buffer[] {
  const pieces: Buffer[] = [];
  socket.on("readable", () => {
    for (let piece = socket.read(); piece !== null; piece = socket.read()) {
      pieces.push(piece);
      onPiece();
    }
  });
  return pieces;
}

t.test("what was handed over stays as it was, whatever any connection reads after it", async (t) => {
  const [one, other] = [await scene(t), await scene(t)];
  const [ofOne, ofOther] = [reader(one.socket), reader(other.socket)];
  one.gateway.write("a first piece");
  await until("it is read", () => ofOne.length === 1);
  other.gateway.write("X".repeat(1000));
  await until("another is read", () => Buffer.concat(ofOther).length === 1000);
  one.gateway.write("and a second");
  await until("and one more", () => ofOne.length === 2);
  t.same(ofOne.map(String), ["a first piece", "and a second"]);
});

t.test("a large answer comes in order, and its end after it", async (t) => {
  const { socket, gateway } = await scene(t);
  const sent = Buffer.alloc(1_000_000);
  for (let at = 0; at < sent.length; at += 4) sent.writeUInt32LE(at, at);
  let before = -1;
  const pieces = reader(socket);
  socket.on("end", () => {
    before = Buffer.concat(pieces).length;
  });
  gateway.end(sent);
  await once(socket, "close");
  t.ok(Buffer.concat(pieces).equals(sent));
  t.equal(before, sent.length, "all of it was there when the end was told");
});

t.test("nothing more is read while it is held, and all of it afterwards", async (t) => {
  const { line, socket, gateway } = await scene(t);
  const sent = Buffer.alloc(4_000_000, "0123456789");
  const pieces = reader(socket, () => {
    line.held = true;
  });
  gateway.end(sent);
  let ended = false;
  socket.on("end", () => {
    ended = true;
  });
  for (let round = 1; !ended; round += 1) {
    await until("the next piece", () => pieces.length === round || ended);
    const { bytesRead } = socket;
    for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    if (pieces.length > round || socket.bytesRead > bytesRead) return void t.fail("it went on reading");
    line.held = false;
    socket.resume();
  }
  t.ok(pieces.length > 50, "it was stopped again and again");
  t.ok(Buffer.concat(pieces).equals(sent));
});

t.test("a connection that says something nobody waits for is closed", async (t) => {
  const { socket, gateway } = await scene(t);
  gateway.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
  await once(socket, "close");
  t.equal(socket.read(), null, "and nobody finds it there later");
});

t.test("a connection that is reset tells so", async (t) => {
  const { socket, gateway } = await scene(t);
  const pieces = reader(socket);
  const failed = once(socket, "error");
  gateway.write("half");
  await until("the first half", () => pieces.length === 1);
  gateway.resetAndDestroy();
  t.match(await failed, [{ code: "ECONNRESET" }]);
});
