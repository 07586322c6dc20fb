import type { Config, Period, Tool } from "../config/schema.ts";
import type { KeyState } from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import type { Problem } from "../core/display.ts";
import { MINUTE_MS } from "../core/units.ts";
import { toolProblems } from "../doctor/tool-problems.ts";
import { type Level, type LimitKind, takenInAll } from "../limits/counters.ts";
import { isUsedUp, limitName, momentInWords, statusFigures } from "../limits/format.ts";
import type { Limiter, ToolLevels } from "../limits/limiter.ts";
import { systemCalendar } from "../limits/windows.ts";
import type { Mirror } from "../mirror/mirror.ts";
import type { ToolConsoleFacts } from "../mirror/report/shape.ts";
import type { CauseDetail, CauseName } from "../proxy/key-health/cause.ts";
import type { KeyHealth } from "../proxy/key-health/key-health.ts";
import type { KeyPause, KeyRefusal, KeySummary } from "../proxy/key-health/key-problem.ts";
import type { OtherModelStatus, OtherModels } from "../proxy/other-models.ts";
import type { MachinePart } from "../shared/limits.ts";
import type { Shared } from "../shared/shared.ts";
import type { Journal } from "../usage/journal/journal.ts";

type ToolState =
  | "active"
  | "no-token"
  | "disabled"
  | "expired"
  | "group-disabled"
  | "key-unavailable"
  | "needs-trust"
  | "key-refused"
  /** A limit or the quota is used up. */
  | "at-limit"
  /** No daemon runs, so the key was not read. */
  | "not-running";

/** One tool, as `keybearer tools --json` prints it. */
export interface ToolStatus {
  readonly name: string;
  readonly state: ToolState;
  readonly gateway: string;
  readonly group: string | null;
  /** Its client cannot go through keybearer: console rows only. */
  readonly watch_only: boolean;
  /** The key's fingerprint, or null when there is none. */
  readonly key: string | null;
  readonly tokens: number;
  /** When it last sent a request, also one that was refused here; null: unknown. */
  readonly last_use: number | null;
  /** Why it does not work, or soon may not; null: nothing is known to be wrong. */
  readonly why: string | null;
  /** What to type next; null: nothing is needed. */
  readonly next: string | null;
  /** How the gateway refuses this tool's current key. */
  readonly refused: RefusedKey | null;
  /** Requests are refused here because the gateway keeps refusing the key; null: they are sent. */
  readonly paused: KeyPause | null;
  readonly limits: readonly LimitStatus[];
  /** Calls in flight, those that wait for their gateway included. */
  readonly running: number;
  /** Requests that wait for capacity. */
  readonly waiting: number;
  /** When it expires; null: never. */
  readonly expires: number | null;
  /** What the gateway's console says about the key; null: unknown. */
  readonly console: ToolConsoleFacts | null;
  /**
   * How often another model answered than the one asked for, since the start; null: no answer has named one. A daemon from
   * before an update says nothing about it.
   */
  readonly models_answered?: OtherModelStatus | null;
}

/** How the gateway refuses a key. Times are in milliseconds UTC. */
interface RefusedKey {
  readonly cause: CauseName;
  readonly detail: CauseDetail | null;
  readonly status: number | null;
  readonly since: number;
  readonly at: number;
  readonly times: number;
  readonly next: string;
  readonly words: string | null;
  readonly key: string;
}

