import { type Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Clock } from "../../clock.ts";
import { Secret } from "../../secret.ts";
import { type ConsoleClient, ConsoleFault, type ConsoleRequest, type ConsoleResponse } from "./console.ts";

/** A page of 1000 rows is about 2 MB; what is more than this many is no page. */
const MOST_BYTES = 32 * 1024 * 1024;
const PATIENCE_MS = 30_000;

export interface ClientOptions {
  /** Without a slash at its end. */
  readonly url: string;
  readonly clock: Clock;
  /** The gateway's own agent, so that its outbound proxy is used here too. */
  readonly agent: () => Agent;
  /** Ends what is under way when the mirror stops. */
  readonly signal: AbortSignal;
  /** Told with every answer: how far the console's clock is ahead, in milliseconds, to about a second. */
  readonly onSkew: (skew: number) => void;
  readonly patience?: number;
}

export function createClient(means: ClientOptions): ConsoleClient {
  return {
    async send(question) {
      const began = means.clock.now();
      const answer = await send(question, means);
      noteSkew(answer, began, means);
      return answer;
    },
  };
}

function send(
  question: ConsoleRequest,
  { url, agent, signal, patience = PATIENCE_MS }: ClientOptions,
): Promise<ConsoleResponse> {
  const { method, path, bearer } = question;
  const body = question.body === undefined ? null : JSON.stringify(bare(question.body));
  const secure = url.startsWith("https:");
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => asking.destroy(new ConsoleFault("slow", `did not answer within ${patience / 1000} s`)),
      patience,
    );
    const asking = (secure ? httpsRequest : httpRequest)(`${url}${path}`, {
      method,
      agent: agent(),
      signal,
      headers: {
        // Some consoles end a session whose user agent changes: it must not tell a version.
        "user-agent": USER_AGENT,
        accept: "application/json",
        "accept-encoding": "identity",
        ...question.headers,
        ...(bearer === null ? {} : { authorization: `Bearer ${bearer.reveal()}` }),
        ...(body === null
          ? {}
          : { "content-type": "application/json", "content-length": Buffer.byteLength(body) }),
      },
    });
    const fail = (error: Error) => {
      clearTimeout(timer);
      reject(error instanceof ConsoleFault ? error : unreachable(error));
    };
    asking.on("error", fail);
    asking.on("response", (answer) => {
      read(answer)
        .then((text) => {
          clearTimeout(timer);
          resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text });
        })
        .catch((error: Error) => {
          asking.destroy();
          fail(error);
        });
    });
    asking.end(body ?? undefined);
  });
}

const USER_AGENT = "keybearer";

async function read(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MOST_BYTES) throw new ConsoleFault("not-a-console", "answered with more than a page can be");
    chunks.push(chunk);
  }
  if (!answer.complete) throw new ConsoleFault("unreachable", "broke off in the middle of an answer");
  return Buffer.concat(chunks).toString("utf8");
}

/** The answer's Date against the middle of the time it took, to the second that a Date has. */
function noteSkew({ headers }: ConsoleResponse, began: number, { clock, onSkew }: ClientOptions): void {
  const date = typeof headers.date === "string" ? Date.parse(headers.date) : Number.NaN;
  if (Number.isNaN(date)) return;
  onSkew(Math.round(date + 500 - (began + clock.now()) / 2));
}

/** The body with its secrets as what they are. */
function bare(value: unknown): unknown {
  if (value instanceof Secret) return value.reveal();
  if (Array.isArray(value)) return value.map(bare);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, bare(inner)]));
}

function unreachable(error: NodeJS.ErrnoException): ConsoleFault {
  // Only the code: a message may hold an address with what nobody should read.
  return new ConsoleFault("unreachable", `cannot be reached (${error.code ?? error.name})`);
}

/** How many calls a console accepts within a time. */
export interface Allowance {
  readonly calls: number;
  readonly milliseconds: number;
}

interface Waiting {
  readonly now: () => number;
  readonly pause: (milliseconds: number) => Promise<void>;
}

/** The longest time that any console counts calls over. */
const LONGEST_MS = 180_000;

/**
 * The times of the calls to one console. A call waits only when the allowance is used up, so that a first walk is as fast as
 * the console answers. Spreading the calls evenly instead made 300 pages of new-api take 212 s.
 */
export class CallHistory {
  #times: number[] = [];

  /** Returns when the next call may go, and counts it. */
  async wait({ calls, milliseconds }: Allowance, { now, pause }: Waiting): Promise<void> {
    const time = now();
    // A clock that was set back leaves times in the future, which say nothing.
    this.#times = this.#times.filter((at) => at > time - LONGEST_MS && at <= time);
    // The call that must leave the window before the next one may go.
    const oldest = this.#times.filter((at) => at > time - milliseconds).at(-calls);
    if (oldest !== undefined) await pause(oldest + milliseconds - time);
    this.#times.push(now());
  }
}

/** The same connection, within what the console allows at the time of the call. */
export function pacedClient(
  client: ConsoleClient,
  means: Waiting & { readonly calls: CallHistory },
  allowance: () => Allowance,
): ConsoleClient {
  return {
    async send(question) {
      await means.calls.wait(allowance(), means);
      return client.send(question);
    },
  };
}
