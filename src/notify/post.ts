import { type Agent, type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { errorCode } from "../core/errors.ts";
import { OutboundProxyError } from "../proxy/agents.ts";
import type { Unsent } from "./message.ts";
import type { Outgoing, Reply } from "./webhooks.ts";

/** Of a reply, more is not read: each kind answers with a line. */
const MAX_REPLY_BYTES = 8 * 1024;

/** Sends it once. Redirects are not followed. Never rejects, and no problem contains the address. */
export async function post(
  { url, headers, body }: Outgoing,
  agent: Agent,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Reply | Unsent> {
  const late = AbortSignal.timeout(timeoutMs);
  const isSecure = url.startsWith("https:");
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const bytes = Buffer.from(body);
      const options = {
        method: "POST",
        agent,
        signal: AbortSignal.any([late, signal]),
        headers: { ...headers, "content-length": bytes.length, "user-agent": "keybearer" },
      };
      const request = (isSecure ? requestHttps : requestHttp)(url, options, resolve);
      // Also after the response has begun: then readBeginning sees the end of the stream.
      request.on("error", reject);
      request.end(bytes);
    });
    const { statusCode: status = 0, headers: answered } = response;
    return { status, retryAfter: answered["retry-after"] ?? null, body: await readBeginning(response) };
  } catch (error) {
    if (late.aborted) return retry(`it did not answer within ${timeoutMs / 1000} s`, null);
    if (signal.aborted) return retry("keybearer stopped", null);
    if (error instanceof OutboundProxyError) return retry(error.message, "check its proxy in config.yaml");
    return connectionProblem(errorCode(error));
  }
}

/** What came of it, if it breaks off. */
async function readBeginning(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      size += chunk.length;
      // Leaving the loop closes the connection.
      if (size >= MAX_REPLY_BYTES) break;
    }
  } catch {
    // The status has come, and for most kinds it decides.
  }
  return Buffer.concat(chunks).toString("utf8", 0, MAX_REPLY_BYTES);
}

function retry(problem: string, next: string | null): Unsent {
  return { result: "retry", problem, next };
}

function connectionProblem(code: string): Unsent {
  if (/CERT|SIGNATURE|ISSUER|ALTNAME/.test(code))
    return retry(
      `its certificate is not accepted (${code})`,
      "check its url, or set its ca_file in config.yaml",
    );
  if (code === "ENOTFOUND")
    return retry("its host has no address (ENOTFOUND)", "check its url in config.yaml");
  return retry(`it cannot be reached (${code})`, null);
}