/** How full a limit is, in requests, tokens, micro-dollars or calls at once. */
export interface LimitStatus {
  readonly limit: LimitKind;
  /** null: it has no period. */
  readonly per: Period | null;
  /** null: unknown, because no daemon runs. */
  readonly used: number | null;
  /** How much of `used` neither the gateway nor its console reported. null: unknown, because no daemon runs. */
  readonly estimated: number | null;
  /** Reserved for calls in flight, which may return a part. null: unknown, because no daemon runs. */
  readonly held: number | null;
  /** The total that can be used, `extra` included. */
  readonly most: number;
  /** How much of it is an extra allowance, by `keybearer tools lift`. */
  readonly extra: number;
  /** The extra allowance with which the last refused request is admitted; null: unknown, or it cannot be lifted. */
  readonly lift?: number | null;
  /** When its window ends; null: it has none. */
  readonly resets_at: number | null;
  /** What each machine used of it, and what it was granted; this machine first. Empty: the limit is not shared. */
  readonly machines: readonly MachinePart[];
}

export interface ToolStatusDeps {
  readonly keyHealth: Pick<KeyHealth, "report">;
  readonly journal: Pick<Journal, "lastUse">;
  readonly limiter: Pick<Limiter, "levels">;
  readonly shared: Pick<Shared, "listParts">;
  readonly mirror: Pick<Mirror, "factsOf" | "canChangeKeys">;
  readonly otherModels: Pick<OtherModels, "status">;
  readonly config: Pick<Config, "gateways">;
  readonly now: number;
}

export function toolStatus(tool: Tool, key: KeyState, deps: ToolStatusDeps): ToolStatus {
  const { keyHealth, journal, limiter, shared, mirror, otherModels } = deps;
  const { name } = tool;
  const levels = limiter.levels(tool);
  const limits = limitStatuses(levels, (level) => shared.listParts(name, level));
  const console = mirror.factsOf(tool);
  const canRotate = mirror.canChangeKeys(tool.gateway);
  const report = keyHealth.report(tool, key, { facts: console, canRotate });
  const fingerprint = key.state === "ready" ? key.key.fingerprint : null;
  return {
    name,
    ...findState(tool, report, limits, deps),
    refused: report.refusal === null ? null : refusedKey(report.refusal, fingerprint ?? ""),
    console,
    last_use: journal.lastUse(name),
    gateway: tool.gateway,
    group: tool.group,
    watch_only: tool.watchOnly,
    key: fingerprint,
    tokens: tool.tokens.length,
    paused: report.pause,
    limits,
    running: levels.inFlight,
    waiting: levels.waiting,
    expires: tool.expires,
    models_answered: otherModels.status(name),
  };
}

function refusedKey({ cause, message, ...refusal }: KeyRefusal, key: string): RefusedKey {
  return {
    cause: cause.name,
    detail: cause.detail,
    next: cause.next,
    words: message,
    key,
    ...refusal,
  };
}

/** What the file alone says. The key is not read, since that might run a command. */
export function toolStatusOffline(tool: Tool, config: Config, now: number): ToolStatus {
  const [problem] = toolProblems(tool, config, now);
  return {
    name: tool.name,
    state: problem?.code ?? "not-running",
    why: problem?.problem ?? null,
    next: problem?.next ?? null,
    gateway: tool.gateway,
    group: tool.group,
    watch_only: tool.watchOnly,
    key: null,
    tokens: tool.tokens.length,
    last_use: null,
    refused: null,
    paused: null,
    limits: limitStatusesOffline(tool),
    running: 0,
    waiting: 0,
    expires: tool.expires,
    console: null,
    models_answered: null,
  };
}

/** In the order in which the tool's requests would meet it. */
function findState(
  tool: Tool,
  key: KeySummary,
  limits: readonly LimitStatus[],
  { config, now }: Pick<ToolStatusDeps, "config" | "now">,
): Pick<ToolStatus, "state" | "why" | "next"> {
  const problems = toolProblems(tool, config, now);
  const first = problems.find(({ code }) => code !== "no-token");
  if (first !== undefined) return { state: first.code, why: first.problem, next: first.next };
  if (key.state !== "usable") return { state: STATE_BY_KEY[key.state], why: key.problem, next: key.next };
  const [noToken] = problems;
  if (noToken !== undefined) return { state: noToken.code, why: noToken.problem, next: noToken.next };
  const full = usedUpLimit({ name: tool.name, limits }, now);
  if (full !== null) {
    const why = key.problem === null ? full.problem : `${full.problem}; ${key.problem}`;
    return { state: "at-limit", why, next: full.next ?? key.next };
  }
  // It may still work: the console's state is some minutes old, and a subscription may pay.
  return { state: "active", why: key.problem, next: key.next };
}

