import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import t, { type Test } from "tap";
import { newHome, type Running, saveConfig, startServing } from "../doubles/command.ts";
import { canaryKey, freshToken } from "../doubles/daemon-under-test.ts";
import { repeats } from "../doubles/effort.ts";
import { openSockets } from "../doubles/open-sockets.ts";
import { type GatewayCall, type RawGateway, startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";
import { diceOf, findMarkers, makeSession, type Place, type Session } from "./fuzz-grammar.ts";

/** KEYBEARER_FUZZ_SEED repeats a run, KEYBEARER_FUZZ_SESSIONS makes it longer. */
const SEED = process.env.KEYBEARER_FUZZ_SEED ?? randomBytes(6).toString("hex");
const SESSIONS = repeats("KEYBEARER_FUZZ_SESSIONS", 150, 3_000);
const AT_ONCE = 8;
const ANSWER_MS = 400;
const SLOTS = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

const keys = [canaryKey(), canaryKey()];
const tokens = [freshToken(), freshToken()];

/** Answers by the marker in the path, so that a repeated run gets the same answers. */
function answerCall(call: GatewayCall): void {
  const marker = findMarkers(call.target)[0]?.marker ?? "";
  const dice = diceOf(marker);
  const key = SLOTS.flatMap((slot) => call.header(slot)).join();
  const echo = { "x-echo": key, "x-marker": marker };
  const kind = dice.below(12);
  if (call.header("upgrade").length > 0 && dice.chance(0.5)) {
    call.isTunnel = true;
    call.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
  } else if (kind === 0 && call.method === "POST") {
    // Not a GET: the daemon may repeat one, which would look like a request that became two.
    call.socket.destroy();
  } else if (kind === 1) call.send("HTTP/1.1 204 No Content\r\n\r\n");
  else if (call.method === "HEAD") call.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
  else if (kind === 2) call.answer(`401 ${key}`, echo, `{"error":"no such key ${call.head}"}`);
  else if (kind === 3) {
    call.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n");
    call.send(`x-marker: ${marker}\r\n\r\n6\r\ndata: \r\n0\r\n\r\n`);
  } else void call.whole.then(() => call.answer("200 OK", echo, `answer to ${marker}`));
}

/** Sends one session and returns what came back when it is over. */
async function play(place: Place, session: Session): Promise<string> {
  const socket = connect({ port: place.port, host: "127.0.0.1", noDelay: true });
  const parts: Buffer[] = [];
  let over = false;
  socket.on("error", () => {});
  socket.on("data", (chunk: Buffer) => void parts.push(chunk));
  for (const event of ["end", "close"]) {
    socket.on(event, () => {
      over = true;
    });
  }
  const text = () => Buffer.concat(parts).toString("latin1");
  await Promise.race([once(socket, "connect"), once(socket, "close")]).catch(() => {});
  const size = Math.ceil(session.bytes.length / session.pieces);
  for (let at = 0; at < session.bytes.length && !over; at += size) {
    socket.write(session.bytes.subarray(at, at + size));
    if (session.pieces > 1) await new Promise((resolve) => setImmediate(resolve));
  }
  await finish(socket, session, () => over, text);
  return text();
}

async function finish(socket: Socket, session: Session, over: () => boolean, text: () => string) {
  const answered = () => text().split("HTTP/1.1 ").length - 1 >= Math.max(1, session.plain.size);
  const patience = async (ms: number, done: () => boolean) => {
    for (const end = performance.now() + ms; performance.now() < end && !done() && !over(); ) await wait(3);
  };
  if (session.ending === "half-close") socket.end();
  if (session.ending === "answer" || session.ending === "half-close")
    await patience(session.plain.size > 0 ? 5000 : ANSWER_MS, answered);
  if (session.ending === "linger") await patience(ANSWER_MS, () => false);
  if (session.ending === "reset" && !socket.destroyed) socket.resetAndDestroy();
  socket.destroy();
}

interface Book {
  readonly sessions: Map<number, Session>;
  readonly faults: string[];
}

/** What is wrong with a request that reached the gateway, compared with what was sent; null for nothing. */
function faultOf(book: Book, call: GatewayCall, seen: Map<string, number>): string | null {
  if (!/^[A-Z-]+ \/v1\S* HTTP\/1\.1\r\n/.test(call.head)) return "a request line that no session sent";
  const shown = SLOTS.flatMap((slot) => call.header(slot));
  const [key = ""] = shown;
  const tool = keys.findIndex((one) => key === one || key === `Bearer ${one}`);
  if (shown.length !== 1) return `${shown.length} credentials instead of one`;
  if (tool === -1) return "a credential that is no key";
  if (tokens.some(({ token }) => call.head.includes(token))) return "a token was forwarded";
  const framings = ["content-length", "transfer-encoding"].flatMap((name) => call.header(name));
  if (framings.length > 1) return "two lengths, and the gateway may take either";
  const names = call.head.split("\r\n").map((line) => line.slice(0, line.indexOf(":")).toLowerCase());
  const slots = names.map((name) => name.replaceAll("_", "-")).filter((name) => SLOTS.includes(name));
  if (slots.length !== 1) return "another spelling of a credential was forwarded";
  const [marked] = findMarkers(call.target);
  if (marked === undefined) return null;
  const { marker } = marked;
  const session = book.sessions.get(marked.session);
  if (session === undefined) return "no session sent this";
  const times = (seen.get(marker) ?? 0) + 1;
  seen.set(marker, times);
  const sent = session.bytes.toString("latin1").split(marker).length - 1;
  if (times > sent) return "one request became two";
  if (session.never.has(marker)) return "its credentials should have been refused";
  if (!session.tools.has(tool)) return "the key of a tool whose token was not shown";
  const owner = session.plain.get(marker);
  return owner !== undefined && owner !== tool ? "another tool's key" : null;
}

/** The same for what came back to the client. */
function answerFault(session: Session, text: string): string | null {
  if (keys.some((key) => text.includes(key))) return "a key came back";
  if (/^access-control-/im.test(text)) return "an answer has a CORS header";
  if (session.plain.size === 0) return null;
  const order = [...session.plain.keys()];
  const shown = [...text.matchAll(/x-marker: (\w+)/g)];
  const paths = shown.map(([, marker]) => order.indexOf(marker ?? ""));
  const inOrder = paths.every((at, i) => at > (paths[i - 1] ?? -1));
  return inOrder ? null : "answers out of their order";
}

function memoryKb(pid: number): number | null {
  if (process.platform !== "linux") return null;
  return Number(/VmRSS:\s*(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0);
}

async function startFuzzed(t: Test, gateway: RawGateway) {
  const home = await newHome(t);
  await saveConfig(
    home,
    `listen: localhost:0
gateways:
  main: { base_url: "${gateway.origin}/v1", websockets: true, timeouts: { connect: 5s, first_byte: 5s, idle: 5s } }
tools:
  one: { key: "${keys[0]}", token: "${tokens[0]?.hash}", token_in_url: true }
  two: { key: "${keys[1]}", token: "${tokens[1]?.hash}" }
log: { level: warn }
`,
  );
  return startServing(t, home);
}

/** Sends all sessions, several at once, up to the first fault. Returns how many, and the memory once it was warm. */
async function wander(running: Running & { readonly port: number }, book: Book) {
  const place = { port: running.port, tokens: tokens.map(({ token }) => token) };
  let index = 0;
  let warm: number | null = null;
  const ended = { value: false };
  void running.ended.then(() => {
    ended.value = true;
  });
  const lane = async () => {
    while (index < SESSIONS && !ended.value && book.faults.length === 0) {
      const mine = index++;
      const session = makeSession(diceOf(`${SEED}/${mine}`), mine, place);
      book.sessions.set(mine, session);
      const text = await play(place, session);
      const fault = answerFault(session, text);
      if (fault !== null)
        book.faults.push(`session ${mine}: ${fault}\n${JSON.stringify(text.slice(0, 4000))}`);
      if (warm === null && mine > SESSIONS * 0.4) warm = memoryKb(running.pid);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
  return { count: index, warm, crashed: ended.value };
}

t.test(
  `no bytes crash the daemon or pass its checks (KEYBEARER_FUZZ_SEED=${SEED})`,
  { timeout: 60_000 + SESSIONS * 100 },
  async (t) => {
    const book: Book = { sessions: new Map(), faults: [] };
    const seen = new Map<string, number>();
    const gateway = await startRawGateway(
      t,
      (call) => {
        const fault = faultOf(book, call, seen);
        if (fault !== null) book.faults.push(`${fault}\n${JSON.stringify(call.head)}`);
        answerCall(call);
      },
      { keepBodies: false, onBroken: (why) => void book.faults.push(why) },
    );
    const running = await startFuzzed(t, gateway);
    const before = openSockets(running.pid);
    const { count, warm, crashed } = await wander(running, book);
    t.comment(`seed ${SEED}: ${count} sessions, ${gateway.calls.length} reached the gateway`);
    t.strictSame(book.faults, [], `nothing wrong came through; repeat with KEYBEARER_FUZZ_SEED=${SEED}`);
    t.notOk(crashed, "it did not end");
    t.ok(
      seen.size > count / 20,
      "valid requests are served, so a request that is not served means something",
    );

    const health = await fetch(`${running.url}/healthz`);
    t.equal(await health.text(), "ok\n");
    const served = await fetch(`${running.url}/v1/f/last`, {
      headers: { "x-api-key": tokens[1]?.token ?? "" },
    });
    t.ok(served.status === 200 || served.status === 204, "it still serves");
    await served.text();
    await until("its connections are closed", () => openSockets(running.pid) <= before + 8);
    const after = memoryKb(running.pid);
    if (warm !== null && after !== null) {
      t.comment(`memory: ${Math.round(warm / 1024)} MB when warm, ${Math.round(after / 1024)} MB after`);
    }
    const log = running.stderr();
    t.notMatch(
      log,
      /unhandled|uncaught|Warning:|"level":"(?:error|fatal)"|failed inside/i,
      "nothing failed inside",
    );
    t.notMatch(log, /^\s+at .*\(?.*:\d+:\d+\)?$/m, "its log has no stack");
    for (const secret of [...keys, ...tokens.map(({ token }) => token)]) t.notOk(log.includes(secret));
    running.child.kill("SIGTERM");
    const { code } = await running.ended;
    t.equal(code, 0, "it stops when asked");
  },
);
