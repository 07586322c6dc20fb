import { isDeepStrictEqual } from "node:util";
import type { Config, Limits, Rate, SessionLimits, Token, Tool } from "./schema.ts";

/** What a change does to what tools and keys may do. */
export type Change = "narrows" | "keeps" | "widens";

/**
 * Compares two configurations. Whatever is not known to narrow widens: a new tool, another gateway, a removed limit. A tool
 * or a token that is removed narrows.
 */
export function compareConfigs(before: Config, after: Config): Change {
  const { tools: oldTools, ...oldRest } = before;
  const { tools: newTools, ...newRest } = after;
  if (!isDeepStrictEqual(oldRest, newRest)) return "widens";
  const changes = Object.values(newTools).map((tool) => compareTools(oldTools[tool.name], tool));
  if (changes.includes("widens")) return "widens";
  const isRemoved = Object.keys(oldTools).some((name) => newTools[name] === undefined);
  return isRemoved || changes.includes("narrows") ? "narrows" : "keeps";
}

function compareTools(before: Tool | undefined, after: Tool): Change {
  if (before === undefined) return "widens";
  const { limits: oldLimits, quota: oldQuota, expires: oldExpires, enabled: oldEnabled, ...oldRest } = before;
  const { limits, quota, expires, enabled, ...rest } = after;
  const { tokens: oldTokens, ...oldOthers } = oldRest;
  const { tokens, ...others } = rest;
  if (!isDeepStrictEqual(oldOthers, others)) return "widens";
  const narrowed =
    isWithin(quota, oldQuota) &&
    isWithin(expires, oldExpires) &&
    (oldEnabled || !enabled) &&
    areWithin(limits, oldLimits) &&
    areAmong(tokens, oldTokens);
  if (!narrowed) return "widens";
  return isDeepStrictEqual(before, after) ? "keeps" : "narrows";
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

function sessionsWithin(limits: SessionLimits | null, most: SessionLimits | null): boolean {
  if (most === null) return true;
  return (
    limits !== null &&
    isWithin(limits.requests, most.requests) &&
    isWithin(limits.tokens, most.tokens) &&
    isWithin(limits.spend, most.spend)
  );
}

function areAmong(tokens: readonly Token[], known: readonly Token[]): boolean {
  return tokens.every(({ hash }) => known.some((token) => token.hash === hash));
}
