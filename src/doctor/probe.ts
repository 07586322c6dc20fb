import { once } from "node:events";
import {
  type Agent,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
} from "node:http";
import { request as httpsRequest } from "node:https";
import type { Gateway } from "../config/schema.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import type { Problem } from "../core/display.ts";
import { fieldAt, listAt, textAt } from "../core/json.ts";
import { readWhole } from "../core/read-whole.ts";
import { keyProblem, type Secret } from "../core/secret.ts";
import { measureSkew } from "../mirror/consoles/http.ts";
import { KeyCallBudgets } from "../mirror/consoles/key-calls.ts";
import { Agents } from "../proxy/agents.ts";
import { keyHeaderFor, requestHeaders } from "../proxy/headers.ts";
import { findCause, isUnexplained, type Tested } from "../proxy/key-health/cause.ts";
import { KeyCheck, readSub2apiUsage, type Sub2apiUsage } from "./key-check.ts";
import type { FailedProbe, ProbeProblem } from "./probe-failure.ts";
import * as problems from "./probe-failure.ts";

/* Asks a gateway about a key: GET /models, which costs nothing, and what else the gateway offers to explain a refusal. */

/** Where requests to gateways come from: the daemon's connections, or a command's own. */
export interface ProbeDeps {
  readonly clock: Clock;
  readonly agentFor: (gateway: Gateway, origin: string) => Agent;
  readonly keyCheck: KeyCheck;
}

/** For a command: connections of its own, closed when the work is done. @param keyCallsFile see KeyCallBudgets */
export async function withOwnConnections<T>(
  keyCallsFile: string,
  work: (deps: ProbeDeps) => Promise<T>,
): Promise<T> {
  const clock = systemClock;
  const agents = new Agents(clock);
  const { agentFor } = agents;
  const keyCalls = new KeyCallBudgets(() => clock.now(), keyCallsFile);
  // The daemon has the logins.
  const keyCheck = new KeyCheck({ clock, agentFor, keyCalls, listedDetail: async () => null });
  try {
    return await work({ clock, agentFor, keyCheck });
  } finally {
    keyCheck.stop();
    agents.close();
    await keyCalls.saved();
  }
}

export type ProbeResult =
  | {
      readonly ok: true;
      readonly status: number;
      /** The names in the gateway's list, as it spells them. */
      readonly models: readonly string[];
      /** What the gateway's answers tested. */
      readonly tested: readonly Tested[];
      /** How far the gateway's clock is ahead of ours, in milliseconds; null: it sent no date. */
      readonly skew: number | null;
    }
  | FailedProbe;

/** A key that was not read, as the control socket carries it. */
export interface MissingKey extends Problem {
  readonly state: "unavailable" | "needs-trust";
}

/** What the probe of one tool's key found. */
export interface ToolProbe {
  readonly tool: string;
  readonly gateway: string;
  /** Fingerprint; null: there is no key to ask with. */
  readonly key: string | null;
  /** Why there is none; null: there is one. */
  readonly missing: MissingKey | null;
  /** null: there is no key, or the time was over before its turn. */
  readonly probed: ProbeResult | null;
}

export interface ProbeOptions {
  /** Ends the probe early. */
  readonly signal?: AbortSignal | undefined;
  /** This very key was accepted before: if the gateway does not know it now, it was deleted. Default false. */
  readonly worked?: boolean | undefined;
  /** Only whether the gateway accepts the key: a refusal is not explained by further requests. Default false. */
  readonly brief?: boolean | undefined;
  /** Milliseconds for all requests of the probe together. Default 10 s. */
  readonly timeout?: number | undefined;
}

const TIMEOUT_MS = 10_000;

