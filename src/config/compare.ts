import { isDeepStrictEqual } from "node:util";
import {
  type Config,
  isSameSource,
  type Limits,
  type Rate,
  type SessionLimits,
  type Tool,
} from "./schema.ts";
import { secretSources } from "./snapshot.ts";

/** What a change does to what tools and keys may do. */
export type Change = "narrows" | "keeps" | "widens";

/**
 * Compares two configurations. Whatever is not known to narrow widens: a new tool, another gateway, a removed limit. A tool
 * or a token that is removed narrows.
 */
export function compareConfigs(before: Config, after: Config): Change {
  const { tools: oldTools, ...oldRest } = before;
  const { tools: newTools, ...newRest } = after;
  if (!isDeepStrictEqual(oldRest, newRest) || !haveSameSecrets(oldRest, newRest)) return "widens";
  const changes = Object.values(newTools).map((tool) => compareTools(oldTools[tool.name], tool));
  if (changes.includes("widens")) return "widens";
  const isRemoved = Object.keys(oldTools).some((name) => newTools[name] === undefined);
  return isRemoved || changes.includes("narrows") ? "narrows" : "keeps";
}

/** isDeepStrictEqual() compares only what is shown of a secret: its last characters. */
function haveSameSecrets(before: Omit<Config, "tools">, after: Omit<Config, "tools">): boolean {
  const tools = Object.freeze(Object.create(null));
  const old = secretSources({ ...before, tools });
  const sources = secretSources({ ...after, tools });
  return sources.every((source, index) => {
    const known = old[index];
    return known !== undefined && isSameSource(source, known);
  });
}

function compareTools(before: Tool | undefined, after: Tool): Change {
  if (before === undefined) return "widens";
  if (!isDeepStrictEqual(othersOf(before), othersOf(after)) || !isSameSource(before.key, after.key))
    return "widens";
  const narrowed =
    isWithin(after.quota, before.quota) &&
    isWithin(after.expires, before.expires) &&
    (before.enabled || !after.enabled) &&
    areWithin(after.limits, before.limits) &&
    holdsAsMuch("tokens", after, before) &&
    holdsAsMuch("spend", after, before) &&
    areTokensWithin(after, before);
  if (!narrowed) return "widens";
  return isDeepStrictEqual(before, after) ? "keeps" : "narrows";
}

/** The settings whose change is never known to narrow. */
function othersOf({ limits, quota, expires, enabled, tokens, ...others }: Tool) {
  return others;
}

/** null is unlimited. */
function isWithin(value: number | null, most: number | null): boolean {
  return most === null || (value !== null && value <= most);
}

function areWithin(limits: Limits, most: Limits): boolean {
  return (
    ratesWithin(limits.requests, most.requests) &&
    ratesWithin(limits.tokens, most.tokens) &&
    ratesWithin(limits.spend, most.spend) &&
    isWithin(limits.concurrent, most.concurrent) &&
    // A request that waits is sent later than one that is refused, but it is sent.
    limits.wait <= most.wait &&
    sessionsWithin(limits.session, most.session)
  );
}

/** Further limits only narrow. One of another period does not stand for one that is gone. */
function ratesWithin(rates: readonly Rate[], most: readonly Rate[]): boolean {
  return most.every((old) => rates.some(({ per, max }) => per === old.per && max <= old.max));
}

/**
 * A request holds no more than the smallest limit of a kind, also of the limits beside it. With a small one per second, a new
 * request is let in each second while the others still hold almost nothing, and together they exceed those limits.
 */
function holdsAsMuch(kind: "tokens" | "spend", { limits }: Tool, before: Tool): boolean {
  const beside = [
    before.limits.session?.[kind] ?? null,
    kind === "spend" ? before.quota : null,
    ...before.limits[kind].map(({ per, max }) => (per === "second" ? null : max)),
  ].filter((max) => max !== null);
  if (beside.length === 0) return true;
  const smallest = Math.min(...beside, ...before.limits[kind].map(({ max }) => max));
  return limits[kind].every(({ per, max }) => per !== "second" || max >= smallest);
}

function sessionsWithin(limits: SessionLimits | null, most: SessionLimits | null): boolean {
  if (most === null) return true;
  return (
    limits !== null &&
    isWithin(limits.requests, most.requests) &&
    isWithin(limits.tokens, most.tokens) &&
    isWithin(limits.spend, most.spend)
  );
}

function areTokensWithin({ tokens, process }: Tool, most: Tool): boolean {
  // The program of a tool needs one of its tokens. Without any token it needs none.
  if (process !== null && tokens.length === 0) return most.tokens.length === 0;
  return tokens.every(({ hash }) => most.tokens.some((token) => token.hash === hash));
}
