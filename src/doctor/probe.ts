import type { Agent } from "node:http";
import type { Gateway } from "../config/shape.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { keyFault, type Secret } from "../core/secret.ts";
import { type CauseDetail, causeOf } from "../proxy/cause.ts";
import { keyHeaderFor, requestHeaders } from "../proxy/headers.ts";
import type { KeyCheck } from "./key-check.ts";
import { type KeyFacts, sub2apiFacts } from "./key-facts.ts";
import { modelsIn } from "./model-list.ts";
import * as words from "./probe-words.ts";
import { type Answered, askGateway } from "./question.ts";

/** The four of SPEC.md section 7, and what is known more finely. */
export type ProbeCause =
  | "incomplete-key"
  | "group-unavailable"
  | "balance-or-quota"
  | "wrong-base-url"
  | "expired"
  | "disabled"
  | "deleted"
  | "html"
  | "rate-limit"
  | "dns"
  | "tls"
  | "timeout"
  | "unreachable"
  | "unknown";

/** The gateway's own, whichever key asks: met once, and told once. */
export const GATEWAY_CAUSES: readonly ProbeCause[] = [
  "dns",
  "tls",
  "timeout",
  "unreachable",
  "html",
  "wrong-base-url",
];

export interface ProbeDeps {
  readonly gateway: Gateway;
  readonly key: Secret;
  readonly agentFor: (gateway: Gateway, origin: string) => Agent;
  readonly keyCheck: KeyCheck;
  /** Ends it early. */
  readonly signal?: AbortSignal | undefined;
  /** This very key was accepted before: a gateway that does not know it now has deleted it. Default not known. */
  readonly worked?: boolean | undefined;
  readonly clock?: Clock | undefined;
  /** Milliseconds for everything together. Default 10 s. */
  readonly patience?: number | undefined;
}

export interface ProbeFailure {
  readonly ok: false;
  readonly cause: ProbeCause;
  /** More than the cause says; null: unknown. */
  readonly detail: CauseDetail | null;
  readonly status: number | null;
  /** What happened, a sentence without its full stop. */
  readonly why: string;
  /** What to do about it. */
  readonly next: string;
  readonly skew: number | null;
}

export type Probed =
  | {
      readonly ok: true;
      readonly status: number;
      /** The names in the gateway's list, as it writes them. */
      readonly models: readonly string[];
      /** How far the gateway's clock is ahead of ours, in milliseconds; null: it tells no time. */
      readonly skew: number | null;
    }
  | ProbeFailure;

const PATIENCE_MS = 10_000;

type Heard = Extract<Answered, { ok: true }>;
type Ask = (url: string) => Promise<Answered>;

/** Asks the gateway for its models with this key, which costs nothing, and explains a failure. Never throws. */
export async function probeKey(deps: ProbeDeps): Promise<Probed> {
  const { gateway, key, clock = systemClock, patience = PATIENCE_MS } = deps;
  const fault = keyFault(key.reveal());
  if (fault !== null) return { ...words.faulty(fault), status: null, skew: null };
  const late = AbortSignal.timeout(patience);
  const signal = deps.signal === undefined ? late : AbortSignal.any([deps.signal, late]);
  const ask: Ask = (url) => {
    const { origin, host } = new URL(url);
    const rawHeaders = [
      "accept",
      "application/json",
      "accept-encoding",
      "identity",
      "user-agent",
      "keybearer",
    ];
    const headers = requestHeaders({
      method: "GET",
      rawHeaders,
      host,
      key,
      keyHeader: keyHeaderFor("openai", gateway, {}),
      readable: null,
      bodyLength: null,
    });
    return askGateway({ url, headers, agent: deps.agentFor(gateway, origin), clock, signal });
  };
  const answer = await ask(`${gateway.baseUrl}/models`);
  if (!answer.ok) {
    const failed = signal.aborted
      ? words.tooSlow(gateway, patience)
      : words.outOfReach(gateway, answer.error);
    return { ...failed, status: null, skew: null };
  }
  const { status, skew } = answer;
  const failed = await judged(answer, deps, ask, clock);
  if (failed === null) return { ok: true, status, models: modelsIn(key.redactFrom(answer.text)) ?? [], skew };
  const isAddress = failed.cause === "html" || failed.cause === "wrong-base-url";
  const better = isAddress ? await rightAddress(gateway, ask) : null;
  return { ...failed, ...(better === null ? {} : { next: better }), status, skew };
}

/** null: it is a list of models, and nothing is known to be wrong with the key. */
async function judged(answer: Heard, deps: ProbeDeps, ask: Ask, clock: Clock): Promise<words.Failed | null> {
  const { gateway, key, keyCheck, worked = false } = deps;
  const { status, headers, text } = answer;
  if (status >= 300 && status < 400) return words.redirected(gateway, status);
  const contentType = headers["content-type"] ?? "";
  const kind = gateway.console?.kind ?? kindOf(answer);
  const isNewApi = headers["x-new-api-version"] !== undefined;
  const cause = causeOf({ status, contentType, body: text, isNewApi });
  if (cause === null) {
    if (modelsIn(text) === null) return words.noList(gateway, status);
    const facts = kind === "sub2api" ? await sub2apiUsage(gateway, ask) : null;
    return facts?.state === "faulty" ? words.faultyKey(facts, null, clock.now()) : null;
  }
  if (/^\s*text\/html/i.test(contentType)) return words.webPage(gateway, status);
  const said = { status, words: words.saidBy(key.redactFrom(text)) };
  const refused = words.refused({ cause, said, gateway, worked, cut: looksCut(key.reveal()) });
  if (!cause.isAmbiguous || kind !== "new-api") return refused;
  const fault = await keyCheck.check(gateway, key);
  if (fault !== null) return words.faultyKey({ fault, window: null }, said, clock.now());
  const wait = keyCheck.wait(gateway);
  if (wait === 0) return refused;
  return { ...refused, why: `${refused.why}. ${words.notChecked(clock.now() + wait, clock.now())}` };
}

function kindOf({ headers }: Heard): "sub2api" | "new-api" | null {
  if (headers["x-new-api-version"] !== undefined) return "new-api";
  return headers["x-client-request-id"] === undefined ? null : "sub2api";
}

async function sub2apiUsage({ baseUrl }: Gateway, ask: Ask): Promise<KeyFacts | null> {
  const answer = await ask(`${baseUrl}/usage`);
  return answer.ok && answer.status === 200 ? sub2apiFacts(answer.text) : null;
}

/**
 * sub2api makes keys of 64 hexadecimal characters behind sk-, new-api and one-api of 48 letters and digits. One that is
 * made of the same and shorter has lost its end. What else operators make keys of nobody knows.
 */
function looksCut(key: string): boolean {
  const [, body] = /^sk-([A-Za-z0-9]+)$/.exec(key) ?? [];
  if (body === undefined) return false;
  return body.length < 48 || (/^[0-9a-f]+$/.test(body) && body.length > 48 && body.length < 64);
}

/** Nothing of a gateway's is there: does it answer where gateways mostly do? The key stays with its origin. */
async function rightAddress({ baseUrl }: Gateway, ask: Ask): Promise<string | null> {
  const usual = `${new URL(baseUrl).origin}/v1`;
  if (usual === baseUrl) return null;
  const tried = await ask(`${usual}/models`);
  const there =
    tried.ok && !/^\s*text\/html/i.test(tried.headers["content-type"] ?? "") && tried.status !== 404;
  return there ? words.rather(usual) : null;
}
