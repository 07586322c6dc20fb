import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Listen } from "../config/schema.ts";
import { background } from "../core/background.ts";
import { HttpError } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { REFUSALS, type Refusal, refuse } from "../core/refusal.ts";
import { packageFolder } from "../core/version.ts";
import { type CheckedHead, checkHost, checkShape } from "../proxy/guard.ts";
import { headerValues } from "../proxy/headers.ts";
import { authority, hostsOf, openSidePort, type Port } from "../proxy/server.ts";
import type { Failure } from "./api.ts";
import { refuseConnection, send, sendJson } from "./http.ts";
import { type Api, HANDLED } from "./routes.ts";

export type PageFiles = ReadonlyMap<string, { readonly type: string; readonly body: Buffer }>;

/** By request path. No part of a request is ever joined to a folder. */
const FILES = [
  { path: "/", name: "index.html", type: "text/html; charset=utf-8" },
  { path: "/main.js", name: "main.js", type: "text/javascript; charset=utf-8" },
  { path: "/page.css", name: "page.css", type: "text/css; charset=utf-8" },
  { path: "/licenses.txt", name: "licenses.txt", type: "text/plain; charset=utf-8" },
];

/**
 * Reads the page into memory: an upgrade that replaces the files of a running daemon must not mix two versions. null: the
 * page was never built.
 */
export function readPageFiles(): PageFiles | null {
  const folder = new URL("dist/dashboard/", packageFolder());
  try {
    return new Map(
      FILES.map(({ path, name, type }) => [path, { type, body: readFileSync(new URL(name, folder)) }]),
    );
  } catch {
    // Opening the dashboard says what to do.
    return null;
  }
}

/** The dashboard's port. */
export class DashboardServer {
  readonly #api: Api;
  readonly #files: PageFiles;
  readonly #log: Logger;
  #port: Port | null = null;
  #hosts: readonly string[] = [];

  constructor(api: Api, files: PageFiles, log: Logger) {
    this.#api = api;
    this.#files = files;
    this.#log = log;
  }

  /** Opens the port and returns its URL. Throws an error with a message for people if that fails. */
  async open(listen: Listen): Promise<string> {
    this.#port = await openSidePort("dashboard", listen, {
      request: (req, res) => background(this.#serve(req, res), this.#log, "a request to the dashboard"),
      clientError: refuseUnparsable,
      onError: (error) => this.#log.error(`the dashboard could not accept a connection: ${error.message}`),
      upgrade: (_req, socket) => refuseConnection(socket, 400, "the dashboard has no WebSockets"),
    });
    const { port, addresses } = this.#port;
    this.#hosts = hostsOf(port);
    this.#api.start();
    this.#log.info(`the dashboard is open on ${addresses.join(" and ")}`);
    return `http://${authority(listen.host, port)}/`;
  }

  /** How many pages follow the events. */
  get followers(): number {
    return this.#api.followers;
  }

  async close(): Promise<void> {
    this.#api.stop();
    const drained = this.#port?.drain();
    this.#port?.cut();
    await drained;
  }

  async #serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    try {
      await this.#answer(req, res);
    } catch (error) {
      const canAnswer = error instanceof HttpError && !res.headersSent;
      if (canAnswer) return sendFailure(req, res, error);
      // A response that was cut off must not look complete.
      res.destroy();
      if (!(error instanceof HttpError)) throw error;
    }
  }

  async #answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { method = "", url: target = "", rawHeaders } = req;
    const refusal = guardPage({ method, target, rawHeaders }, this.#hosts);
    if (refusal !== null) throw new HttpError(REFUSALS[refusal.code].status, refusal.message);
    if (target.startsWith("/api/")) {
      const answer = await this.#api.answer(req, res);
      if (answer !== HANDLED) sendJson(req, res, 200, answer);
      return;
    }
    const file = this.#files.get(target);
    if (file === undefined) throw new HttpError(404, "there is nothing here");
    if (method !== "GET" && method !== "HEAD") throw new HttpError(405, "only GET is allowed here");
    send(req, res, 200, file.type, file.body);
  }
}

function sendFailure(req: IncomingMessage, res: ServerResponse, { status, message, code }: HttpError): void {
  const failure: Failure = { error: message, code };
  sendJson(req, res, status, failure);
}

/**
 * The guard of the tools' port, which also admits one page: the dashboard itself. Pages of other origins, other ports of
 * this machine included, are refused whatever token they have. So are other names for this address (DNS rebinding).
 */
function guardPage(head: CheckedHead, hosts: readonly string[]): Refusal | null {
  return checkHost(head.rawHeaders, hosts) ?? checkPage(head) ?? checkShape(head);
}

function checkPage(head: CheckedHead): Refusal | null {
  const { rawHeaders } = head;
  const otherPage = refuse("browser-request", "requests from other pages are not served");
  const [host = ""] = headerValues(rawHeaders, "host");
  const origins = headerValues(rawHeaders, "origin");
  if (origins.length > 1) return otherPage;
  if (origins.length === 1 && origins[0] !== `http://${host.toLowerCase()}`) return otherPage;
  const sites = headerValues(rawHeaders, "sec-fetch-site");
  if (sites.length === 0 || isNavigation(head)) return null;
  const isOwnPage = sites.length === 1 && (sites[0] === "same-origin" || sites[0] === "none");
  return isOwnPage ? null : otherPage;
}

/** A link to the page, from anywhere: the page is the same for everyone, contains no data and cannot be framed. */
function isNavigation({ method, target, rawHeaders }: CheckedHead): boolean {
  const header = (name: string) => headerValues(rawHeaders, name).join();
  return (
    method === "GET" &&
    target === "/" &&
    header("sec-fetch-mode") === "navigate" &&
    header("sec-fetch-dest") === "document" &&
    headerValues(rawHeaders, "origin").length === 0
  );
}

function refuseUnparsable({ code }: NodeJS.ErrnoException, socket: Duplex): void {
  if (code === "HPE_HEADER_OVERFLOW")
    refuseConnection(socket, 431, "the request's headers are larger than 16 KB");
  else refuseConnection(socket, 400, "this is not a valid HTTP request");
}
