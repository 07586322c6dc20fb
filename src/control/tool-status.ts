import type { Config, Period, Tool } from "../config/shape.ts";
import type { KeyState } from "../core/key-source.ts";
import { type KeyKnowledge, keyTrouble, missingKey, toolProblems } from "../doctor/key-messages.ts";
import type { Kind } from "../limits/counters.ts";
import { durationInWords } from "../limits/format.ts";
import type { Limiter, ToolLevels } from "../limits/limiter.ts";
import type { Mirror } from "../mirror/mirror.ts";
import type { ToolConsoleFacts } from "../mirror/report/shape.ts";
import type { KeyHealth, KeyRefusal } from "../proxy/health.ts";
import type { KeyBreaker, KeyPause } from "../proxy/key-breaker.ts";

export type ToolState =
  | "active"
  | "no-token"
  | "disabled"
  | "expired"
  | "group-disabled"
  | "key-unavailable"
  | "needs-trust"
  | "key-refused"
  /** No daemon runs, so nobody has read the key. */
  | "not-running";

/** One tool, as `keybearer tools --json` prints it. */
export interface ToolStatus {
  readonly name: string;
  readonly state: ToolState;
  readonly gateway: string;
  readonly group: string | null;
  /** The key's fingerprint, or null when there is none. */
  readonly key: string | null;
  readonly tokens: number;
  readonly last_use: number | null;
  /** Why it is not simply active, in words; null when it is. */
  readonly why: string | null;
  /** What to type next; null when nothing is needed. */
  readonly next: string | null;
  /** How the gateway refuses this tool's key, since when and why. */
  readonly refused: KeyRefusal | null;
  /** Its requests are refused here, because the gateway keeps refusing its key; null: they are sent. */
  readonly paused: KeyPause | null;
  readonly limits: readonly LimitStatus[];
  /** Calls under way, and requests that wait for room. */
  readonly running: number;
  readonly waiting: number;
  /** The moment from which it is expired; null: permanent. */
  readonly expires: number | null;
  /** What the gateway's console says of its key; null: it was not asked, or does not tell. */
  readonly console: ToolConsoleFacts | null;
}

/** How full a limit is, in requests, tokens, micro-dollars or calls at once. */
export interface LimitStatus {
  readonly limit: Kind | "concurrent" | "quota";
  /** null: it is not counted by the clock. */
  readonly per: Period | null;
  /** Used for good. null: no daemon runs, so nobody has counted. */
  readonly used: number | null;
  /** Held for calls under way, which may give some of it back. null like used. */
  readonly held: number | null;
  /** What can be used in all, extra included. */
  readonly most: number;
  /** How much of it is an extra allowance, by `keybearer tools lift`. */
  readonly extra: number;
  /** When it is empty again; null: no moment brings that. */
  readonly resets_at: number | null;
}

export interface ToolDeps {
  readonly keyHealth: Pick<KeyHealth, "of" | "lastUse">;
  readonly keyBreaker: Pick<KeyBreaker, "of">;
  readonly limiter: Pick<Limiter, "levels">;
  readonly mirror: Pick<Mirror, "factsOf">;
  readonly config: Pick<Config, "gateways">;
  readonly now: number;
}

export function toolStatus(tool: Tool, key: KeyState, deps: ToolDeps): ToolStatus {
  const { keyHealth, keyBreaker, limiter } = deps;
  const refused = keyHealth.of(tool.name);
  // What was refused was another key; this one has not been tried.
  const currentRefusal = key.state === "ready" && refused?.key === key.key.fingerprint ? refused : null;
  const paused = key.state === "ready" ? keyBreaker.of(tool.name, key.key) : null;
  const standing = limiter.levels(tool);
  const known = {
    name: tool.name,
    refused: currentRefusal,
    last_use: keyHealth.lastUse(tool.name),
    console: deps.mirror.factsOf(tool),
  };
  return {
    ...known,
    ...stateInWords(tool, key, known, paused, deps),
    gateway: tool.gateway,
    group: tool.group,
    key: key.state === "ready" ? key.key.fingerprint : null,
    tokens: tool.tokens.length,
    paused,
    limits: limitStatuses(tool, standing),
    running: standing.inFlight,
    waiting: standing.waiting,
    expires: tool.expires,
  };
}

