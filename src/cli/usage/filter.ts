import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import { type Failed, failed, shortenHome } from "../../core/display.ts";
import { machineName } from "../../core/machine-name.ts";
import type { Paths } from "../../core/paths.ts";
import { type Period, parseSince, parseUntil } from "../../usage/reports/calendar.ts";
import { type Filter, matchesPattern } from "../../usage/reports/records.ts";
import { idsBeginning, isShared } from "../../usage/reports/sessions.ts";
import { joinNames } from "../ui/units.ts";
import type { IndexDatabase } from "./index-file.ts";

/* Which records `usage` and `usage export` select: --since, --until, --tool, --model, --machine, --project, --session. */

export interface FilterOptions {
  readonly since?: string;
  readonly until?: string;
  readonly tool?: readonly string[];
  readonly model?: readonly string[];
  readonly machine?: readonly string[];
  readonly project?: readonly string[];
  readonly session?: readonly string[];
}

/** What the options name, as it was typed. */
export function filterOf(options: FilterOptions, period: Period): Filter {
  const { tool: tools = [], model: models = [], machine: machines = [] } = options;
  const { project: projects = [], session: sessions = [] } = options;
  return { period, tools, models, machines, projects, sessions };
}

type ResolvedFilter<F> =
  | { readonly ok: true; readonly filter: F }
  | { readonly ok: false; readonly problem: string };

/**
 * A filter with the names that the index has: ids of sessions are complete, and this machine's name is empty.
 * @param db null: there is no usage log yet
 * @param machine see thisMachine()
 */
export async function resolveFilter<F extends Filter>(
  filter: F,
  db: IndexDatabase | null,
  paths: Paths,
  machine: string | null,
): Promise<ResolvedFilter<F>> {
  const projects = filter.projects.map((pattern) => shortenHome(pattern, paths.home));
  const problem =
    unknownMachine(filter.machines, db, machine) ??
    (await unknownTool(filter.tools, db, paths)) ??
    unknownProject(projects, db);
  if (problem !== null) return { ok: false, problem };
  const sessions: string[] = [];
  for (const text of filter.sessions) {
    const found = findSession(text, db);
    if (!found.ok) return found;
    sessions.push(found.session);
  }
  return {
    ok: true,
    filter: { ...filter, machines: selectedMachines(filter.machines, machine), projects, sessions },
  };
}

const MAX_CANDIDATES = 10;

type FoundSession =
  | { readonly ok: true; readonly session: string }
  | { readonly ok: false; readonly problem: string };

/** A pattern, and the id of a session without one, stay as they are. */
function findSession(text: string, db: IndexDatabase | null): FoundSession {
  if (text.includes("*") || isShared(text)) return { ok: true, session: text };
  const ids: string[] = [];
  for (const id of db === null || text === "" ? [] : idsBeginning(db, text)) {
    ids.push(id);
    if (id === text || ids.length > MAX_CANDIDATES) break;
  }
  const [id, ...others] = ids;
  if (id === undefined) return { ok: false, problem: `there is no session ${text} → ${advice.sessions()}` };
  if (others.length === 0) return { ok: true, session: id };
  const more = ids.length > MAX_CANDIDATES ? ", and more" : "";
  const names = ids.slice(0, MAX_CANDIDATES).join(", ");
  return {
    ok: false,
    problem: `several sessions begin with ${text}: ${names}${more}. write more, or ${text}*`,
  };
}

/** A message about the first --project that fits no project, or null. db: null if there is no usage log yet. */
function unknownProject(patterns: readonly string[], db: IndexDatabase | null): string | null {
  if (patterns.length === 0) return null;
  const names = new Set(db === null ? [] : usedProjects(db));
  const unknown = patterns.find((pattern) => !matchesAny(pattern, names));
  if (unknown === undefined) return null;
  if (names.size === 0)
    return "the usage log has no projects yet; they are recorded from then on → usage: { project: path } in config.yaml";
  return `there is no project ${unknown}; the projects are ${joinNames([...names].toSorted(), 10)}`;
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
async function unknownTool(
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
  const { loadHere } = await import("../config-here.ts");
  const { config } = await loadHere(paths, { strict: false });
  const shared = config?.shared ?? null;
  return shared === null ? null : machineName(shared.machine);
}

/** A message about the first --machine that fits no machine, or null. db: null if there is no usage log yet. */
function unknownMachine(
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
function selectedMachines(patterns: readonly string[], own: string | null): readonly string[] {
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

function usedProjects(db: IndexDatabase): string[] {
  const rows = db.prepare("SELECT DISTINCT project FROM rollups WHERE project <> ''").raw().all();
  return (rows as [string][]).map(([project]) => project);
}

function matchesAny(pattern: string, names: ReadonlySet<string>): boolean {
  return [...names].some((name) => matchesPattern(pattern, name));
}

/** null: config.yaml cannot be used, so its tools are not known. */
async function configuredTools(paths: Paths): Promise<readonly string[] | null> {
  // A running daemon may have another config.yaml, or serve the sandbox.
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  if (asked.ok) return asked.value.tools.map(({ name }) => name);
  const { loadHere } = await import("../config-here.ts");
  const { found, config } = await loadHere(paths, { strict: false });
  if (!found) return [];
  return config === null ? null : Object.keys(config.tools);
}
