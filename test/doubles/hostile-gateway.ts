import { createServer, type Socket } from "node:net";
import type { Test } from "tap";
import { listen } from "./listen.ts";
import { GatewayCall, RequestReader } from "./raw-gateway.ts";
import { dechunked } from "./stimulus.ts";

/**
 * A gateway that does to each request what its header `x-play` says, and checks that each arrives with its own body and
 * with the key of its own tool. Everything it says about a request has the request's nonce in it.
 */
export interface HostileGateway {
  readonly origin: string;
  /** What arrived and should not have, in words. */
  readonly faults: readonly string[];
  /** How often the request with this nonce arrived. */
  arrivals(nonce: string): number;
  /** Whether it was answered in full, by the rules, on a connection that was open. */
  wasAnswered(nonce: string): boolean;
  /** Says something on about half of the connections on which nothing is asked for. Returns how many these were. */
  sayUnasked(random: (below: number) => number): number;
  /** Requests that came over a connection after that. */
  reused(): number;
  connections(): { readonly open: number; readonly kept: number };
}

/** What the client can expect of each play, if no connection breaks that was kept from an earlier request. */
export const PLAYS = {
  "with a length": "whole",
  "in chunks": "whole",
  "up to the end of the connection": "whole",
  "as events": "whole",
  "informational responses first": "whole",
  "before the upload": "whole",
  "before the upload, of which no more is read": "whole or cut",
  "closed behind the answer": "whole",
  "garbage behind the answer": "whole",
  "another response behind the answer": "whole",
  "a length that is too short": "short",
  "a length that is too long": "cut",
  "cut in a chunk": "cut",
  "reset in a chunk": "cut",
  "reset behind the head": "cut",
  "reset in the head": "refused",
  "reset before the head": "refused",
  "closed before the head": "refused",
  "switching protocols unasked": "refused",
  "no HTTP": "refused",
  "closed when it is used again": "whole",
} as const satisfies Record<string, "whole" | "short" | "cut" | "whole or cut" | "refused">;

export type Play = keyof typeof PLAYS;

/** So many bytes are missing from, or too many for, a length that is wrong. */
export const WRONG_BY = 7;

export const NONCE = /n-[a-z]+-\d+-[0-9a-f]{8}/g;

/** A body of about this size with the nonce all over it, so that no piece of it can pass for another request's. */
export function bodyWith(nonce: string, size: number): string {
  const text = `${nonce} `.repeat(Math.ceil(size / (nonce.length + 1))).slice(0, size);
  return JSON.stringify({ model: "m", nonce, text });
}

export function eventsWith(nonce: string, size: number): string {
  const delta = { nonce, object: "chat.completion.chunk", choices: [{ delta: { content: nonce } }] };
  const event = `data: ${JSON.stringify(delta)}\n\n`;
  return `${event.repeat(1 + Math.floor(size / event.length))}data: [DONE]\n\n`;
}

interface Connection {
  readonly socket: Socket;
  /** Requests that came over it. */
  requests: number;
  /** Of the request that came last. */
  nonce: string;
  isBusy: boolean;
  /** It was closed, which the other side may hear of too late. */
  isClosed: boolean;
  /** More was said on it than was asked for: behind an answer, or while it was idle. */
  saidMore: "behind an answer" | "while idle" | null;
}

