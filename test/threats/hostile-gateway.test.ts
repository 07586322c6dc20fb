import { randomInt } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import t from "tap";
import {
  canaryKey,
  type DaemonUnderTest,
  freshToken,
  startUnderTest,
  stillHealthy,
} from "../doubles/daemon-under-test.ts";
import { repeats } from "../doubles/effort.ts";
import {
  bodyWith,
  eventsWith,
  type HostileGateway,
  NONCE,
  PLAYS,
  type Play,
  startHostileGateway,
  WRONG_BY,
} from "../doubles/hostile-gateway.ts";
import { random } from "../doubles/random.ts";
import { head } from "../doubles/raw-client.ts";
import { ResponseReader } from "../doubles/response-reader.ts";
import { HANG_MS, until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";

/**
 * Requests of two tools, through a gateway that breaks every rule of HTTP. None may get another request's answer or key.
 *
 * KEYBEARER_HOSTILE_REQUESTS=50000 is the long run. KEYBEARER_HOSTILE_SEED repeats the requests of a run that failed.
 */
const REQUESTS = repeats("KEYBEARER_HOSTILE_REQUESTS", 500, 5_000);
const SEED = Number(process.env.KEYBEARER_HOSTILE_SEED ?? randomInt(2 ** 31));
const CLIENTS = 16;
/** After so many requests the gateway says something on connections that are idle. */
const PER_ROUND = 160;

/** When a client leaves. */
const LEAVINGS = ["behind the head", "in the upload", "behind the upload", "in the answer"] as const;

interface Plan {
  readonly tool: string;
  readonly nonce: string;
  readonly method: "GET" | "POST";
  readonly isChunked: boolean;
  /** Of the request's body and of the answer's, nearly. */
  readonly size: number;
  readonly answerSize: number;
  /** How many pieces the body is sent in. */
  readonly pieces: number;
  readonly play: Play;
  /** null: it waits for the end of the answer. */
  readonly leaving: (typeof LEAVINGS)[number] | null;
  /** It leaves by a reset, so many turns of the event loop later. */
  readonly isReset: boolean;
  readonly turns: number;
  /** Whether it uses its connection again. */
  readonly isKept: boolean;
}

function planOf(index: number, below: (n: number) => number): Plan {
  const plays = Object.keys(PLAYS) as Play[];
  const tool = below(2) === 0 ? "a" : "b";
  const hasBody = below(10) > 2;
  // Half of them get an ordinary answer, so that connections are kept and used again.
  const play = plays[below(below(2) === 0 ? 2 : plays.length)] as Play;
  return {
    tool,
    nonce: `n-${tool}-${index}-${below(2 ** 32)
      .toString(16)
      .padStart(8, "0")}`,
    method: hasBody ? "POST" : "GET",
    isChunked: below(2) === 0,
    size: hasBody ? 1 + (below(12) === 0 ? below(300_000) : below(6000)) : 0,
    answerSize: below(8) === 0 ? below(50_000) : below(3000),
    pieces: 1 + below(4),
    play,
    leaving: below(7) === 0 ? (LEAVINGS[below(LEAVINGS.length)] ?? null) : null,
    isReset: below(2) === 0,
    turns: below(6),
    isKept: below(10) > 1,
  };
}

interface Scene {
  readonly under: DaemonUnderTest;
  readonly gateway: HostileGateway;
  readonly tokens: Readonly<Record<string, string>>;
  readonly faults: string[];
  /** How each request ended, by its nonce, as far as its client can say. */
  readonly ends: Map<string, string>;
}

/** One of the clients: a connection, or none at the moment. */
class Client {
  readonly #scene: Scene;
  #socket: Socket | null = null;
  #onBytes: (bytes: Buffer) => void = () => {};
  #onClose: () => void = () => {};

  constructor(scene: Scene) {
    this.#scene = scene;
  }

  /** Sends one request and checks what comes back. */
  async run(plan: Plan): Promise<void> {
    const socket = await this.#connected();
    const reader = new ResponseReader(plan.method);
    const received: Buffer[] = [];
    const over = new Promise<void>((resolve) => {
      this.#onBytes = (bytes) => {
        received.push(bytes);
        reader.read(bytes);
        if (reader.isWhole || plan.leaving === "in the answer") resolve();
      };
      this.#onClose = () => {
        reader.end();
        resolve();
      };
    });
    const hung = setTimeout(() => {
      this.#scene.faults.push(`${plan.nonce} (${plan.play}, ${plan.method}) is still waiting for its answer`);
      socket.destroy();
    }, HANG_MS);
    const isSent = await this.#send(socket, plan);
    if (isSent) await over;
    clearTimeout(hung);
    const hasLeft = !isSent || (plan.leaving === "in the answer" && !socket.destroyed && !reader.isWhole);
    const bytes = Buffer.concat(received).toString("latin1");
    for (const nonce of new Set(bytes.match(NONCE) ?? []))
      if (nonce !== plan.nonce) this.#scene.faults.push(`${plan.nonce} (${plan.play}) was sent ${nonce}`);
    if (hasLeft) await leave(socket, plan);
    else this.#check(plan, reader);
    if (!plan.isKept || hasLeft || reader.header("connection") === "close") socket.destroy();
    this.#onBytes = (more) => this.#scene.faults.push(`behind ${plan.nonce} came ${more.toString("latin1")}`);
    this.#onClose = () => {};
  }

  close(): void {
    this.#socket?.destroy();
  }

  async #connected(): Promise<Socket> {
    if (this.#socket?.writable) return this.#socket;
    const socket = connect({ port: this.#scene.under.daemon.port, host: "127.0.0.1", noDelay: true });
    this.#socket = socket;
    socket.on("error", () => {});
    socket.on("data", (bytes: Buffer) => this.#onBytes(bytes));
    socket.on("close", () => {
      if (socket === this.#socket) this.#onClose();
    });
    await once(socket, "connect");
    return socket;
  }

  /** False: it is to leave before all of it is sent, or right behind that. */
  async #send(socket: Socket, plan: Plan): Promise<boolean> {
    const body = plan.size === 0 ? "" : bodyWith(plan.nonce, plan.size);
    const framing: Record<string, string> = plan.isChunked
      ? { "Transfer-Encoding": "chunked" }
      : { "Content-Length": String(body.length) };
    socket.write(
      head(`${plan.method} /v1/chat/completions/${plan.nonce}`, {
        Host: `127.0.0.1:${this.#scene.under.daemon.port}`,
        Authorization: `Bearer ${this.#scene.tokens[plan.tool]}`,
        "X-Nonce": plan.nonce,
        "X-Play": plan.play,
        "X-Size": String(plan.size),
        "X-Answer-Size": String(plan.answerSize),
        ...(plan.size === 0 ? {} : { "Content-Type": "application/json", ...framing }),
      }),
    );
    if (plan.leaving === "behind the head") return false;
    const step = Math.ceil(body.length / plan.pieces);
    for (let at = 0; at < body.length; at += step) {
      const piece = body.slice(at, at + step);
      socket.write(plan.isChunked ? `${piece.length.toString(16)}\r\n${piece}\r\n` : piece);
      if (plan.leaving === "in the upload") return false;
      if (plan.pieces > 1) await turn();
    }
    if (plan.isChunked && plan.size > 0) socket.write("0\r\n\r\n");
    return plan.leaving !== "behind the upload";
  }

  #check(plan: Plan, reader: ResponseReader): void {
    const { faults, gateway, ends } = this.#scene;
    const { nonce, play } = plan;
    const expected = PLAYS[play];
    const say = (what: string) => faults.push(`${nonce} (${play}, ${plan.method}) ${what}`);
    if (reader.extraBytes > 0) say(`got ${reader.extraBytes} bytes behind the end of its answer`);
    const refusal = reader.header("x-keybearer-refusal");
    // 400: it failed before within half a minute.
    if (reader.status === 502 || (reader.status === 400 && refusal !== null)) {
      if (refusal !== "gateway-broken") say(`was refused as ${refusal}`);
      if (gateway.wasAnswered(nonce)) say("was answered by the gateway, and refused here");
      ends.set(nonce, "gateway-failed");
      return;
    }
    if (reader.status !== 200 || reader.header("x-nonce") !== nonce || expected === "refused") {
      say(`got ${JSON.stringify(reader.head.slice(0, 200))}`);
      return;
    }
    const whole =
      play === "as events" ? eventsWith(nonce, plan.answerSize) : bodyWith(nonce, plan.answerSize);
    const body = reader.body().toString("latin1");
    if (!whole.startsWith(body)) say("got a body that is not its own");
    const isAll = body.length === whole.length - (expected === "short" ? WRONG_BY : 0);
    if (reader.isWhole && !isAll) say(`got ${body.length} of ${whole.length} bytes as if they were all`);
    if (reader.isWhole && expected === "cut") say("got an answer that was cut as if it were whole");
    if (!reader.isWhole && expected === "whole") say("was cut off");
    ends.set(nonce, reader.isWhole ? "complete" : "gateway-failed");
  }
}

async function leave(socket: Socket, plan: Plan): Promise<void> {
  for (let turns = 0; turns < plan.turns; turns += 1) await turn();
  if (plan.isReset) socket.resetAndDestroy();
  else socket.destroy();
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** One record each, which says how it ended. Only of a client that left at once there may be none. */
function recordFaults({ under, gateway, ends }: Scene, plans: readonly Plan[]): string[] {
  const byNonce = new Map<string, string[]>();
  for (const { endpoint, end } of recordsIn(under.paths.usage)) {
    const nonce = endpoint.slice(endpoint.lastIndexOf("/") + 1);
    byNonce.set(nonce, [...(byNonce.get(nonce) ?? []), String(end)]);
  }
  const faults: string[] = [];
  for (const { nonce, leaving, play, method } of plans) {
    const records = byNonce.get(nonce) ?? [];
    const arrivals = gateway.arrivals(nonce);
    const expected = ends.get(nonce);
    const mayBeNone = leaving !== null && arrivals === 0;
    if (records.length !== 1 && !(mayBeNone && records.length === 0))
      faults.push(`${nonce} (${play}) has ${records.length} records: ${records.join()}`);
    else if (expected !== undefined && records[0] !== expected)
      faults.push(`${nonce} (${play}) ended as ${expected}, and its record says ${records[0]}`);
    if (arrivals > (method === "GET" ? 2 : 1)) faults.push(`${nonce} was sent ${arrivals} times`);
  }
  return faults;
}

t.test(
  `no request gets another's answer or key from a gateway that breaks every rule (seed ${SEED})`,
  { timeout: 60_000 + REQUESTS * 60 },
  async (t) => {
    const keys = { a: canaryKey(), b: canaryKey() };
    const a = freshToken();
    const b = freshToken();
    const gateway = await startHostileGateway(t, keys);
    const under = await startUnderTest(
      t,
      `gateway: ${gateway.origin}/v1\ntools:\n  a: { key: ${keys.a}, token: "${a.hash}" }\n  b: { key: ${keys.b}, token: "${b.hash}" }\n`,
    );
    const tokens = { a: a.token, b: b.token };
    const scene: Scene = { under, gateway, tokens, faults: [], ends: new Map() };
    const clients = Array.from({ length: CLIENTS }, () => new Client(scene));
    const below = random(SEED);
    const plans = Array.from({ length: REQUESTS }, (_, index) => planOf(index, below));
    const began = performance.now();

    let next = 0;
    let unasked = 0;
    while (next < plans.length) {
      const end = next + PER_ROUND;
      const takeTurns = async (client: Client) => {
        for (let plan = plans[next]; plan !== undefined && next < end; plan = plans[next]) {
          next += 1;
          await client.run(plan);
        }
      };
      await Promise.all(clients.map(takeTurns));
      // Between two rounds nothing is asked for. While a request is on its way, such bytes could not be distinguished from its answer.
      await until("all requests are over", async () =>
        (await under.daemon.status()).tools.every(({ running }) => running === 0),
      );
      unasked += gateway.sayUnasked(below);
      // Loopback delivers at once, and each turn of the event loop reads what was delivered.
      for (let turns = 0; turns < 10; turns += 1) await turn();
    }
    for (const client of clients) client.close();
    t.comment(`${REQUESTS} requests in ${Math.round(performance.now() - began)} ms`);

    const faults = [...scene.faults, ...gateway.faults, ...recordFaults(scene, plans)];
    t.strictSame(faults.slice(0, 20), [], `${faults.length} faults with seed ${SEED}`);
    t.ok(unasked > 0, `the gateway said something unasked on ${unasked} connections`);
    // RFC 9112 section 9.2: after that it is unknown where the next answer begins, so the connection should be closed.
    t.equal(gateway.reused(), 0, "these were not used again");
    const whole = [...scene.ends.values()].filter((end) => end === "complete").length;
    t.ok(whole > REQUESTS / 2, `${whole} answers came whole`);
    await until("only connections that can be used again are open", () => {
      const { open, kept } = gateway.connections();
      return open === kept && kept <= CLIENTS * 2;
    });
    await stillHealthy(t, under, [keys.a, keys.b, a.token, b.token]);
    await under.daemon.stop(0);
    await until("no connection is left", () => gateway.connections().open === 0);
  },
);
