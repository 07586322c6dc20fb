import { request as httpRequest, type IncomingMessage } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { type Call, canStream, type Endpoint, TOKEN_STEP, type ToolKey } from "./gateway.ts";
import { type Plan, planText } from "./provider.ts";

export type Kind =
  | "plain"
  | "stream"
  | "failure"
  | "early abort"
  /** The provider answers it with an error after the client left, so the gateway does not bill it. */
  | "unbilled abort"
  | "mid-stream abort"
  | "cut"
  | "killed";

/** One request: what it asks for, when it is sent, and what came of it. */
export interface TestRequest {
  readonly marker: string;
  readonly kind: Kind;
  /** It goes to the gateway directly, as a thief's would. */
  readonly foreign: boolean;
  readonly tool: ToolKey;
  readonly endpoint: Endpoint;
  readonly model: string;
  readonly stream: boolean;
  readonly plan: Plan;
  /** When it is sent, milliseconds after the first one. */
  readonly at: number;
  /** The client leaves after so many milliseconds; null: it stays. */
  readonly leaveAfter: number | null;
  /** The client leaves with this chunk; null: it stays. */
  readonly leaveAtChunk: number | null;
  /** The kind of request next to which a foreign one was placed. */
  readonly near: Kind | null;
  /** One of a pair: how long after an abort of ours the foreign one is sent, milliseconds; null: it is in no pair. */
  readonly apart: number | null;
  /** The request whose id a foreign one sends again, to a gateway that takes ids. */
  readonly repeats: TestRequest | null;
  /** No other request has a body of this length, so the record of an aborted request can be found by it. */
  readonly bodyLength: number;
  sentAt: number;
  status: number | null;
  recordId: string | null;
  /** The whole answer arrived. */
  ended: boolean;
}

export interface TrafficOptions {
  readonly tools: readonly ToolKey[];
  readonly failures: readonly number[];
  /** How many requests pass through keybearer, at least. */
  readonly count: number;
  readonly foreign: number;
  /** How many pairs there are of each distance, beside aborts that are billed and beside those that are not. */
  readonly pairs: number;
  /** How many foreign requests send the id of an earlier request again. */
  readonly repeats: number;
  /** Requests a second. */
  readonly rate: number;
  readonly random: () => number;
}

export interface Traffic {
  /** By the time at which they are sent. */
  readonly requests: readonly TestRequest[];
  /** When the daemon is killed, milliseconds after the first request. */
  readonly killAt: number;
}

/** Of a hundred requests. A retry is a failure and, soon after it, the same request again. */
const SHARES: readonly (readonly [Kind | "retry", number])[] = [
  ["plain", 38],
  ["stream", 35],
  ["failure", 9],
  ["early abort", 6],
  ["mid-stream abort", 6],
  ["cut", 2],
  ["retry", 4],
];

/** Next to which requests the foreign ones are placed, in turn. */
const NEAR: readonly Kind[] = (["plain", "stream", "killed"] as const).flatMap((last): Kind[] => [
  "early abort",
  "mid-stream abort",
  "failure",
  last,
]);

/** How far a foreign request is from its neighbor, milliseconds. */
const DISTANCES = [0, 20, 150, 600, 1500, 3000, 4500, 6500, 8500, 10_000];

