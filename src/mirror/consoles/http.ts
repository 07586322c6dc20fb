import { type Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Clock } from "../../core/clock.ts";
import { isObject, type JsonObject, objectAt, parseObject, textAt } from "../../core/json.ts";
import { readWhole } from "../../core/read-whole.ts";
import { redactCredentials } from "../../core/redact.ts";
import { Secret } from "../../core/secret.ts";
import { cleanText } from "./clean-text.ts";
import { ConsoleError } from "./console.ts";

/** Sends requests to one console. */
export interface ConsoleClient {
  /** Throws a ConsoleError if no complete response arrives in time. */
  send(request: ConsoleRequest): Promise<ConsoleResponse>;
}

export interface ConsoleRequest {
  readonly method?: "GET" | "POST" | "PUT" | "DELETE";
  /** Below the console's url, with the query: /api/v1/usage?page=1 */
  readonly path: string;
  /** Sent as `Authorization: Bearer …`. */
  readonly bearer?: Secret;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON, with its secrets revealed. */
  readonly body?: RequestBody;
}

export type RequestBody = Readonly<Record<string, string | number | boolean | readonly string[] | Secret>>;

export interface ConsoleResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly text: string;
  /** The secrets that the request carried, which errorText removes. */
  readonly secrets: readonly Secret[];
}

export interface ClientOptions {
  /** Without a trailing slash. */
  readonly url: string;
  readonly clock: Clock;
  /** The gateway's own agent, so that its outbound proxy is used here too. */
  readonly agent: () => Agent;
  /** Aborts requests when the mirror stops. */
  readonly signal: AbortSignal;
  /** Called with each response: how far the console's clock is ahead, in milliseconds, to about a second. */
  readonly onSkew: (skew: number) => void;
}

const TIMEOUT_MS = 30_000;
/** A page of 1,000 rows is about 2 MB. */
const MAX_BYTES = 32 * 1024 * 1024;
/** Without a version: some consoles end a session when its user agent changes. */
const USER_AGENT = "keybearer";

/** Follows no redirect, so that credentials stay at the console's own origin. */
export class HttpClient implements ConsoleClient {
  readonly #options: ClientOptions;

  constructor(options: ClientOptions) {
    this.#options = options;
  }

  async send(request: ConsoleRequest): Promise<ConsoleResponse> {
    const { clock, onSkew } = this.#options;
    const began = clock.now();
    const response = await send(request, this.#options);
    const skew = measureSkew(response, began, clock.now());
    if (skew !== null) onSkew(skew);
    return response;
  }
}

function send(request: ConsoleRequest, { url, agent, signal }: ClientOptions): Promise<ConsoleResponse> {
  const body = request.body === undefined ? undefined : JSON.stringify(revealed(request.body));
  const headers: Record<string, string> = {
    "user-agent": USER_AGENT,
    accept: "application/json",
    "accept-encoding": "identity",
    ...request.headers,
  };
  if (request.bearer !== undefined) headers.authorization = `Bearer ${request.bearer.reveal()}`;
  if (body !== undefined) {
    headers["content-type"] = "application/json";
    headers["content-length"] = String(Buffer.byteLength(body));
  }
  const open = url.startsWith("https:") ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const outgoing = open(`${url}${request.path}`, {
      method: request.method ?? "GET",
      agent: agent(),
      signal,
      headers,
    });
    const timer = setTimeout(() => {
      outgoing.destroy(new ConsoleError("slow", `did not answer within ${TIMEOUT_MS / 1000} s`));
    }, TIMEOUT_MS);
    const fail = (error: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      outgoing.destroy();
      // Only the code: the message of a network error can contain the address.
      const reached = `cannot be reached (${error.code ?? error.name})`;
      reject(error instanceof ConsoleError ? error : new ConsoleError("unreachable", reached));
    };
    outgoing.on("error", fail);
    outgoing.on("response", (incoming) => {
      readText(incoming).then((text) => {
        clearTimeout(timer);
        resolve({
          status: incoming.statusCode ?? 0,
          headers: incoming.headers,
          // Rows are stored, and a hostile console may repeat the token in them. This takes 0.4 ms for a page of 1.8 MB. The
          // tokens in a login's request are not removed, because its response contains their successors.
          text: request.bearer?.redactFrom(text) ?? text,
          secrets: [request.bearer, ...Object.values(request.body ?? {})].filter(
            (value) => value instanceof Secret,
          ),
        });
      }, fail);
    });
    outgoing.end(body);
  });
}

function revealed(body: RequestBody): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(body)) {
    fields[name] = value instanceof Secret ? value.reveal() : value;
  }
  return fields;
}

