import { createHash } from "node:crypto";
import { connect as connectPlain, type Socket } from "node:net";
import { connect as connectTls, rootCertificates } from "node:tls";
import type { SharedStore } from "../config/schema.ts";
import { type JsonObject, parseObject } from "../core/json.ts";
import type { Secret } from "../core/secret.ts";
import { withTimeout } from "../core/timeout.ts";

/*
 * A client of Redis and Valkey on one connection, with version 2 of their protocol (RESP). It is our own, because a hostile
 * store must not fill the memory: client libraries read a reply of any length, and @redis/client 6 has no public way to count
 * the bytes of a connection without TLS. Commands that the store's user needs: those that store.ts sends, and those that the
 * scripts call. docs/several-machines.md has the line for an access control list.
 */

/** The store cannot be asked, or its answer cannot be used. */
export class StoreError extends Error {}

/** The store can be reached, but this machine may not take part. */
export class StoreRefusal extends StoreError {}

const DEFAULT_PORT = 6379;
const KEEP_ALIVE_MS = 30_000;

interface Waiting {
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

export class StoreClient {
  readonly #socket: Socket;
  readonly #onLost: () => void;
  readonly #password: Secret | null;
  readonly #reader = new ReplyReader();
  /** The calls without a reply, the oldest first. */
  readonly #waiting: Waiting[] = [];
  readonly #digests = new Map<string, string>();
  /** Why the connection ended; null: it is open, or is being opened. */
  #error: Error | null = null;