export function planTraffic(options: TrafficOptions): Traffic {
  const { tools, failures, count, rate, random } = options;
  const whole = (from: number, to: number) => from + Math.floor(random() * (to - from + 1));
  const oneOf = <T>(list: readonly T[]): T => list[whole(0, list.length - 1)] as T;
  const requests: TestRequest[] = [];
  let number = 0;

  const add = (kind: Kind, at: number, given: Partial<TestRequest> = {}): TestRequest => {
    number += 1;
    const foreign = given.foreign ?? false;
    const marker = `${foreign ? "f" : "o"}${String(number).padStart(5, "0")}`;
    const tool = given.tool ?? oneOf(tools);
    const endless = kind === "mid-stream abort" || kind === "cut";
    const stream =
      given.stream ?? (kind === "plain" ? false : kind === "stream" || endless || random() < 0.5);
    const { endpoint, model } = given;
    const call: Call =
      endpoint !== undefined && model !== undefined
        ? { endpoint, model }
        : oneOf(stream ? tool.calls.filter(canStream) : tool.calls);
    const plan: Plan = {
      // Few different numbers, so that many requests have the same tokens.
      input: TOKEN_STEP * (random() < 0.7 ? whole(1, 6) : whole(7, 400)),
      output: canStream(call) ? TOKEN_STEP * whole(1, 5) : 0,
      cacheRead: canStream(call) && random() < 0.2 ? TOKEN_STEP * 10 : 0,
      headDelay: isEarly(kind) ? whole(500, 3000) : whole(0, 60),
      chunks: endless ? 14 : whole(2, 6),
      chunkDelay: endless ? 70 : whole(2, 40),
      cut: kind === "cut",
      ...given.plan,
      status:
        kind === "failure" ? (given.plan?.status ?? oneOf(failures)) : kind === "unbilled abort" ? 400 : 200,
      marker,
    };
    const made: TestRequest = {
      endpoint: call.endpoint,
      model: call.model,
      leaveAfter: isEarly(kind) ? whole(60, 350) : null,
      leaveAtChunk: kind === "mid-stream abort" ? whole(2, 5) : null,
      near: null,
      apart: null,
      repeats: null,
      ...given,
      marker,
      kind,
      foreign,
      tool,
      stream,
      plan,
      at,
      bodyLength: 3000 + number,
      sentAt: 0,
      status: null,
      recordId: null,
      ended: false,
    };
    requests.push(made);
    return made;
  };

  const chosen = SHARES.flatMap(([kind, share]) => Array<Kind | "retry">(share).fill(kind));
  const killAt = ((count / 2) * 1000) / rate;
  for (let index = 0; index < count; index += 1) {
    const at = (index * 1000) / rate + whole(0, 200);
    const kind = oneOf(chosen);
    if (kind !== "retry") {
      add(kind, at);
      continue;
    }
    const failed = add("failure", at, { plan: { status: oneOf([429, 500]) } as Plan });
    const { tool, endpoint, model, stream, plan } = failed;
    add(stream ? "stream" : "plain", at + whole(300, 900), { tool, endpoint, model, stream, plan });
  }
  // In flight when the daemon is killed: some without a head, some in the middle of their stream.
  for (let index = 0; index < 8; index += 1) {
    const stream = index % 2 === 0;
    const plan = { headDelay: stream ? 20 : 1500, chunks: 20, chunkDelay: stream ? 100 : 0 } as Plan;
    add("killed", killAt - 150 - index * 110, { stream, plan });
  }
  placeForeign(requests, options, add, { oneOf, killAt });
  placePairs(options, add, killAt);
  placeRepeats(requests, options, add, oneOf);
  return { requests: requests.sort((a, b) => a.at - b.at), killAt };
}

type Add = (kind: Kind, at: number, given?: Partial<TestRequest>) => TestRequest;

/** Complete requests with the same key, model and protocol as one of ours, shortly before or after it. */
function placeForeign(
  requests: readonly TestRequest[],
  { foreign, random }: TrafficOptions,
  add: Add,
  { oneOf, killAt }: { oneOf: <T>(list: readonly T[]) => T; killAt: number },
): void {
  const ours = [...requests];
  for (let index = 0; index < foreign; index += 1) {
    const near = NEAR[index % NEAR.length] as Kind;
    const distance = DISTANCES[index % DISTANCES.length] ?? 0;
    const neighbor = oneOf(ours.filter(({ kind }) => kind === near));
    const before = neighbor.at - distance;
    const after = neighbor.at + distance;
    // While the daemon is down nothing of ours can be in flight, so that would be too easy.
    const at = index % 3 === 0 && before > 0 && Math.abs(before - killAt) > 3000 ? before : after;
    const { tool, endpoint, model, stream } = neighbor;
    const { input, output, cacheRead } = neighbor.plan;
    const same = { input, output, cacheRead } as Plan;
    add(stream ? "stream" : "plain", at, {
      foreign: true,
      near,
      tool,
      endpoint,
      model,
      stream,
      ...(random() < 0.5 ? { plan: same } : {}),
    });
  }
}

/** Later than any request still begins. */
const REPEATED_AFTER_MS = 12_000;

/** With the id of a request that is over, as a thief finds it in the gateway's usage log. */
function placeRepeats(
  requests: readonly TestRequest[],
  { repeats: count }: TrafficOptions,
  add: Add,
  oneOf: <T>(list: readonly T[]) => T,
): void {
  const answered = requests.filter(
    ({ kind, foreign }) => !foreign && (kind === "plain" || kind === "stream"),
  );
  for (let index = 0; index < count; index += 1) {
    const repeats = oneOf(answered);
    const { kind, tool, endpoint, model, stream, at } = repeats;
    const foreign = { foreign: true, near: kind, tool, endpoint, model, stream, repeats };
    add(kind, at + REPEATED_AFTER_MS, foreign);
  }
}

function isEarly(kind: Kind): boolean {
  return kind === "early abort" || kind === "unbilled abort";
}

/** The client of ours leaves after 200 ms, so a foreign one that is sent later begins after ours has ended. */
const LEAVE_MS = 200;
export const APART: readonly number[] = [0, 30, 80, 150, 300, 600, 1200, 2500];
export const PAIRED: readonly Kind[] = ["unbilled abort", "early abort"];

