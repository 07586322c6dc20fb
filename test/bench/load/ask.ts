import { Agent, request } from "node:http";
import type { Way } from "../candidates/candidate.ts";

export interface Answer {
  readonly status: number;
  readonly body: Buffer;
  readonly contentType: string;
  /** keybearer's own refusal, where it was one. */
  readonly refusal: string | null;
}

const LONGEST_MS = 30_000;

/** One request, and its whole answer. */
export function ask({ url, headers }: Way, body: string | null): Promise<Answer> {
  const agent = new Agent({ keepAlive: false });
  const framing = body === null ? {} : { "content-type": "application/json", "content-length": body.length };
  return new Promise((resolve, reject) => {
    const method = body === null ? "GET" : "POST";
    const options = { method, headers: { ...framing, ...headers }, agent, timeout: LONGEST_MS };
    const req = request(url, options, (res) => {
      const chunks: Buffer[] = [];
      res.on("data", (chunk: Buffer) => void chunks.push(chunk));
      res.once("error", reject);
      res.once("end", () =>
        resolve({
          status: res.statusCode ?? 0,
          body: Buffer.concat(chunks),
          contentType: res.headers["content-type"] ?? "",
          refusal: res.headers["x-keybearer-refusal"]?.toString() ?? null,
        }),
      );
    });
    req.once("error", reject);
    req.once("timeout", () => req.destroy(new Error("nothing came")));
    req.end(body ?? undefined);
  });
}