async function readText(incoming: IncomingMessage): Promise<string> {
  const text = await readWhole(incoming, MAX_BYTES);
  if (text === null) throw new ConsoleError("not-a-console", "answered with more than 32 MB");
  if (!incoming.complete) throw new ConsoleError("unreachable", "broke off in the middle of an answer");
  return text;
}

/** The server's time in milliseconds, to the second; null: it sent no usable Date header. */
export function readDate({ headers }: Pick<ConsoleResponse, "headers">): number | null {
  const date = typeof headers.date === "string" ? Date.parse(headers.date) : Number.NaN;
  return Number.isNaN(date) ? null : date;
}

/** How far the server's clock is ahead of ours, in the middle of a call; null: it sent no usable Date header. */
export function measureSkew(
  response: Pick<ConsoleResponse, "headers">,
  began: number,
  ended: number,
): number | null {
  const date = readDate(response);
  // A Date header has whole seconds, so on average it is half a second behind.
  return date === null ? null : Math.round(date + 500 - (began + ended) / 2);
}

const MAX_SKEWS = 9;
/** A smaller skew counts as none: a Date header has whole seconds, and a response takes time. */
const NO_SKEW_MS = 1500;

/** How far a console's clock is ahead of ours, measured with each response. */
export class ClockSkew {
  #last: readonly number[] = [];

  note(milliseconds: number): void {
    this.#last = [...this.#last.slice(1 - MAX_SKEWS), milliseconds];
  }

  /** The median, because a single slow response misleads. null: the console never answered. */
  get known(): number | null {
    const median = this.#last.toSorted((a, b) => a - b)[Math.floor(this.#last.length / 2)];
    if (median === undefined) return null;
    return Math.abs(median) < NO_SKEW_MS ? 0 : median;
  }
}

/** A rate limit: at most this many calls in any span of this length. */
export interface CallLimit {
  readonly calls: number;
  readonly milliseconds: number;
}

/** What every adapter gets. */
export interface AdapterDeps {
  readonly client: ConsoleClient;
  /** Waits to stay within the console's rate limit. Rejects when the mirror stops. */
  readonly pause: (milliseconds: number, purpose?: CallPurpose) => Promise<void>;
  readonly now: () => number;
  /** Calls to this console so far, by all accounts: some consoles limit per address. */
  readonly calls: CallHistory;
}

/** The longest time over which any console counts calls. */
const LONGEST_LIMIT_MS = 180_000;

/** What a call is for. rows: reading the usage log. keys: everything else. */
type CallPurpose = "rows" | "keys";

/** Reading the usage log leaves this many calls to changes of keys: two rotations at once take about 50. */
const KEPT_FOR_KEYS = 60;

/**
 * The times of recent calls to one console. A call waits only once the limit is used up, so that a first walk is as fast
 * as the console answers: spreading the calls evenly made 300 pages of new-api take 212 s.
 */
export class CallHistory {
  #times: number[] = [];
  #msPerCall = 0;
  #sent = 0;
  readonly #waits = new Set<LimitWait>();

  /** Returns when the next call may be sent, and counts it. */
  async wait(
    { calls, milliseconds }: CallLimit,
    { now, pause }: Pick<AdapterDeps, "now" | "pause">,
    purpose: CallPurpose,
  ): Promise<void> {
    // The limit for "rows" is smaller, so that calls are left for keys. This one is the console's own.
    if (purpose === "keys") this.#msPerCall = milliseconds / calls;
    // Again after each pause: another call may have come first.
    for (;;) {
      const time = now();
      // Times in the future are from before the clock was set back: drop them.
      this.#times = this.#times.filter((at) => at > time - LONGEST_LIMIT_MS && at <= time);
      // The next call waits until this one no longer counts.
      const oldest = this.#times.filter((at) => at > time - milliseconds).at(-calls);
      if (oldest === undefined) break;
      await pause(oldest + milliseconds - time, purpose);
    }
    this.#times.push(now());
    this.#sent += 1;
  }

  /** Calls so far. */
  get sent(): number {
    return this.#sent;
  }

  /** How long this many calls take under the console's limit. 0: the limit is not known. */
  timeFor(calls: number): number {
    return calls * this.#msPerCall;
  }

  /** A call waits for the console's limit. Returns what ends that. */
  noteWait(wait: LimitWait): () => void {
    this.#waits.add(wait);
    return () => void this.#waits.delete(wait);
  }

