import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Listen } from "../config/schema.ts";
import { background } from "../core/background.ts";
import { HttpError } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { REFUSALS } from "../core/refusal.ts";
import { packageFolder } from "../core/version.ts";
import { guardDashboard } from "../proxy/guard.ts";
import { authority, hostsOf, openSidePort } from "../proxy/server.ts";
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

export interface OpenServer {
  readonly url: string;
  /** How many pages follow the events. */
  followers(): number;
  close(): Promise<void>;
}

/** Opens the dashboard's port. Throws an error with a message for people if that fails. */
export async function openServer(
  listen: Listen,
  api: Api,
  files: PageFiles,
  log: Logger,
): Promise<OpenServer> {
  const port = await openSidePort("dashboard", listen, {
    request: (req, res) => background(serve(req, res, api, files), log, "a request to the dashboard"),
    clientError: refuseUnparsable,
    onError: (error) => log.error(`the dashboard could not accept a connection: ${error.message}`),
    upgrade: (_req, socket) => refuseConnection(socket, 400, "the dashboard has no WebSockets"),
  });
  api.start();
  log.info(`the dashboard is open on ${port.addresses.join(" and ")}`);
  return {
    url: `http://${authority(listen.host, port.port)}/`,
    followers: () => api.followers,
    async close() {
      api.stop();
      const drained = port.drain();
      port.cut();
      await drained;
    },
  };
}

async function serve(req: IncomingMessage, res: ServerResponse, api: Api, files: PageFiles): Promise<void> {
  try {
    await answer(req, res, api, files);
  } catch (error) {
    const canAnswer = error instanceof HttpError && !res.headersSent;
    if (canAnswer) return sendFailure(req, res, error);
    // A response that was cut off must not look complete.
    res.destroy();
    if (!(error instanceof HttpError)) throw error;
  }
}

async function answer(req: IncomingMessage, res: ServerResponse, api: Api, files: PageFiles): Promise<void> {
  const { method = "", url: target = "", rawHeaders, socket } = req;
  const refusal = guardDashboard({ method, target, rawHeaders }, hostsOf(socket.localPort ?? 0));
  if (refusal !== null) throw new HttpError(REFUSALS[refusal.code].status, refusal.message);
  if (target.startsWith("/api/")) {
    const value = await api.answer(req, res);
    if (value !== HANDLED) sendJson(req, res, 200, value);
    return;
  }
  const file = files.get(target);
  if (file === undefined) throw new HttpError(404, "there is nothing here");
  if (method !== "GET" && method !== "HEAD") throw new HttpError(405, "only GET is allowed here");
  send(req, res, 200, file.type, file.body);
}

function sendFailure(req: IncomingMessage, res: ServerResponse, { status, message, code }: HttpError): void {
  const failure: Failure = { error: message, code };
  sendJson(req, res, status, failure);
}

function refuseUnparsable({ code }: NodeJS.ErrnoException, socket: Duplex): void {
  if (code === "HPE_HEADER_OVERFLOW")
    refuseConnection(socket, 431, "the request's headers are larger than 16 KB");
  else refuseConnection(socket, 400, "this is not a valid HTTP request");
}
