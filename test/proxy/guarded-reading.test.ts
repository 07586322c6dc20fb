import { once } from "node:events";
import t, { type Test } from "tap";
import { guardReading } from "../../src/proxy/guarded-reading.ts";
import { socketPair } from "../doubles/socket-pair.ts";
import { until } from "../doubles/until.ts";

const CONTINUE = "HTTP/1.1 100 Continue\r\nx-why: no reason\r\n\r\n";
const HINTS = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n";
const ANSWER = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/** Two ends of a connection, of which one skips: each piece is sent once the one before it has arrived. */
async function scene(t: Test) {
  const { socket, gateway } = await socketPair(t);
  const line = { awaitsHead: true, held: false };
  guardReading(socket, line);
  let text = "";
  socket.on("readable", () => {
    for (let bytes = socket.read(); bytes !== null; bytes = socket.read()) text += bytes.toString("latin1");
  });
  let sent = 0;
  const send = async (piece: string) => {
    gateway.write(piece);
    sent += piece.length;
    await until("it arrived", () => socket.bytesRead === sent && socket.readableLength === 0);
  };
  return { line, socket, gateway, send, read: () => text };
}

t.test("what a gateway says before its answer is skipped, however it is cut into pieces", async (t) => {
  const whole = CONTINUE + ANSWER;
  for (const size of [whole.length, 1, 5, 11, 12, 13, CONTINUE.length, CONTINUE.length + 1]) {
    const { line, send, read } = await scene(t);
    for (let at = 0; at < whole.length; at += size) await send(whole.slice(at, at + size));
    t.equal(read(), ANSWER, `${size} bytes at a time`);
    t.equal(line.awaitsHead, false);
  }
});

t.test("it is skipped as often as it is said, and hints with it", async (t) => {
  const { send, read } = await scene(t);
  await send(`${CONTINUE}${HINTS}`);
  t.equal(read(), "");
  await send(`${HINTS}${CONTINUE}${CONTINUE}${ANSWER}`);
  t.equal(read(), ANSWER);
});

t.test("while it is held nothing is read, and afterwards everything is there", async (t) => {
  const { line, socket, gateway, send, read } = await scene(t);
  await send(ANSWER);
  line.held = true;
  gateway.end("and more");
  await until("it is here", () => socket.readableLength === "and more".length);
  t.equal(read(), ANSWER);
  const ended = once(socket, "end");
  line.held = false;
  socket.emit("readable");
  await ended;
  t.equal(read(), `${ANSWER}and more`);
});

t.test("an answer passes as it is, whatever is in its body", async (t) => {
  for (const answer of [
    ...[ANSWER, "HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/2.0 100 x\r\n\r\n"],
    ...["no http at all\r\n\r\n", "XXXXXXXXX100\r\n\r\n", "HTTP/1.1\r"],
  ]) {
    const { line, send, read } = await scene(t);
    await send(answer);
    t.equal(read(), answer);
    t.equal(line.awaitsHead, false);
    await send(CONTINUE);
    t.ok(read().endsWith(CONTINUE), "inside an answer it is the answer's");
  }
});

t.test("one that never ends is not kept in memory for ever", async (t) => {
  const { line, send, read } = await scene(t);
  const endless = `HTTP/1.1 100 Continue\r\nx-long: ${"x".repeat(20_000)}`;
  await send(endless);
  t.equal(read(), endless, "whoever parses it says what is wrong with it");
  t.equal(line.awaitsHead, false);
});