/** @param keys by tool: the part of a nonce between its first two hyphens. */
export async function startHostileGateway(
  t: Test,
  keys: Readonly<Record<string, string>>,
): Promise<HostileGateway> {
  const faults: string[] = [];
  const arrivals = new Map<string, number>();
  const answered = new Set<string>();
  const connections = new Set<Connection>();
  let reused = 0;

  const check = (call: GatewayCall, connection: Connection, nonce: string) => {
    const key = keys[nonce.split("-")[1] ?? ""];
    const credentials = ["authorization", "x-api-key", "api-key", "x-goog-api-key"].flatMap((name) =>
      call.header(name).map((value) => `${name}: ${value}`),
    );
    if (credentials.join() !== `authorization: Bearer ${key}`)
      faults.push(`${nonce} has the credentials ${credentials.join() || "of nobody"}`);
    if (!call.target.endsWith(`/${nonce}`)) faults.push(`${nonce} came as ${call.target}`);
    if (connection.saidMore === "behind an answer")
      faults.push(`${nonce} came behind ${connection.nonce}, which got more than its answer`);
    if (connection.saidMore === "while idle") reused += 1;
    if (connection.isBusy) faults.push(`${nonce} came before ${connection.nonce} was answered`);
  };

  const checkBody = (call: GatewayCall, nonce: string) => {
    const size = Number(call.header("x-size")[0]);
    const expected = size === 0 ? "" : bodyWith(nonce, size);
    if (bodyOf(call) !== expected) faults.push(`the body of ${nonce} is not its own`);
  };

  const onCall = async (call: GatewayCall, connection: Connection) => {
    const nonce = call.header("x-nonce")[0] ?? "";
    check(call, connection, nonce);
    arrivals.set(nonce, (arrivals.get(nonce) ?? 0) + 1);
    connection.requests += 1;
    connection.isBusy = true;
    connection.nonce = nonce;
    const play = call.header("x-play")[0] as Play;
    if (!play.startsWith("before the upload")) {
      await call.whole;
      checkBody(call, nonce);
    }
    if (!connection.socket.writable) return;
    await ANSWERS[play]({ connection, nonce, size: Number(call.header("x-answer-size")[0]) });
    connection.isBusy = false;
    if (PLAYS[play] === "whole" && !connection.socket.destroyed) answered.add(nonce);
    if (play === "before the upload") {
      await call.whole;
      checkBody(call, nonce);
    }
  };

  const server = createServer({ noDelay: true }, (socket) => {
    const connection: Connection = {
      socket,
      requests: 0,
      nonce: "",
      isBusy: false,
      isClosed: false,
      saidMore: null,
    };
    connections.add(connection);
    socket.on("close", () => connections.delete(connection));
    const reader = new RequestReader({
      keep: true,
      onHead: (head) => new GatewayCall(socket, 0, head),
      onCall: (call) => void onCall(call, connection),
      onBroken(why) {
        faults.push(`behind ${connection.nonce}: ${why}`);
        socket.destroy();
      },
    });
    socket.on("data", (chunk: Buffer) => reader.read(chunk));
  });
  const { origin } = await listen(t, server);

  return {
    origin,
    faults,
    arrivals: (nonce) => arrivals.get(nonce) ?? 0,
    wasAnswered: (nonce) => answered.has(nonce),
    sayUnasked(random) {
      let spoiled = 0;
      for (const connection of connections) {
        if (!isKept(connection) || random(2) === 0) continue;
        connection.saidMore = "while idle";
        connection.socket.write(unasked(connection.nonce, random(2) === 0));
        spoiled += 1;
      }
      return spoiled;
    },
    reused: () => reused,
    connections() {
      return { open: connections.size, kept: [...connections].filter(isKept).length };
    },
  };
}

function isKept({ isBusy, isClosed, saidMore }: Connection): boolean {
  return !isBusy && !isClosed && saidMore === null;
}

/** The body without its framing. */
function bodyOf(call: GatewayCall): string {
  const isChunked = call.header("transfer-encoding").length > 0;
  return (isChunked ? dechunked(call.body()) : call.body()).toString("latin1");
}

interface Answering {
  readonly connection: Connection;
  readonly nonce: string;
  readonly size: number;
}

function headOf(nonce: string, framing: string, type = "application/json"): string {
  return `HTTP/1.1 200 OK\r\nX-Nonce: ${nonce}\r\nContent-Type: ${type}\r\n${framing}\r\n\r\n`;
}

function withLength({ nonce, size }: Answering): string {
  const body = bodyWith(nonce, size);
  return headOf(nonce, `Content-Length: ${body.length}`) + body;
}

function chunk(text: string): string {
  return `${text.length.toString(16)}\r\n${text}\r\n`;
}

function unasked(nonce: string, isGarbage: boolean): string {
  const body = bodyWith(nonce, 50);
  return isGarbage
    ? `nobody asked for this ${nonce}`
    : headOf(nonce, `Content-Length: ${body.length}`) + body;
}

/** An answer, and in the same packet a second one without a request. */
function say(connection: Connection, answer: string, more: string): void {
  connection.saidMore = "behind an answer";
  connection.socket.write(answer + more);
}

function cut({ socket }: Connection, bytes: string): void {
  socket.end(bytes);
}