/** Every limit of a tool with how full it is, in the order in which config.yaml explains them. */
export function limitStatuses(tool: Tool, { levels, inFlight }: ToolLevels): LimitStatus[] {
  const rates: LimitStatus[] = [];
  const quota: LimitStatus[] = [];
  for (const { limit, used, held, max, extra, resetsAt } of levels) {
    const amounts = { used, held, most: max, extra, resets_at: resetsAt };
    if (limit.kind === "quota") quota.push({ limit: "quota", per: null, ...amounts });
    else if ("per" in limit) rates.push({ limit: limit.kind, per: limit.per, ...amounts });
  }
  return [...rates, ...concurrentStatus(tool, inFlight), ...quota];
}

function concurrentStatus({ limits }: Tool, running: number | null): LimitStatus[] {
  const { concurrent: most } = limits;
  if (most === null) return [];
  const held = running === null ? null : 0;
  return [{ limit: "concurrent", per: null, used: running, held, most, extra: 0, resets_at: null }];
}

/** The same from the file alone: whether the key can be had is not known, and no command is run to find out. */
export function toolStatusOffline(tool: Tool, config: Config, now: number): ToolStatus {
  const nothing: ToolDeps = {
    keyHealth: { of: () => null, lastUse: () => null },
    keyBreaker: { of: () => null },
    limiter: { levels: () => ({ levels: [], inFlight: 0, waiting: 0 }) },
    mirror: { factsOf: () => null },
    config,
    now,
  };
  const unread: KeyState = { state: "unavailable", reason: "not read" };
  const status = { ...toolStatus(tool, unread, nothing), limits: limitsOffline(tool) };
  if (status.state !== "key-unavailable") return status;
  const [problem] = toolProblems(tool, config, now);
  if (problem !== undefined) return { ...status, state: problem.code, why: problem.what, next: problem.next };
  return { ...status, state: "not-running", why: null, next: null };
}

function limitsOffline(tool: Tool): LimitStatus[] {
  const unknown = { used: null, held: null, extra: 0, resets_at: null };
  const rates = (["requests", "tokens", "spend"] as const).flatMap((limit) =>
    tool.limits[limit].map(({ most, per }) => ({ limit, per, most, ...unknown })),
  );
  const quota =
    tool.quota === null ? [] : [{ limit: "quota" as const, per: null, most: tool.quota, ...unknown }];
  return [...rates, ...concurrentStatus(tool, null), ...quota];
}

function stateInWords(
  tool: Tool,
  key: KeyState,
  known: KeyKnowledge,
  paused: KeyPause | null,
  { config, now }: ToolDeps,
): Pick<ToolStatus, "state" | "why" | "next"> {
  const problems = toolProblems(tool, config, now);
  const first = problems.find(({ code }) => code !== "no-token");
  if (first !== undefined) return { state: first.code, why: first.what, next: first.next };
  const missing = missingKey(tool, key);
  if (missing !== null) {
    const state = missing.state === "needs-trust" ? "needs-trust" : "key-unavailable";
    return { state, why: missing.why, next: missing.next };
  }
  const trouble = keyTrouble(known, now);
  if (known.refused !== null && trouble !== null) {
    const why = paused === null ? trouble.what : `${pauseInWords(paused, now)}: ${trouble.what}`;
    return { state: "key-refused", why, next: trouble.next };
  }
  const [last] = problems;
  if (last !== undefined) return { state: last.code, why: last.what, next: last.next };
  // It may still work: the console's word is some minutes old, and a subscription may pay.
  return { state: "active", why: trouble?.what ?? null, next: trouble?.next ?? null };
}

function pauseInWords({ until, refused, probing }: KeyPause, now: number): string {
  const wait =
    probing || until <= now ? "until the next one is answered" : `for ${durationInWords(until - now)}`;
  return `requests are refused here ${wait}, ${refused} so far`;
}