  private constructor(socket: Socket, password: Secret | null, onLost: () => void) {
    this.#socket = socket;
    this.#password = password;
    this.#onLost = onLost;
    socket.on("data", (chunk: Buffer) => this.#read(chunk));
    socket.on("error", (error) => this.destroy(error));
    socket.on("close", () => this.destroy(new StoreError("the store closed the connection")));
  }

  /**
   * Connects and logs in.
   * @param signal ends the attempt, and the connection
   * @param onLost the connection ended after it was made
   */
  static async open(
    store: Pick<SharedStore, "url" | "username" | "authority">,
    password: Secret | null,
    signal: AbortSignal,
    onLost: (error: Error) => void,
  ): Promise<StoreClient> {
    signal.throwIfAborted();
    const { protocol, hostname, port, pathname } = new URL(store.url);
    const address = { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port) || DEFAULT_PORT };
    const isTls = protocol === "rediss:";
    const ca = store.authority === null ? {} : { ca: [...rootCertificates, store.authority.pem] };
    const socket = isTls ? connectTls({ ...address, ...ca }) : connectPlain(address);
    socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS);
    let isOpen = false;
    const client: StoreClient = new StoreClient(socket, password, () => {
      if (isOpen) onLost(client.#error ?? new StoreError("the connection ended"));
    });
    signal.addEventListener("abort", () => client.destroy(), { once: true });
    await new Promise<void>((resolve, reject) => {
      socket.once(isTls ? "secureConnect" : "connect", resolve);
      socket.once("close", () => reject(client.#error));
    });
    try {
      const user = store.username === null ? [] : [store.username];
      if (password !== null) await client.call("AUTH", ...user, password.reveal());
      const database = pathname.slice(1);
      if (database !== "" && database !== "0") await client.call("SELECT", database);
    } catch (error) {
      client.destroy();
      throw error;
    }
    isOpen = true;
    return client;
  }

  /** Rejects with what the store answers if that is an error. */
  call(...command: readonly string[]): Promise<unknown> {
    if (this.#error !== null) return Promise.reject(this.#error);
    const reply = new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
    });
    const parts = command.map((part) => `$${Buffer.byteLength(part)}\r\n${part}\r\n`);
    this.#socket.write(`*${command.length}\r\n${parts.join("")}`);
    return reply;
  }

  async runScript(script: string, keys: readonly string[], texts: readonly string[]): Promise<unknown> {
    const digest = this.#digests.get(script) ?? createHash("sha1").update(script).digest("hex");
    this.#digests.set(script, digest);
    const rest = [String(keys.length), ...keys, ...texts];
    try {
      return await this.call("EVALSHA", digest, ...rest);
    } catch (error) {
      if (!(error instanceof StoreError && error.message.startsWith("NOSCRIPT"))) throw error;
      return await this.call("EVAL", script, ...rest);
    }
  }

  destroy(error: Error = new StoreError("the connection was closed")): void {
    if (this.#error !== null) return;
    this.#error = error;
    this.#socket.destroy();
    for (const { reject } of this.#waiting.splice(0)) reject(error);
    this.#onLost();
  }

  #read(chunk: Buffer): void {
    if (this.#error !== null) return;
    try {
      for (const reply of this.#reader.read(chunk)) {
        const call = this.#waiting.shift();
        if (call === undefined) throw new StoreError("the store answered more than it was asked");
        // A hostile store may repeat the password, and errors are logged.
        if (reply instanceof StoreError)
          call.reject(new StoreError(this.#password?.redactFrom(reply.message) ?? reply.message));
        else call.resolve(reply);
      }
    } catch (error) {
      this.destroy(error as Error);
    }
  }
}

/** Of one reply, in bytes. Everything that machines ask for is shorter; see MAX_ENTRIES in records-subscriber.ts. */
const MAX_REPLY = 8 * 1024 * 1024;
/** A line that is no text of its own: a length, a number or an error. */
const MAX_LINE = 65_536;
/** Of one reply. A hundred entries of streams have six hundred. */
const MAX_VALUES = 10_000;
/** Lists in lists: streams, their entries, and the fields of an entry. */
const MAX_DEPTH = 8;

/** A list of which not all values were read. */
interface OpenList {
  readonly values: unknown[];
  left: number;
}

/** Reads replies from the pieces in which they arrive. A reply is a text, a number, null, a list, or a StoreError. */
export class ReplyReader {
  #chunks: Buffer[] = [];
  #buffered = 0;
  /** Nothing more can be read before this much is buffered. */
  #needed = 1;
  /** How much of the reply was read that is not complete. */
  #size = 0;
  #values = 0;
  readonly #lists: OpenList[] = [];

  /** Throws if it is no reply, or too long. */
  *read(chunk: Buffer): Generator<unknown> {
    this.#chunks.push(chunk);
    this.#buffered += chunk.length;
    if (this.#buffered >= this.#needed) yield* this.#readBuffered();
    if (this.#size + this.#buffered > MAX_REPLY)
      throw new StoreError("the store's answer is longer than 8 MB");
  }

  *#readBuffered(): Generator<unknown> {
    const data = Buffer.concat(this.#chunks);
    let at = 0;
    this.#needed = 1;
    for (;;) {
      const lineEnd = data.indexOf("\r\n", at);
      const lineLength = (lineEnd === -1 ? data.length : lineEnd) - at;
      if (lineLength > MAX_LINE) throw damaged();
      if (lineEnd === -1) break;
      const kind = String.fromCharCode(data[at] ?? 0);
      const line = data.toString("utf8", at + 1, lineEnd);
      let end = lineEnd + 2;
      let value: unknown;
      if (kind === "+") value = line;
      else if (kind === "-") value = new StoreError(line);
      else if (kind === ":") value = Number(line);
      else if (kind === "$" || kind === "*") {
        const length = readLength(line);
        if (length === null) value = null;
        else if (kind === "*" && length > 0) {
          if (this.#lists.length === MAX_DEPTH) throw damaged();
          this.#lists.push({ values: [], left: length });
        } else if (kind === "*") value = [];
        else if (data.length < end + length + 2) {
          this.#needed = end + length + 2 - at;
          break;
        } else {
          value = data.toString("utf8", end, end + length);
          end += length + 2;
        }
      } else throw damaged();
      this.#size += end - at;
      this.#values += 1;
      if (this.#values > MAX_VALUES) throw new StoreError("the store's answer has too many parts");
      at = end;
      if (value === undefined) continue;
      const reply = this.#complete(value);
      if (reply === undefined) continue;
      this.#size = 0;
      this.#values = 0;
      yield reply;
    }
    this.#chunks = [data.subarray(at)];
    this.#buffered = data.length - at;
  }

  /** The whole reply that ends with this value; undefined: it goes on. */
  #complete(value: unknown): unknown {
    let done = value;
    for (let list = this.#lists.at(-1); list !== undefined; list = this.#lists.at(-1)) {
      list.values.push(done);
      list.left -= 1;
      if (list.left > 0) return undefined;
      this.#lists.pop();
      done = list.values;
    }
    return done;
  }
}

/** null: there is no value. */
function readLength(line: string): number | null {
  if (line === "-1") return null;
  if (!/^\d{1,10}$/.test(line)) throw damaged();
  return Number(line);
}

function damaged(): StoreError {
  return new StoreError("the store's answer is damaged");
}

/** What `doctor` checks. */
export interface ServerFacts {
  readonly server: "redis" | "valkey";
  readonly version: string;
  readonly appendOnly: boolean;
  readonly evictionPolicy: string;
}

const MAX_WORD = 40;

/** @param info the answer of INFO. `run` changes with every start of the server's process. */
export function serverFacts(info: string): ServerFacts & { readonly run: string } {
  const values = new Map(info.split("\r\n").map((line) => splitOnce(line, ":")));
  const run = values.get("run_id");
  if (run === undefined || run === "") throw new StoreError("the store does not answer INFO as Redis does");
  const valkey = values.get("valkey_version");
  return {
    run,
    server: valkey === undefined ? "redis" : "valkey",
    version: printable(valkey ?? values.get("redis_version") ?? "unknown", MAX_WORD),
    appendOnly: values.get("aof_enabled") === "1",
    evictionPolicy: printable(values.get("maxmemory_policy") ?? "unknown", MAX_WORD),
  };
}

function splitOnce(text: string, separator: string): [string, string] {
  const at = text.indexOf(separator);
  return at === -1 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** The answer of a script: an object with at least the store's time. */
export interface Reply extends JsonObject {
  readonly time: number;
}

/** Characters. Sixty-four machines with twenty limits each are a tenth of it. */
const MAX_ANSWER = 2_000_000;

export function parseReply(text: unknown): Reply {
  if (typeof text !== "string" || text.length > MAX_ANSWER)
    throw new StoreError("the store's answer is damaged or too long");
  const reply = parseObject(text);
  if (typeof reply?.time === "number" && Number.isFinite(reply.time)) return reply as Reply;
  throw new StoreError("the store's answer is damaged");
}

/** An answer, or an error when it does not come in time. */
export async function within<T>(milliseconds: number, answer: Promise<T>): Promise<T> {
  const answered = answer.then((value) => ({ value }));
  const found = await withTimeout(answered, milliseconds, null);
  if (found === null) throw new StoreError(`no answer within ${milliseconds / 1000} seconds`);
  return found.value;
}

/** What a store says, for messages: printable and short. A fingerprint of a key begins with "…". */
export function printable(text: string, length: number): string {
  return text.slice(0, length).replace(/[^\x20-\x7e…]/g, "?");
}