function reset({ socket }: Connection, bytes: string): void {
  socket.write(bytes);
  socket.resetAndDestroy();
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

const ANSWERS: Readonly<Record<Play, (answering: Answering) => void | Promise<void>>> = {
  "with a length": (one) => void one.connection.socket.write(withLength(one)),
  async "in chunks"({ connection, nonce, size }) {
    const body = bodyWith(nonce, size);
    const half = Math.floor(body.length / 2);
    connection.socket.write(headOf(nonce, "Transfer-Encoding: chunked") + chunk(body.slice(0, half)));
    await turn();
    connection.socket.write(`${chunk(body.slice(half))}0\r\n\r\n`);
  },
  "up to the end of the connection"({ connection, nonce, size }) {
    connection.isClosed = true;
    connection.socket.end(headOf(nonce, "Connection: close") + bodyWith(nonce, size));
  },
  async "as events"({ connection, nonce, size }) {
    const events = eventsWith(nonce, size);
    connection.socket.write(headOf(nonce, "Transfer-Encoding: chunked", "text/event-stream"));
    // Cut wherever it falls, as networks do.
    for (let at = 0; at < events.length; at += 1000) {
      await turn();
      connection.socket.write(chunk(events.slice(at, at + 1000)));
    }
    connection.socket.write("0\r\n\r\n");
  },
  async "informational responses first"(one) {
    const informational = [
      "HTTP/1.1 100 Continue\r\n\r\n",
      "HTTP/1.1 102 Processing\r\n\r\n",
      `HTTP/1.1 103 Early Hints\r\nLink: </${one.nonce}>\r\n\r\n`,
    ];
    const flood = informational.join("").repeat(1 + (one.size % 60));
    const half = Math.floor(flood.length / 2);
    one.connection.socket.write(flood.slice(0, half));
    await turn();
    one.connection.socket.write(flood.slice(half) + withLength(one));
  },
  "before the upload": (one) => void one.connection.socket.write(withLength(one)),
  async "before the upload, of which no more is read"(one) {
    const { connection } = one;
    connection.isClosed = true;
    connection.socket.pause();
    connection.socket.write(withLength(one));
    for (let turns = 0; turns < 20; turns += 1) await turn();
    connection.socket.destroySoon();
  },
  "closed behind the answer"(one) {
    one.connection.isClosed = true;
    one.connection.socket.end(withLength(one));
  },
  "garbage behind the answer": (one) => say(one.connection, withLength(one), unasked(one.nonce, true)),
  "another response behind the answer": (one) =>
    say(one.connection, withLength(one), unasked(one.nonce, false)),
  "a length that is too short"({ connection, nonce, size }) {
    const body = bodyWith(nonce, size);
    const length = body.length - WRONG_BY;
    say(connection, headOf(nonce, `Content-Length: ${length}`) + body.slice(0, length), body.slice(length));
  },
  "a length that is too long"({ connection, nonce, size }) {
    const body = bodyWith(nonce, size);
    cut(connection, headOf(nonce, `Content-Length: ${body.length + WRONG_BY}`) + body);
  },
  "cut in a chunk": ({ connection, nonce, size }) =>
    cut(connection, headOf(nonce, "Transfer-Encoding: chunked") + chunk(bodyWith(nonce, size)).slice(0, -9)),
  "reset in a chunk": ({ connection, nonce, size }) =>
    reset(
      connection,
      headOf(nonce, "Transfer-Encoding: chunked") + chunk(bodyWith(nonce, size)).slice(0, -9),
    ),
  "reset behind the head": ({ connection, nonce }) => reset(connection, headOf(nonce, "Content-Length: 100")),
  "reset in the head": ({ connection, nonce }) =>
    reset(connection, headOf(nonce, "Content-Length: 100").slice(0, 60)),
  "reset before the head": ({ connection }) => reset(connection, ""),
  "closed before the head": ({ connection }) => cut(connection, ""),
  "switching protocols unasked": ({ connection, nonce }) =>
    say(
      connection,
      "",
      `HTTP/1.1 101 Switching Protocols\r\nX-Nonce: ${nonce}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n${nonce}`,
    ),
  "no HTTP": ({ connection, nonce }) => say(connection, "", `SSH-2.0-OpenSSH_9 ${nonce}\r\n`),
  "closed when it is used again"(one) {
    if (one.connection.requests > 1) one.connection.socket.destroy();
    else one.connection.socket.write(withLength(one));
  },
};
