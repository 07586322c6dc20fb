import {
  type Agent,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
} from "node:http";
import { request as httpsRequest } from "node:https";
import type { Clock } from "../core/clock.ts";

export interface Question {
  readonly url: string;
  /** Name, value, name, value. */
  readonly headers: readonly string[];
  readonly agent: Agent;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

export type Answered =
  | {
      readonly ok: true;
      readonly status: number;
      readonly headers: IncomingHttpHeaders;
      readonly text: string;
      /** How far the other clock is ahead, in milliseconds, to about a second; null: it tells no time. */
      readonly skew: number | null;
    }
  | { readonly ok: false; readonly error: NodeJS.ErrnoException };

/** The longest list of models that was seen has some hundred kilobytes. */
const MOST_BYTES = 4 * 1024 * 1024;

/** One GET. A redirect is an answer like any other: the key goes nowhere else. Never throws. */
export async function askGateway(question: Question): Promise<Answered> {
  const first = await send(question);
  // A kept connection may have been dead already: that says nothing of the gateway.
  return first.ok || !first.stale ? first : send(question);
}

type Sent = Extract<Answered, { ok: true }> | { ok: false; error: NodeJS.ErrnoException; stale: boolean };

function send({ url, headers, agent, clock, signal }: Question): Promise<Sent> {
  const began = clock.now();
  return new Promise((resolve) => {
    const asking = (url.startsWith("https:") ? httpsRequest : httpRequest)(url, { agent, headers, signal });
    const fail = (error: NodeJS.ErrnoException) =>
      resolve({ ok: false, error, stale: asking.reusedSocket && error.code === "ECONNRESET" });
    asking.on("error", fail);
    asking.on("response", (answer) => {
      read(answer).then(
        (text) => {
          const skew = skewOf(answer, (began + clock.now()) / 2);
          resolve({ ok: true, status: answer.statusCode ?? 0, headers: answer.headers, text, skew });
        },
        (error: Error) => {
          asking.destroy();
          fail(error);
        },
      );
    });
    asking.end();
  });
}

async function read(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MOST_BYTES) throw new Error("it answered with more than 4 MB");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** A Date has whole seconds: half of one is what it leaves out on average. */
function skewOf({ headers }: IncomingMessage, middle: number): number | null {
  const date = Date.parse(headers.date ?? "");
  return Number.isNaN(date) ? null : Math.round(date + 500 - middle);
}
