import { isIP, connect as netConnect, type Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import { Client } from "undici";
import type { Clock } from "../clock.ts";
import { DirectReading } from "./direct-reading.ts";
import { guardReading } from "./guarded-reading.ts";
import {
  BEFORE_THE_SERVER_MS,
  idleTime,
  LAST_WORDS_MS,
  LONGEST_IDLE_MS,
  UNANNOUNCED_IDLE_MS,
} from "./kept-connection.ts";
import type { Address } from "./route.ts";
import { connectThrough, type TlsOptions, type Tunnel } from "./tunnel.ts";

/** As many as node:http's agents keep: one that is closed and made again costs more than a request. */
const MOST_KEPT = 256;
/** As node:http's agents ask for it. */
const KEEP_ALIVE_PROBE_MS = 1000;

/** A connection to a gateway, for one request after the other. */
export interface Line {
  readonly client: Client;
  /** It served a request before. */
  used: boolean;
  /** A request went out, and nothing of its answer came. */
  awaitsHead: boolean;
  /** Nothing is read from it: the client is not that fast. */
  held: boolean;
  /** Up to this moment of the clock that only goes forward. */
  usableUntil: number;
  /** null: not connected, or not any more. */
  socket: Socket | null;
}

/** The connections to one address of a gateway. Each has a client of its own, so that requests never queue behind another. */
export class Lines {
  readonly #clock: Clock;
  readonly #address: Address;
  readonly #tunnel: Tunnel | null;
  readonly #tls: TlsOptions | null;
  /** The one that was used last is taken first. */
  readonly #idle: Line[] = [];
  /** With which the next TLS connection is made in half the time. */
  #session: Buffer | undefined;

  /** @param tunnel null: connected to directly. */
  constructor(clock: Clock, address: Address, tls: TlsOptions | null, tunnel: Tunnel | null) {
    this.#clock = clock;
    this.#address = address;
    this.#tls = tls;
    this.#tunnel = tunnel;
  }

  take(): Line {
    for (let line = this.#idle.pop(); line !== undefined; line = this.#idle.pop()) {
      // Its timer may be late: nobody rings it while the machine or this process has other things to do.
      if (line.usableUntil > this.#clock.elapsed()) return line;
      this.drop(line);
    }
    return this.#open();
  }

  /** Its answer was whole, and announced this. */
  give(line: Line, keepAlive: string | undefined): void {
    line.usableUntil = this.#clock.elapsed() + idleTime(keepAlive);
    // A gateway may answer before it has the whole request, and read no further. That all is sent is told a little later
    // than its answer comes.
    if (line.socket === null || line.socket.writableLength === 0) this.#keep(line);
    else setImmediate(() => (line.socket?.writableLength === 0 ? this.#keep(line) : letGoSoon(line)));
  }

  #keep(line: Line): void {
    if (this.#idle.length < MOST_KEPT) this.#idle.push(line);
    else this.drop(line);
  }

  /** The client has caught up. */
  resume(line: Line): void {
    line.held = false;
    // What came meanwhile was announced, and not taken.
    line.socket?.emit("readable");
    if (!line.held) line.socket?.resume();
  }

  /** Of no use any more, or never was. */
  drop(line: Line): void {
    line.socket?.destroy();
    void line.client.destroy();
  }

  closeIdle(): void {
    for (const line of this.#idle.splice(0)) this.drop(line);
  }

  #open(): Line {
    const { secure, host } = this.#address;
    const client = new Client(`${secure ? "https" : "http"}://${host}`, {
      pipelining: 1,
      keepAliveTimeout: UNANNOUNCED_IDLE_MS,
      keepAliveMaxTimeout: LONGEST_IDLE_MS,
      keepAliveTimeoutThreshold: BEFORE_THE_SERVER_MS,
      // The call has deadlines of its own.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: (_options, done) => this.#connect(line, done),
    });
    const line: Line = { client, used: false, awaitsHead: false, held: false, usableUntil: 0, socket: null };
    client.on("disconnect", () => {
      line.socket = null;
      line.used = false;
      const at = this.#idle.indexOf(line);
      if (at === -1) return;
      this.#idle.splice(at, 1);
      this.drop(line);
    });
    return line;
  }

  #connect(
    line: Line,
    done: (...made: [error: null, socket: Socket] | [error: Error, socket: null]) => void,
  ): void {
    const finish = (error: Error | null) => {
      const { socket } = line;
      if (error !== null || socket === null) {
        line.socket = null;
        // It may be what the gateway did not like.
        this.#session = undefined;
        return done(error ?? new Error("the connection was closed"), null);
      }
      socket.setNoDelay(true);
      socket.setKeepAlive(true, KEEP_ALIVE_PROBE_MS);
      guardReading(socket, line);
      done(null, socket);
    };
    const { secure, hostname, port } = this.#address;
    if (this.#tunnel !== null) {
      connectThrough(this.#tunnel, { host: hostname, port, ...serverName(hostname) }, (error, socket) => {
        line.socket = socket ?? null;
        finish(error);
      });
      return;
    }
    const socket = secure ? this.#connectSecurely() : connectPlainly(line, hostname, port);
    line.socket = socket;
    // One that fails once more after it was given up must not end the process.
    socket.on("error", ignore);
    socket.once("error", finish);
    socket.once(secure ? "secureConnect" : "connect", () => {
      socket.off("error", finish);
      finish(null);
    });
  }

  #connectSecurely(): Socket {
    const { hostname: host, port } = this.#address;
    const socket = tlsConnect({
      host,
      port,
      ...serverName(host),
      ...this.#tls,
      ALPNProtocols: ["http/1.1"],
      ...(this.#session === undefined ? {} : { session: this.#session }),
    });
    socket.on("session", (session: Buffer) => {
      this.#session = session;
    });
    return socket;
  }
}

function connectPlainly(line: Line, host: string, port: number): Socket {
  const reading = new DirectReading(line);
  const socket = netConnect({ host, port, onread: reading.onread });
  reading.begin(socket);
  return socket;
}

function ignore(): void {}

/** An address has no server name, but its certificate is held against it all the same. */
function serverName(host: string): { servername?: string } {
  return isIP(host) === 0 ? { servername: host } : {};
}

/** The rest of the request would stay in memory for as long as the gateway keeps the connection. */
function letGoSoon(line: Line): void {
  const timer = setTimeout(() => line.socket?.destroy(), LAST_WORDS_MS);
  line.socket?.once("close", () => clearTimeout(timer));
  line.socket?.once("drain", () => line.socket?.destroy());
}
