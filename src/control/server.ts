import { chmodSync, mkdirSync, statSync, unlinkSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { dirname } from "node:path";
import { background } from "../core/background.ts";
import { errorMessage, HttpError } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { parseRoute, readJson } from "./body.ts";
import { isDaemonListening, PEER_HEADER } from "./client.ts";
import { type Caller, NeedsRoot, routeReach } from "./reach.ts";
import { type Controls, HANDLED, NOT_FOUND, ROUTES } from "./routes.ts";

/** macOS allows 104 bytes including the terminating zero, Linux 108. */
const MAX_PATH_BYTES = 103;

export type Listening = "listening" | "already running" | "path too long";

/** The daemon's end of its control sockets. */
export interface ControlSockets {
  /** From now on requests are answered; before, they get a 503. */
  serve(controls: Controls): void;
  /** Repairs a socket that is gone. */
  check(): Promise<void>;
  close(): Promise<void>;
}

/** The daemon's end of the control socket: 0600 in a 0700 folder. */
export class ControlServer implements ControlSockets {
  readonly #path: string;
  readonly #log: Logger;
  readonly #servers = new Set<Server>();
  #controls: Controls | null = null;
  /** The socket file that this server created. */
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

  /** From now on requests are answered; before, they get a 503. */
  serve(controls: Controls): void {
    this.#controls = controls;
  }

  /** Creates the socket again if its file is gone: logind, for example, removes the runtime folder at logout. */
  async check(): Promise<void> {
    if (this.#closed || this.#recreating || readInode(this.#path) === this.#inode) return;
    this.#recreating = true;
    try {
      if (await isDaemonListening(this.#path)) throw new Error("another daemon listens there");
      await this.#createSocket();
      this.#problem = null;
      this.#log.warn(`the control socket ${this.#path} had been removed and was created again`);
    } catch (error) {
      const problem = `the control socket ${this.#path} is gone and cannot be created again: ${errorMessage(error)}`;
      // This runs every second; log a problem once.
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
    // Closing a server unlinks its path, so close the old one first. Requests on its connections still finish.
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
    this.#inode = readInode(this.#path);
    // The daemon may have stopped in the meantime.
    if (this.#closed) server.close();
  }

  #answer(req: IncomingMessage, res: ServerResponse): void {
    answerWith(this.#controls, req, res, { caller: ALL_RIGHTS, log: this.#log });
  }
}

/** Only the daemon's own user, or root, can open the socket. */
const ALL_RIGHTS: Caller = { owner: null };

interface AnswerDeps {
  readonly caller: Caller;
  readonly log: Logger;
}

/** @param controls null: the daemon is still starting */
export function answerWith(
  controls: Controls | null,
  req: IncomingMessage,
  res: ServerResponse,
  { caller, log }: AnswerDeps,
): void {
  if (controls === null) send(res, 503, { error: "keybearer is starting" });
  else background(answer(req, res, controls, caller), log, "answering a command");
}

async function answer(
  req: IncomingMessage,
  res: ServerResponse,
  controls: Controls,
  caller: Caller,
): Promise<void> {
  try {
    const value = await runRoute(req, res, controls, caller);
    if (value !== HANDLED) send(res, 200, value);
  } catch (error) {
    if (error instanceof HttpError) {
      const needsRoot = error instanceof NeedsRoot ? { needs_root: true } : {};
      return send(res, error.status, { error: error.message, ...needsRoot });
    }
    const { method, url: path } = req;
    controls.log.error(
      { err: error, method, path },
      "a control request failed because of a bug in keybearer",
    );
    send(res, 500, { error: "keybearer failed to do this; its log says why" });
  }
}

async function runRoute(
  req: IncomingMessage,
  res: ServerResponse,
  controls: Controls,
  caller: Caller,
): Promise<unknown> {
  // No browser can open a unix socket; a request that looks like one is refused all the same.
  if (req.headers.origin !== undefined || req.headers.referer !== undefined)
    throw new HttpError(403, "browsers may not use this socket");
  const { route: pattern, name } = parseRoute(req.method, req.url ?? "");
  const exact = `${req.method} ${req.url}`;
  const known = Object.hasOwn(ROUTES, exact) ? exact : pattern;
  const route = ROUTES[known];
  if (route === undefined) throw new HttpError(404, "no such control");
  const limit = known === "POST /config" ? MAX_CONFIG_BODY : undefined;
  const body = req.method === "POST" ? await readJson(req, limit) : null;
  const pid = req.headers[PEER_HEADER];
  const reported =
    typeof pid === "string" && /^\d{1,10}$/.test(pid) ? `pid ${pid} (self-reported)` : "unknown";
  const peer = caller.owner === null ? reported : `owner ${caller.owner}, ${reported}`;
  if (caller.owner !== null && routeReach(known, body) === "widens")
    throw new NeedsRoot("that may allow more or move a key, so only root may do it");
  const value = await route(controls, { name, body, peer, res, owner: caller.owner });
  if (value === NOT_FOUND) throw new HttpError(404, `there is no ${nounFor(known)} ${name}`);
  return value;
}

/** A key can be trusted for a tool or a whole gateway; an allowance belongs to a tool, a login to a console. */
function nounFor(route: string): string {
  const [, noun = ""] = route.split("/");
  if (noun === "revokebrowser") return "remembered browser called";
  if (noun === "confirm" || noun === "confirmed") return "action that waits called";
  if (noun === "lift" || noun === "models") return "tool";
  return noun === "login" || noun === "sync" ? "gateway with a console called" : "tool or gateway";
}

function send(res: ServerResponse, status: number, value: unknown): void {
  if (res.headersSent) {
    // It failed in the middle of a response.
    res.destroy();
    return;
  }
  res.writeHead(status, { "content-type": "application/json" });
  res.end(JSON.stringify(value));
}

/** A config.yaml of 1 MB, as JSON. */
const MAX_CONFIG_BODY = 3 * 1024 * 1024;

function readInode(path: string): number | null {
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
    // There was none. If it cannot be removed, listening fails and says why.
  }
}