  /** Until when a call of this purpose waits for the console's limit; null: none does. */
  waitsUntil(purpose: CallPurpose): number | null {
    const waits = [...this.#waits].filter((wait) => wait.purpose === purpose);
    return waits.length === 0 ? null : Math.max(...waits.map(({ until }) => until));
  }
}

interface LimitWait {
  readonly purpose: CallPurpose;
  readonly until: number;
}

/** Stays within the console's rate limit. */
export function pacedClient(
  deps: AdapterDeps,
  limit: () => CallLimit,
  purpose: CallPurpose = "keys",
): ConsoleClient {
  return {
    async send(request) {
      const { calls, milliseconds } = limit();
      const share = purpose === "rows" ? calls - KEPT_FOR_KEYS : calls;
      await deps.calls.wait({ calls: share, milliseconds }, deps, purpose);
      return deps.client.send(request);
    },
  };
}

/**
 * The JSON object in a response; throws a ConsoleError for anything else.
 * @param about what was asked for, used in messages: `the usage log`
 */
export function readJson(response: ConsoleResponse, about: string): JsonObject {
  const { status, text } = response;
  if (status === 429) {
    throw new ConsoleError(
      "rate-limited",
      "answered that it gets too many requests",
      readRetryAfter(response),
    );
  }
  if (status >= 500) {
    throw new ConsoleError("failing", `answered ${status}${errorText(response)}`, readRetryAfter(response));
  }
  if (status >= 300 && status < 400) {
    throw new ConsoleError("not-a-console", `answered ${about} with a redirect: is the url right?`);
  }
  if (isWebPage(response)) {
    const problem =
      status === 403
        ? "answered 403 with a web page: something in front of it needs a browser"
        : `answered ${about} with a web page: is the url right?`;
    throw new ConsoleError("not-a-console", problem);
  }
  if (status === 401 || status === 403) {
    throw new ConsoleError("login-needed", `answered ${status}${errorText(response)}`);
  }
  if (text.trim() === "") throw new ConsoleError("not-a-console", `answered ${about} with an empty body`);
  const object = parseObject(text);
  if (object === null) {
    throw new ConsoleError("not-a-console", `answered ${about} with something that is not a JSON object`);
  }
  if (status === 404) throw new ConsoleError("other-shape", `does not know ${about} (404)`);
  if (status >= 400) throw new ConsoleError("failing", `answered ${status}${errorText(response)}`);
  return object;
}

/** The console itself rejects the credential. A 403 web page comes from something in front of the console. */
export function isDenied(response: ConsoleResponse): boolean {
  return response.status === 401 || (response.status === 403 && !isWebPage(response));
}

/**
 * What the console says about an error, to append to our own message: ": …", or "" if it says nothing. Contains no secret of
 * the request, however the console spells it: secrets are removed from the decoded text, before that is cut. It also does
 * not contain another key: consoles answer with keys that we do not know yet, and new-api writes them without their `sk-`.
 */
export function errorText({ text, secrets }: ConsoleResponse): string {
  const body = parseObject(text);
  const error = objectAt(body, "error");
  const detail = textAt(body, "detail") ?? textAt(objectAt(body, "detail"), "error");
  const said = textAt(body, "message") ?? textAt(body, "error") ?? textAt(error, "message") ?? detail ?? "";
  const own = secrets.reduce((redacted, secret) => secret.redactFrom(redacted), said);
  const clean = cleanText(own, redactCredentials);
  return clean === "" ? "" : `: ${clean}`;
}

const MAX_WAIT_S = 24 * 3600;

/** Seconds the console asks to wait, at most a day; null: it does not say. */
export function readRetryAfter({ headers }: ConsoleResponse): number | null {
  const value = headers["retry-after"];
  if (typeof value !== "string") return null;
  // A date is by the console's clock, so it is compared with the Date header.
  const seconds = /^\s*\d{1,9}\s*$/.test(value)
    ? Number(value)
    : Math.ceil((Date.parse(value) - Date.parse(String(headers.date))) / 1000);
  return Number.isNaN(seconds) ? null : Math.min(Math.max(0, seconds), MAX_WAIT_S);
}

/** Wrong addresses are answered with the console's own web pages, some without a content type. */
function isWebPage({ headers, text }: ConsoleResponse): boolean {
  const type = headers["content-type"];
  const saysHtml = typeof type === "string" && /^\s*text\/html\b/i.test(type);
  return saysHtml || /^\s*<(?:!|\w)/.test(text.slice(0, 200));
}

/** The error for a response that lacks a field, or has it with another type. */
export function otherShape(about: string, name: string): ConsoleError {
  return new ConsoleError("other-shape", `answered ${about} without a usable "${name}"`);
}

export function required<T>(value: T | null, name: string, about: string): T {
  if (value === null) throw otherShape(about, name);
  return value;
}

/** The object that a console wraps as "data". */
export function requiredData(data: unknown, about: string): JsonObject {
  return required(isObject(data) ? data : null, "data", about);
}