const STATE_BY_KEY = {
  unavailable: "key-unavailable",
  "needs-trust": "needs-trust",
  refused: "key-refused",
} as const;

/** next null: it has room again before a person has read this. */
interface UsedUpLimit extends Problem {
  /** It stays used up until the owner changes it. */
  readonly isFinal: boolean;
}

/** A shorter limit has room again before a person has read that it is used up. */
const WORTH_ADVICE_MS = 2 * MINUTE_MS;

/**
 * The used-up limit that has room again last; null: none is used up. Requests at once do not count: one that ends makes room.
 */
export function usedUpLimit(
  { name, limits }: Pick<ToolStatus, "name" | "limits">,
  now: number,
): UsedUpLimit | null {
  // $0/day is a limit too: its windows never have room.
  const endOf = ({ resets_at, most, extra }: LimitStatus) =>
    resets_at === null || most === extra ? Number.POSITIVE_INFINITY : resets_at;
  const [last] = limits
    .filter((limit) => limit.limit !== "concurrent" && isUsedUp(limit))
    .toSorted((a, b) => endOf(b) - endOf(a));
  if (last === undefined) return null;
  const end = endOf(last);
  const isFinal = end === Number.POSITIVE_INFINITY;
  const { used, max } = statusFigures(last);
  const resets = isFinal ? "" : `, resets ${momentInWords(end, now, systemCalendar)}`;
  const problem = `${limitName(last)} is used up: ${used} of ${max}${resets}`;
  if (last.limit === "quota") return { problem, next: `raise tools.${name}.quota`, isFinal };
  if (isFinal) return { problem, next: `raise tools.${name}.limits.${last.limit}`, isFinal };
  const next = end - now <= WORTH_ADVICE_MS ? null : advice.lift(name, last.limit);
  return { problem, next, isFinal };
}

/**
 * Every limit of a tool and how full it is, in the order of the configuration reference.
 * @param listParts what each machine has of a limit; see Shared.listParts().
 */
export function limitStatuses(
  { levels, neededAllowances }: ToolLevels,
  listParts: (level: Level) => readonly MachinePart[],
): LimitStatus[] {
  return levels.map((level) =>
    limitStatus(level, neededAllowances[level.limit.kind] ?? null, listParts(level)),
  );
}

function limitStatus(level: Level, needed: number | null, machines: readonly MachinePart[]): LimitStatus {
  const { limit, window, used, estimated, held, max, extra } = level;
  const taken = takenInAll(level);
  const [own] = machines;
  const unspent = own === undefined ? 0 : own.granted - used - held;
  return {
    limit: limit.kind,
    per: "per" in limit ? limit.per : null,
    used: taken.used,
    estimated,
    held: taken.held + unspent,
    most: max,
    extra,
    lift: needed,
    resets_at: window?.end ?? null,
    machines,
  };
}

function limitStatusesOffline({ limits, quota }: Tool): LimitStatus[] {
  const unknown = { used: null, estimated: null, held: null, extra: 0, resets_at: null, machines: [] };
  const rates = (["requests", "tokens", "spend"] as const).flatMap((limit) =>
    limits[limit].map(({ max, per }) => ({ limit, per, most: max, ...unknown })),
  );
  const rest: LimitStatus[] = [];
  if (limits.concurrent !== null)
    rest.push({ limit: "concurrent", per: null, most: limits.concurrent, ...unknown });
  if (quota !== null) rest.push({ limit: "quota", per: null, most: quota, ...unknown });
  return [...rates, ...rest];
}