/** Asks the gateway for its models with this key, and explains a failure. Never rejects. */
export async function probeKey(
  deps: ProbeDeps,
  gateway: Gateway,
  key: Secret,
  { signal, worked = false, brief = false, timeout = TIMEOUT_MS }: ProbeOptions = {},
): Promise<ProbeResult> {
  const malformed = keyProblem(key.reveal());
  if (malformed !== null) return { ok: false, ...problems.malformedKey(malformed), status: null, skew: null };
  const timer = AbortSignal.timeout(timeout);
  const stop = signal === undefined ? timer : AbortSignal.any([signal, timer]);
  const get: Get = (url) => askGateway(deps, gateway, key, url, stop);
  const reply = await get(`${gateway.baseUrl}/models`);
  if (!reply.ok) {
    const text = stop.aborted
      ? problems.timedOut(gateway, timeout)
      : problems.unreachable(gateway, reply.error);
    return { ok: false, ...text, status: null, skew: null };
  }
  const { status, skew } = reply;
  const found = await explain(reply, { deps, gateway, key, worked, brief, get });
  if ("tested" in found)
    return { ok: true, status, models: modelsIn(reply.text, key) ?? [], tested: found.tested, skew };
  const isAddress = found.cause === "html" || found.cause === "wrong-base-url";
  const better = isAddress ? await usualAddress(gateway, get) : null;
  const next = better === null ? found.next : problems.betterAddress(better);
  return { ok: false, ...found, next, status, skew };
}

type Get = (url: string) => Promise<Reply>;

interface ProbeContext {
  readonly deps: ProbeDeps;
  readonly gateway: Gateway;
  readonly key: Secret;
  readonly worked: boolean;
  readonly brief: boolean;
  readonly get: Get;
}

/** Why the probe failed; or, for a list of models, what it shows about the key. */
async function explain(
  response: Response,
  context: ProbeContext,
): Promise<ProbeProblem | { readonly tested: readonly Tested[] }> {
  const { deps, gateway, key, worked, brief, get } = context;
  const { status, headers, text } = response;
  if (status >= 300 && status < 400) return problems.redirected(gateway, status);
  const contentType = headers["content-type"] ?? "";
  const isNewApi = headers["x-new-api-version"] !== undefined;
  const kind = gateway.console?.kind ?? detectKind(response);
  const cause = findCause({ status, contentType, body: text, isNewApi });
  const now = deps.clock.now();
  if (cause === null) {
    const models = modelsIn(text, key);
    if (models === null) return problems.notAModelList(gateway, status);
    const listed: readonly Tested[] = models.length === 0 ? [] : ["models"];
    const usage = kind === "sub2api" && !brief ? await askSub2api(gateway, get) : null;
    if (usage === null) return { tested: ["key", ...listed] };
    return usage.detail === null
      ? { tested: [...usage.tested, ...listed] }
      : problems.brokenKey(usage.detail, usage.window, null, now);
  }
  if (isWebPage(response)) return problems.webPage(gateway, status);
  const message = problems.gatewayMessage(text, key);
  const refusal = { gateway, cause, status, message, worked, isCut: looksCut(key.reveal()) };
  if (!isUnexplained(cause) || brief) return problems.keyRefused(refusal);
  const { keyCheck } = deps;
  const canAsk = cause.isAmbiguous && kind === "new-api";
  const detail = canAsk ? await keyCheck.check(gateway, key) : await keyCheck.listed(gateway, key);
  if (detail !== null) return problems.brokenKey(detail, null, refusal, now);
  const wait = canAsk ? keyCheck.wait(gateway) : 0;
  return wait === 0 ? problems.keyRefused(refusal) : problems.keyRefusedUnchecked(refusal, now + wait, now);
}

function detectKind({ headers }: Response): "sub2api" | "new-api" | null {
  if (headers["x-new-api-version"] !== undefined) return "new-api";
  return headers["x-client-request-id"] === undefined ? null : "sub2api";
}

async function askSub2api({ baseUrl }: Gateway, get: Get): Promise<Sub2apiUsage | null> {
  const reply = await get(`${baseUrl}/usage`);
  return reply.ok && reply.status === 200 ? readSub2apiUsage(reply.text) : null;
}

/**
 * sub2api issues keys of 64 hexadecimal characters after `sk-`, new-api and one-api of 48 letters and digits. A shorter key
 * of the same alphabet has lost its end. Operators can choose other forms, so nothing is said about those.
 */
function looksCut(key: string): boolean {
  const [, body] = /^sk-([A-Za-z0-9]+)$/.exec(key) ?? [];
  if (body === undefined) return false;
  return body.length < 48 || (/^[0-9a-f]+$/.test(body) && body.length > 48 && body.length < 64);
}

