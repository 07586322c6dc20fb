import type Database from "libsql";
import type { ConsoleKind } from "../../config/schema.ts";
import { advice } from "../../core/advice.ts";
import { exact, localTime } from "../../core/units.ts";
import type { ConsoleGap } from "../consoles/console.ts";
import {
  type LogGap,
  readConsoleGaps,
  readLogGaps,
  readUnreadKeys,
  type UnreadKey,
} from "../store/coverage-gaps.ts";
import { readJsonFact, readStartFit } from "../store/facts.ts";
import { heldTimes } from "../store/keys.ts";
import { queryNumber } from "../store/query.ts";
import { FROM_HERE, type OwnIds } from "../store/verdicts.ts";
import { BLIND_SPOTS } from "./notable.ts";
import type { ConsoleStatus } from "./shape.ts";

/* What the leak alarm cannot see, so that silence is not mistaken for safety. */

/** Only the latest gaps are listed. */
const MAX_KEY_GAPS = 5;
const MAX_LOG_GAPS = 3;

export function blindSpots(
  db: Database.Database,
  { gateway, state, last_sync, skew }: ConsoleStatus,
  kind: ConsoleKind | null,
): string[] {
  const held = heldTimes(db, gateway);
  const toolsOf = (key: string) => held.get(key)?.tools.join(", ") ?? key;
  const spots: string[] = [];

  const keyGaps = readConsoleGaps(db, gateway)
    .map((gap) => ({ ...gap, from: gap.from - (skew ?? 0), to: gap.to - (skew ?? 0) }))
    // Rows from before the key was held here are never compared.
    .filter(({ key, to }) => key !== undefined && to > (held.get(key)?.since ?? 0))
    .toSorted((a, b) => a.to - b.to);
  for (const gap of keyGaps.slice(-MAX_KEY_GAPS)) spots.push(keyGap(gap, toolsOf(gap.key ?? ""), gateway));
  for (const one of readUnreadKeys(db, gateway)) spots.push(unreadKey(one, toolsOf(one.key), gateway));

  if (state !== "ok" && state !== "syncing")
    spots.push(last_sync === null ? BLIND_SPOTS["never-read"] : BLIND_SPOTS["since-sync"]);
  spots.push(...unlistedCalls(kind));
  spots.push(BLIND_SPOTS.unlogged);
  spots.push(takenForOurs(db, gateway));
  const abandoned = [...held].filter(([, { until, replaced }]) => until !== null && !replaced);
  const keys = abandoned.map(([key]) => key).join(", ");
  if (keys !== "") spots.push(BLIND_SPOTS["keys-gone"].replace("{keys}", () => keys));
  for (const gap of readLogGaps(db).slice(-MAX_LOG_GAPS)) spots.push(logGap(gap));
  return spots;
}

function unlistedCalls(kind: ConsoleKind | null): string[] {
  switch (kind) {
    case "new-api":
      return [BLIND_SPOTS["failed-unlogged"]];
    case "litellm":
      return [BLIND_SPOTS["no-model"], BLIND_SPOTS["repeated-id"], BLIND_SPOTS["known-id"]];
    default:
      return [BLIND_SPOTS.failed];
  }
}

/** A row that is presumed to be ours may be a thief's. */
function takenForOurs(db: Database.Database, gateway: string): string {
  const { close, within } = readStartFit(db, gateway);
  const ownIds = Object.keys(readJsonFact<OwnIds>(db, gateway, "own_ids", {}));
  if (ownIds.some((name) => name.endsWith(FROM_HERE))) return BLIND_SPOTS["taken-for-refusal"];
  const reach = ownIds.length === 0 ? within : close;
  return BLIND_SPOTS["taken-for-yours"].replace("{ms}", exact(Math.ceil(reach)));
}

function keyGap({ from, to, cause }: ConsoleGap, tools: string, gateway: string): string {
  const span = `${tools} ${localTime(from)}–${localTime(to)}`;
  return cause === "refused"
    ? `${span}: the console does not accept its key, which is disabled or deleted there`
    : `${span}, more than 1,000 calls between syncs → log in with an access token: ${advice.mirrorLogin(gateway)}`;
}

function unreadKey({ until, cause }: UnreadKey, tools: string, gateway: string): string {
  if (cause === "no-account")
    return `${tools}: no account logged in here lists its key. a deleted key → ${advice.rotate("<tool>")}; one of another account → ${advice.mirrorLogin(gateway, "<name>")}`;
  const since = until === null ? "was never read" : `was last read ${localTime(until)}`;
  return `${tools}: its key ${since}, the console allows 20 key lookups in 20 minutes`;
}

function logGap({ from, to }: LogGap): string {
  const span = from === 0 ? `before ${localTime(to)}` : `between ${localTime(from)} and ${localTime(to)}`;
  return `requests ${span}: the usage log lost its end, so they could not be compared`;
}

/** This many in a row are no coincidence. */
const SUSPICIOUS = 3;

/** Why the console's rows say nothing about a leak at all; null: it lists our requests. */
export function findBlindness(db: Database.Database, gateway: string, now: number): string | null {
  const unlisted = readUnreadKeys(db, gateway).filter(({ cause }) => cause === "no-account");
  const held = [...heldTimes(db, gateway)].filter(([, { until }]) => until === null);
  if (held.length > 0 && held.every(([key]) => unlisted.some((one) => one.key === key)))
    return "lists none of the keys that are held here: this is another account";

  // A time in the future is from before the clock was set back.
  const verdicts = "FROM mirror.verdicts WHERE gateway = ? AND started_at <= ?";
  const lastMatch = queryNumber(
    db,
    `SELECT max(started_at) ${verdicts} AND verdict IN ('matched', 'differs')`,
    gateway,
    now,
  );
  const missing = queryNumber(
    db,
    `SELECT count(*) ${verdicts} AND verdict = 'missing' AND started_at > ?`,
    gateway,
    now,
    lastMatch ?? 0,
  );
  if ((missing ?? 0) >= SUSPICIOUS)
    return `lists none of the last ${missing} requests that passed here: its operator may have switched its log off, or this is another account`;
  if (lastMatch !== null) return null;

  // A key that the console no longer lists was deleted there, and is not held here. But where no row is linked to a held
  // key, or a row's key name is ambiguous, a leak would not be seen.
  const unlinked = queryNumber(
    db,
    `SELECT count(*) FROM mirror.console_rows r
     LEFT JOIN mirror.console_keys k ON k.gateway = r.gateway AND k.ref = r.key_ref
     WHERE r.gateway = ? AND r.key IS NULL AND (r.key_ref IS NULL OR k.learnt = 'unclear'
       OR NOT EXISTS (SELECT 1 FROM mirror.console_keys WHERE gateway = r.gateway AND key <> ''))`,
    gateway,
  );
  if ((unlinked ?? 0) >= SUSPICIOUS)
    return "does not say which of its rows belong to the keys that are held here";
  return null;
}
