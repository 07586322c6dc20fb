import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { type Failed, failed } from "../../core/display.ts";
import { machineName } from "../../core/machine-name.ts";
import type { Paths } from "../../core/paths.ts";
import { type Period, parseSince, parseUntil } from "../../usage/reports/calendar.ts";
import { joinNames } from "../ui/units.ts";
import type { IndexDatabase } from "./index-file.ts";

/* Which records `usage` and `usage export` select: --since, --until, --tool, --model, --machine. */

export interface FilterOptions {
  readonly since?: string;
  readonly until?: string;
  readonly tool?: readonly string[];
  readonly model?: readonly string[];
  readonly machine?: readonly string[];
}

type ParsedPeriod = { readonly ok: true; readonly period: Period } | Failed;

/** `defaultSince` counts if neither end is named; null: the first record. */
export function parsePeriod(
  { since, until }: FilterOptions,
  now: number,
  defaultSince: number | null,
): ParsedPeriod {
  const isAll = since?.trim().toLowerCase() === "all";
  const begin = since === undefined || isAll ? null : parseSince(since, now);
  const end = until === undefined ? null : parseUntil(until, now);
  if (begin?.ok === false) return begin;
  if (end?.ok === false) return end;
  const period = {
    since: begin?.at ?? (isAll || end !== null ? null : defaultSince),
    until: end?.at ?? null,
  };
  if (period.since !== null && period.until !== null && period.since >= period.until)
    return failed("--since is not before --until, so there is nothing between them");
  return { ok: true, period };
}

/**
 * A message about the first --tool that fits no tool, or null. A tool that only the usage log knows is a tool, too.
 * db: null if there is no usage log yet.
 */
export async function unknownTool(
  patterns: readonly string[],
  db: IndexDatabase | null,
  paths: Paths,
): Promise<string | null> {
  const names = new Set(db === null ? [] : usedTools(db));
  if (patterns.every((pattern) => matchesAny(pattern, names))) return null;
  const configured = await configuredTools(paths);
  if (configured === null) return null;
  for (const name of configured) names.add(name);
  const unknown = patterns.find((pattern) => !matchesAny(pattern, names));
  if (unknown === undefined) return null;
  const known = names.size === 0 ? "" : `; the tools are ${joinNames([...names].toSorted(), 10)}`;
  return `there is no tool ${unknown}${known}`;
}

/** What this machine is called in a filter if it shares no store, and so has no name. */
const UNNAMED = "this machine";

/** What this machine is called by those that share its store; null: it shares none. */
export async function thisMachine(paths: Paths): Promise<string | null> {
  const { loadConfig } = await import("../../config/load.ts");
  const { config } = await loadConfig(paths.config, { home: paths.home, strict: false });
  const shared = config?.shared ?? null;
  return shared === null ? null : machineName(shared.machine);
}

/** A message about the first --machine that fits no machine, or null. db: null if there is no usage log yet. */
export function unknownMachine(
  patterns: readonly string[],
  db: IndexDatabase | null,
  own: string | null,
): string | null {
  const names = new Set([own ?? UNNAMED, ...(db === null ? [] : otherMachines(db))]);
  const unknown = patterns.find((pattern) => !matchesAny(pattern, names));
  if (unknown === undefined) return null;
  return `there is no machine ${unknown}; the machines are ${joinNames([...names].toSorted(), 10)}`;
}

/** The values of --machine for a Filter, in which this machine has no name. */
export function selectedMachines(patterns: readonly string[], own: string | null): readonly string[] {
  const names = new Set([own ?? UNNAMED]);
  return patterns.some((pattern) => matchesAny(pattern, names)) ? [...patterns, ""] : patterns;
}

function otherMachines(db: IndexDatabase): string[] {
  const rows = db.prepare("SELECT DISTINCT machine FROM rollups WHERE machine <> ''").raw().all();
  return (rows as [string][]).map(([machine]) => machine);
}

function usedTools(db: IndexDatabase): string[] {
  const rows = db.prepare("SELECT DISTINCT tool FROM rollups WHERE tool <> ''").raw().all() as [string][];
  return rows.map(([tool]) => tool);
}

function matchesAny(pattern: string, names: ReadonlySet<string>): boolean {
  if (!pattern.includes("*")) return names.has(pattern);
  const parts = pattern.split("*").map((part) => part.replace(/[\\^$.|?+()[\]{}]/g, "\\$&"));
  const expression = new RegExp(`^${parts.join(".*")}$`, "s");
  return [...names].some((name) => expression.test(name));
}

/** null: config.yaml cannot be used, so its tools are not known. */
async function configuredTools(paths: Paths): Promise<readonly string[] | null> {
  // A running daemon may have another config.yaml, or serve the sandbox.
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  if (asked.ok) return asked.value.tools.map(({ name }) => name);
  const { loadConfig } = await import("../../config/load.ts");
  const { found, config } = await loadConfig(paths.config, { home: paths.home, strict: false });
  if (!found) return [];
  return config === null ? null : Object.keys(config.tools);
}