/** Foreign requests after an abort of ours with the same key, model and protocol, spread over the whole time. */
function placePairs({ pairs, count, rate }: TrafficOptions, add: Add, killAt: number): void {
  const total = pairs * APART.length * PAIRED.length;
  const step = ((count / rate) * 1000) / (total + 1);
  for (let index = 0; index < total; index += 1) {
    const near = PAIRED[index % PAIRED.length] as Kind;
    const apart = APART[Math.floor(index / PAIRED.length) % APART.length] ?? 0;
    const planned = (index + 1) * step;
    // A request that the `kill -9` cut off may own anything of the next ten seconds.
    const at = Math.abs(planned - killAt) < 15_000 ? planned + 30_000 : planned;
    const { tool, endpoint, model, stream } = add(near, at, { apart, leaveAfter: LEAVE_MS });
    const foreign = { foreign: true, near, apart, tool, endpoint, model, stream };
    add(stream ? "stream" : "plain", at + apart, foreign);
  }
}

/** Where requests go, and what they show. */
export interface Target {
  /** How every user agent begins. */
  readonly userAgent: string;
  readonly origin: () => string;
  readonly credential: (request: TestRequest) => string;
}

/** Sends every request at its time, and waits for the last one. */
export async function sendTraffic(
  requests: readonly TestRequest[],
  ours: Target,
  direct: Target,
  at: readonly { readonly at: number; readonly run: () => Promise<void> }[],
): Promise<void> {
  const begun = Date.now();
  const sendings = requests.map(async (request) => {
    await sleep(Math.max(0, begun + request.at - Date.now()));
    await send(request, request.foreign ? direct : ours);
  });
  const events = at.map(async (event) => {
    await sleep(Math.max(0, begun + event.at - Date.now()));
    await event.run();
  });
  await Promise.all([...sendings, ...events]);
}

/** A restart of the daemon takes about a second. Until then nothing listens, and nothing was sent. */
const CONNECT_TRIES = 100;

async function send(request: TestRequest, target: Target): Promise<void> {
  for (let tries = 0; tries < CONNECT_TRIES; tries += 1) {
    if ((await sendOnce(request, target)) !== "ECONNREFUSED") return;
    await sleep(100);
  }
  throw new Error(`${request.marker}: nothing listens at ${target.origin()}`);
}

/** keybearer reads less of a user agent, so it does not see the marker. */
const HIDDEN_AFTER = 250;

/** Resolves to the error's code, or null. */
function sendOnce(request: TestRequest, target: Target): Promise<string | null> {
  const credential = target.credential(request);
  const isMessages = request.endpoint === "/v1/messages";
  const headers: Record<string, string> = {
    "content-type": "application/json",
    "content-length": String(request.bodyLength),
    // sub2api stores the user agent, and new-api's access log has the query.
    // LiteLLM stores this with every row.
    "x-litellm-trace-id": request.marker,
    "user-agent": `${target.userAgent}${" ".repeat(HIDDEN_AFTER)}(${request.marker})`,
  };
  const repeated = request.repeats?.recordId ?? null;
  if (repeated !== null) headers["x-litellm-call-id"] = repeated;
  if (isMessages) {
    headers["x-api-key"] = credential;
    headers["anthropic-version"] = "2023-06-01";
  } else {
    headers.authorization = `Bearer ${credential}`;
  }
  return new Promise((resolve) => {
    request.sentAt = Date.now();
    const url = `${target.origin()}${request.endpoint}?m=${request.marker}`;
    const outgoing = httpRequest(url, { method: "POST", headers, agent: false });
    outgoing.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    outgoing.on("close", () => resolve(null));
    outgoing.on("response", (response) => receive(request, response, () => outgoing.destroy()));
    outgoing.end(bodyOf(request));
    if (request.leaveAfter !== null) setTimeout(() => outgoing.destroy(), request.leaveAfter);
  });
}

function receive(request: TestRequest, response: IncomingMessage, leave: () => void): void {
  request.status = response.statusCode ?? null;
  const id = response.headers["x-keybearer-request-id"];
  if (typeof id === "string") request.recordId = id;
  let chunks = 0;
  response.on("data", () => {
    chunks += 1;
    if (request.leaveAtChunk !== null && chunks >= request.leaveAtChunk) leave();
  });
  response.on("end", () => {
    request.ended = response.complete;
  });
  // A daemon that was killed, or a stream that was cut: `ended` stays false.
  response.on("error", () => {});
}

function bodyOf({ endpoint, model, stream, plan, bodyLength }: TestRequest): string {
  const text = `Say something short. ${planText(plan)}`;
  const prompts: Readonly<Record<Endpoint, object>> = {
    "/v1/messages": { max_tokens: 1024, messages: [{ role: "user", content: text }] },
    "/v1/chat/completions": {
      messages: [{ role: "user", content: text }],
      ...(stream ? { stream_options: { include_usage: true } } : {}),
    },
    "/v1/responses": {
      input: [{ role: "user", content: [{ type: "input_text", text }] }],
    },
    "/v1/embeddings": { input: text },
  };
  const asked = canStream({ endpoint, model }) ? { model, stream } : { model };
  return JSON.stringify({ ...asked, ...prompts[endpoint] }).padEnd(bodyLength);
}
