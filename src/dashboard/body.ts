import type { IncomingMessage } from "node:http";
import { No } from "./answer.ts";

const MOST_BODY = 64 * 1024;
/** The port itself lets an upload take its time. */
const PATIENCE_MS = 10_000;

/** What a POST brings. JSON alone: a page of another origin cannot send that without asking, and is never let. */
export async function readJson(req: IncomingMessage): Promise<unknown> {
  if (!/^application\/json\s*(?:;|$)/i.test(req.headers["content-type"] ?? ""))
    return new No(415, "send application/json");
  const body = await readBody(req);
  if (body instanceof No) return body;
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    return new No(400, "the body is not JSON");
  }
}

/** By its events: leaving a loop over a request ends its connection, and the answer would be lost with it. */
function readBody(req: IncomingMessage): Promise<Buffer | No> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const end = (body: Buffer | No) => {
      clearTimeout(timer);
      req.off("data", onData);
      resolve(body);
    };
    const onData = (chunk: Buffer) => {
      size += chunk.length;
      if (size > MOST_BODY) end(new No(413, "the request is larger than 64 KB"));
      else chunks.push(chunk);
    };
    const timer = setTimeout(() => end(new No(408, "the request did not arrive within 10 s")), PATIENCE_MS);
    req.on("data", onData);
    req.once("end", () => end(Buffer.concat(chunks)));
    req.once("error", () => end(new No(400, "the request broke off")));
    req.once("close", () => end(new No(400, "the request broke off")));
  });
}

/** An object with exactly these fields: one that is misspelt must not pass for one that was left out. */
export function hasOnly(body: unknown, fields: readonly string[]): body is Record<string, unknown> {
  if (typeof body !== "object" || body === null || Array.isArray(body)) return false;
  return Object.keys(body).length === fields.length && fields.every((field) => Object.hasOwn(body, field));
}