/** Tries `/v1` at the same origin, where most gateways are. null: it is configured already, or does not answer either. */
async function usualAddress({ baseUrl }: Gateway, get: Get): Promise<string | null> {
  const usual = `${new URL(baseUrl).origin}/v1`;
  if (usual === baseUrl) return null;
  const reply = await get(`${usual}/models`);
  return reply.ok && !isWebPage(reply) && reply.status !== 404 ? usual : null;
}

function isWebPage({ headers }: Response): boolean {
  return /^\s*text\/html/i.test(headers["content-type"] ?? "");
}

/** More than any gateway has, so that a hostile list cannot fill the screen and the memory. */
const MAX_MODELS = 5000;
const MAX_NAME = 200;

/**
 * The names in a list of models; null: it is no list. Gateways differ in its shape: OpenAI and the messages style
 * wrap it as `data`, Gemini as `models` with a path before the name, and some gateways answer with a bare list.
 */
function modelsIn(text: string, key: Secret): readonly string[] | null {
  const list = listIn(text);
  if (list === null) return null;
  const names = list.map(modelName).filter((name) => name !== null);
  return [...new Set(names.map((name) => key.redactFrom(name)))].slice(0, MAX_MODELS);
}

function listIn(text: string): readonly unknown[] | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (Array.isArray(value)) return value;
  // Go writes an empty list as null.
  if (fieldAt(value, "data") === null && fieldAt(value, "object") !== undefined) return [];
  return listAt(value, "data") ?? listAt(value, "models");
}

function modelName(entry: unknown): string | null {
  const found = typeof entry === "string" ? entry : (textAt(entry, "id") ?? textAt(entry, "name"));
  if (found === null || found === "" || found.length > MAX_NAME) return null;
  return found.replace(/^models\//, "");
}

interface Response {
  readonly ok: true;
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly skew: number | null;
}

type Reply = Response | { readonly ok: false; readonly error: NodeJS.ErrnoException };

/** One GET with the key. A redirect is a response like any other, so the key goes nowhere else. Never rejects. */
async function askGateway(
  deps: ProbeDeps,
  gateway: Gateway,
  key: Secret,
  url: string,
  signal: AbortSignal,
): Promise<Reply> {
  const { origin, host } = new URL(url);
  const headers = requestHeaders({
    method: "GET",
    rawHeaders: ["accept", "application/json", "accept-encoding", "identity", "user-agent", "keybearer"],
    host,
    key,
    keyHeader: keyHeaderFor("openai", gateway, {}),
    readable: null,
    bodyLength: null,
  });
  const options = { agent: deps.agentFor(gateway, origin), headers, signal };
  const first = await send(url, options, deps.clock);
  // A kept connection may have been closed by the gateway; that says nothing about the gateway, so try again.
  return first.ok || !first.isStale ? first : send(url, options, deps.clock);
}

interface SendOptions {
  readonly agent: Agent;
  /** Name, value, name, value. */
  readonly headers: readonly string[];
  readonly signal: AbortSignal;
}

async function send(
  url: string,
  options: SendOptions,
  clock: Clock,
): Promise<Response | { ok: false; error: NodeJS.ErrnoException; isStale: boolean }> {
  const began = clock.now();
  const outgoing = (url.startsWith("https:") ? httpsRequest : httpRequest)(url, options);
  // Once the response has begun, its own error is the one that counts. Without a listener this one would end the process.
  outgoing.on("error", () => {});
  outgoing.end();
  try {
    const [incoming] = (await once(outgoing, "response")) as [IncomingMessage];
    const text = await readWhole(incoming, MAX_BYTES);
    if (text === null) throw new Error("it answered with more than 4 MB");
    const skew = measureSkew(incoming, began, clock.now());
    return { ok: true, status: incoming.statusCode ?? 0, headers: incoming.headers, text, skew };
  } catch (thrown) {
    outgoing.destroy();
    const error = thrown as NodeJS.ErrnoException;
    return { ok: false, error, isStale: outgoing.reusedSocket && error.code === "ECONNRESET" };
  }
}

/** The longest real list of models has a few hundred kilobytes. */
const MAX_BYTES = 4 * 1024 * 1024;
