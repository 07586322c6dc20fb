import { findTraces, type TraceReport } from "../../adopt/traces.ts";
import { DESCRIPTIONS } from "../../clients/settings-files.ts";
import { advice } from "../../core/advice.ts";
import { systemClock } from "../../core/clock.ts";
import { EXIT } from "../../core/errors.ts";
import { surroundings } from "../surroundings.ts";
import { fail, printJson, printLayout } from "../ui/messages.ts";
import { commandPaths, setExitCode } from "../ui/stdio.ts";
import { stdoutScreen } from "../ui/terminal.ts";
import { moveKeys } from "./move.ts";
import { formatReport, reportJson } from "./print.ts";
import { type AdoptOptions, holdsKeys, type Search, searchKeys } from "./search.ts";
import { undoAdoption } from "./undo.ts";

/** `keybearer adopt` */
export async function adopt(folders: readonly string[], options: AdoptOptions): Promise<void> {
  const problem = findProblem(folders, options);
  if (problem !== null) return fail(problem, EXIT.usage);
  const paths = commandPaths(options.config);
  const where = surroundings(folders);
  if (options.undo !== undefined) return undoAdoption(paths, where, options);
  const search = await searchKeys(paths, where, options.only ?? null);
  if (options.write) return moveKeys(paths, search, options);
  const traces = await tracesOf(search);
  const report = { ...search, traces, home: where.home };
  if (options.json) printJson(reportJson(report));
  else printLayout(formatReport(report, stdoutScreen().width));
  if (holdsKeys(search)) setExitCode(EXIT.failed);
}

function findProblem(folders: readonly string[], options: AdoptOptions): string | null {
  const { write, undo, only, store, rotate, json, force } = options;
  if (undo !== undefined && (folders.length > 0 || only !== undefined || json))
    return "--undo goes with a client, --yes and --force";
  if (typeof undo === "string" && !isClient(undo)) return noSuchClient(undo);
  if (force && undo === undefined) return "--force goes with --undo";
  if (!write && (store !== undefined || rotate !== undefined))
    return `--store and --rotate go with ${advice.adoptWrite()}`;
  if (write && json) return "--json goes without --write";
  return only === undefined || isClient(only) ? null : noSuchClient(only);
}

function isClient(id: string): boolean {
  return DESCRIPTIONS.some(({ client }) => client === id);
}

function noSuchClient(id: string): string {
  return `there is no client ${id}. all of them: ${DESCRIPTIONS.map(({ client }) => client).join(", ")}`;
}

function tracesOf({ found, where }: Search): Promise<TraceReport> {
  const places = [...found.keys, ...found.shaped];
  const files = [...new Set(places.map(({ file }) => file.path))];
  const keys = [...places, ...found.environment].map(({ key }) => key);
  return findTraces(keys, { ...where, files, clock: systemClock });
}
