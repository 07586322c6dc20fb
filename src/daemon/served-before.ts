import { existsSync, readdirSync } from "node:fs";
import { SANDBOX } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import type { Paths } from "../core/paths.ts";
import { Trust } from "../keys/trust.ts";
import { hasChangesBeside } from "../lifecycle/intents.ts";
import { IndexError, queryIndex } from "../usage/index/database.ts";
import { hasRequestsBeside } from "../usage/journal/files.ts";

/** Not loaded yet. */
export function createTrust(paths: Paths, clock: Clock): Trust {
  return new Trust({ file: paths.trust, clock, ranBefore: () => servedBefore(paths) });
}

/**
 * Whether a config.yaml was served here before, judged by everything but trust.json. The sandbox leaves a usage log and changes
 * of keys, too, and `doctor` an empty index.
 */
function servedBefore({ state, usage, consoles, keyChanges, index }: Paths): boolean {
  if (existsSync(consoles) || hasChangesBeside(SANDBOX, keyChanges)) return true;
  if (existsSync(state) && readdirSync(state).some((name) => name.includes(".set-aside-"))) return true;
  return hasRequestsBeside(SANDBOX, usage) || hasIndexedRequests(index);
}

/** The usage log may be gone, and what was made from it not. */
function hasIndexedRequests(index: string): boolean {
  const query = "SELECT 1 FROM usage.records WHERE gateway IS NOT NULL AND gateway <> ? LIMIT 1";
  const found = queryIndex(index, (db) => db.prepare(query).raw().get(SANDBOX) !== undefined);
  // One that cannot be read now was made by an earlier run.
  return found instanceof IndexError ? found.kind !== "missing" : found;
}
