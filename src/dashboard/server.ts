import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Listen } from "../config/schema.ts";
import { HANDLED } from "../control/routes.ts";
import { HttpError } from "../core/errors.ts";
import { type HttpAnswer, REFUSALS } from "../core/refusal.ts";
import { packageFolder } from "../core/version.ts";
import { guardDashboard } from "../proxy/guard.ts";
import { authority, hostsOf, openSidePort } from "../proxy/server.ts";
import { sendAnswer } from "../proxy/write-refusal.ts";
import type { Failure } from "./failure.ts";
import type { Api } from "./routes.ts";

/** On every response to a request. There are no cookies: browsers send them to every port of a host. */
const PAGE_HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "cache-control": "no-store",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
};

/** By request path. No part of a request is ever joined to a folder. */
export type PageFiles = ReadonlyMap<string, HttpAnswer>;

const TYPES = {
  "index.html": "text/html; charset=utf-8",
  "main.js": "text/javascript; charset=utf-8",
  "page.css": "text/css; charset=utf-8",
  "licenses.txt": "text/plain; charset=utf-8",
};

/**
 * Reads the page into memory: an upgrade that replaces the files of a running daemon must not mix two versions. null: the
 * page was never built.
 */
export function readPageFiles(): PageFiles | null {
  const folder = new URL("dist/dashboard/", packageFolder());
  try {
    const files = Object.entries(TYPES).map(([name, type]) => {
      const path = name === "index.html" ? "/" : `/${name}`;
      return [path, answerOf(200, type, readFileSync(new URL(name, folder), "utf8"))] as const;
    });
    return new Map(files);
  } catch {
    // Opening the dashboard says what to do.
    return null;
  }
}

export interface OpenServer {
  readonly url: string;
  /** It was opened for this `dashboard.listen`. */
  isOn(listen: Listen): boolean;
  close(): Promise<void>;
}

/** Opens the dashboard's port. Throws an error with a message for people if that fails. */
export async function openServer(listen: Listen, api: Api, files: PageFiles): Promise<OpenServer> {
  const { log, tail } = api.deps;
  const port = await openSidePort("dashboard", listen, log, (req, res) => serve(req, res, api, files));
  const unsubscribe = tail.subscribe(() => api.view.recordFinished());
  log.info(`the dashboard is open on ${port.addresses.join(" and ")}`);
  return {
    url: `http://${authority(listen.host, port.port)}/`,
    isOn: ({ host, port }) => host === listen.host && port === listen.port,
    close() {
      unsubscribe();
      return port.close();
    },
  };
}

async function serve(req: IncomingMessage, res: ServerResponse, api: Api, files: PageFiles): Promise<void> {
  res.setHeaders(new Map(Object.entries(PAGE_HEADERS)));
  try {
    const answer = await answerTo(req, res, api, files);
    if (answer !== null) sendAnswer(req, res, answer);
  } catch (error) {
    if (error instanceof HttpError && !res.headersSent) {
      const { status, message, code } = error;
      return sendAnswer(req, res, jsonAnswer(status, { error: message, code } satisfies Failure));
    }
    // A response that was cut off must not look complete.
    res.destroy();
    if (!(error instanceof HttpError)) throw error;
  }
}

/** null: the route has written the response itself. Throws an HttpError. */
async function answerTo(
  req: IncomingMessage,
  res: ServerResponse,
  api: Api,
  files: PageFiles,
): Promise<HttpAnswer | null> {
  const { method = "", url: target = "", rawHeaders, socket } = req;
  const refusal = guardDashboard({ method, target, rawHeaders }, hostsOf(socket.localPort ?? 0));
  if (refusal !== null) throw new HttpError(REFUSALS[refusal.code].status, refusal.message);
  if (target.startsWith("/api/")) {
    const value = await api.answer(req, res);
    return value === HANDLED ? null : jsonAnswer(200, value);
  }
  const file = files.get(target);
  if (file === undefined) throw new HttpError(404, "there is nothing here");
  if (method !== "GET" && method !== "HEAD") throw new HttpError(405, "only GET is allowed here");
  return file;
}

function jsonAnswer(status: number, value: unknown): HttpAnswer {
  return answerOf(status, "application/json; charset=utf-8", JSON.stringify(value));
}

function answerOf(status: number, type: string, body: string): HttpAnswer {
  return {
    status,
    headers: { "content-type": type, "content-length": String(Buffer.byteLength(body)) },
    body,
  };
}
