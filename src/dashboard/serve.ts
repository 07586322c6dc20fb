import type { IncomingMessage, ServerResponse } from "node:http";
import { REFUSALS } from "../core/refusal.ts";
import { No, PAGE_HEADERS, send } from "./answer.ts";
import type { PageFiles } from "./page-files.ts";
import { guardPage } from "./page-guard.ts";
import { type ApiDeps, answerApi } from "./routes.ts";

export interface ServeDeps extends ApiDeps {
  readonly files: PageFiles;
  /** Every `host:port` under which the port may be called. */
  readonly hosts: () => readonly string[];
}

/** A request to the dashboard, from top to bottom. */
export async function serve(req: IncomingMessage, res: ServerResponse, deps: ServeDeps): Promise<void> {
  const { method = "", url: target = "", rawHeaders } = req;
  const refusal = guardPage({ method, target, rawHeaders }, deps.hosts());
  if (refusal !== null) return send(req, res, new No(REFUSALS[refusal.code].status, refusal.message));
  if (target.startsWith("/api/")) return send(req, res, await answerApi(req, res, deps));
  const file = deps.files.get(target);
  if (file === undefined) return send(req, res, new No(404, "there is nothing here"));
  if (req.method !== "GET" && req.method !== "HEAD")
    return send(req, res, new No(405, "this can only be read"));
  const { type, body } = file;
  res.writeHead(200, { ...PAGE_HEADERS, "content-type": type, "content-length": String(body.length) });
  res.end(req.method === "HEAD" ? undefined : body);
}
