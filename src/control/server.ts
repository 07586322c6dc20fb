import { chmodSync, mkdirSync, statSync, unlinkSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { dirname } from "node:path";
import { background } from "../core/background.ts";
import { errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { isDaemonListening } from "./client.ts";
import { answerControl, type Controls } from "./routes.ts";

/** macOS allows 104 bytes with the ending zero, Linux 108. */
const MAX_PATH_BYTES = 103;

export type Listening = "listening" | "already running" | "path too long";

/** The daemon's end of the control socket. */
export class ControlServer {
  readonly #path: string;
  readonly #log: Logger;
  readonly #servers = new Set<Server>();
  #controls: Controls | null = null;
  /** The socket file that is ours. */
  #inode: number | null = null;
  #recreating = false;
  #closed = false;
  #problem: string | null = null;

  constructor(path: string, log: Logger) {
    this.#path = path;
    this.#log = log;
  }

  /** Only the daemon that holds the state lock calls this: it replaces a socket that a killed daemon left behind. */
  async listen(): Promise<Listening> {
    if (Buffer.byteLength(this.#path) > MAX_PATH_BYTES) return "path too long";
    // The lock excludes this, unless its file was deleted under a running daemon.
    if (await isDaemonListening(this.#path)) return "already running";
    await this.#createSocket();
    return "listening";
  }

  /** From now on requests are answered; until then they get a 503. */
  serve(controls: Controls): void {
    this.#controls = controls;
  }

  /** Creates the socket again where its file is gone: logind, for one, removes the runtime folder at logout. */
  async check(): Promise<void> {
    if (this.#closed || this.#recreating || inodeOf(this.#path) === this.#inode) return;
    this.#recreating = true;
    try {
      if (await isDaemonListening(this.#path)) throw new Error("another daemon listens there");
      await this.#createSocket();
      this.#problem = null;
      this.#log.warn(`the control socket ${this.#path} was gone and is back`);
    } catch (error) {
      const problem = `the control socket ${this.#path} is gone and cannot be created again: ${errorMessage(error)}`;
      // Tried every second, said once.
      if (problem !== this.#problem) this.#log.error(problem);
      this.#problem = problem;
    } finally {
      this.#recreating = false;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(
      Array.from(this.#servers, (server) => {
        const closed = new Promise<void>((resolve) => server.once("close", () => resolve()));
        server.close();
        server.closeAllConnections();
        return closed;
      }),
    );
  }

  async #createSocket(): Promise<void> {
    // Closing a server unlinks its path, so an old one goes first. Requests on its connections still finish.
    for (const old of this.#servers) old.close();
    mkdirSync(dirname(this.#path), { recursive: true, mode: 0o700 });
    removeQuietly(this.#path);
    const server = createServer((req, res) => this.#answer(req, res));
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(this.#path, () => {
        server.off("error", reject);
        resolve();
      });
    });
    // Running out of file handles for a moment must not end the daemon.
    server.on("error", (error) => this.#log.error(`the control socket failed: ${errorMessage(error)}`));
    server.on("close", () => this.#servers.delete(server));
    this.#servers.add(server);
    chmodSync(this.#path, 0o600);
    this.#inode = inodeOf(this.#path);
    // The daemon may have stopped meanwhile.
    if (this.#closed) server.close();
  }

  #answer(req: IncomingMessage, res: ServerResponse): void {
    if (this.#controls !== null) {
      background(answerControl(req, res, this.#controls, this.#log), this.#log, "answering a command");
      return;
    }
    res.writeHead(503, { "content-type": "application/json" });
    res.end('{"error":"keybearer is starting"}');
  }
}

function inodeOf(path: string): number | null {
  try {
    return statSync(path).ino;
  } catch {
    return null;
  }
}

function removeQuietly(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // It was not there. If it could not be removed, listening fails and says why.
  }
}
