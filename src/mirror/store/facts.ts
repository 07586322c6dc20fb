import type Database from "libsql";
import type { StartFit } from "../reconcile/context.ts";
import { UNKNOWN_START } from "../reconcile/fit.ts";
import { execute, queryValue } from "./query.ts";

/** What the mirror remembers about a gateway. */
type FactName =
  /** The origins of the gateway and of its console, see claimConsole. */
  | "console"
  /** Of the console, as it was detected, and its origin. */
  | "kind"
  /** Before this time another gateway had this name. */
  | "begun_at"
  /** Where the next walk over the console's rows begins. */
  | "cursor"
  /** The console was read from here … */
  | "covered_from"
  /** … to here: when the last complete walk ended, by our clock. Nothing younger can be missing. */
  | "last_sync"
  /** See coverage-gaps.ts. */
  | "console_gaps"
  | "unread_keys"
  | "log_gaps"
  /** The newest record when the usage log was last closed, see LostRecords. Missing while it is open. */
  | "closed_with"
  /** See changed-days.ts. */
  | "changed_from"
  | "changed_from_number"
  | "change_count"
  /** When the last comparison began, and since when the oldest request in flight was running at that time. */
  | "compared_at"
  | "running_since"
  /** The siblings as that comparison knew them. */
  | "siblings"
  /** See OwnIds. */
  | "own_ids"
  /** See StartFit. */
  | "start_fit"
  /** See aborted-bills.ts. */
  | "aborted_bills"
  | "unanswered"
  /** Whether the console lists the user agents that our clients sent. */
  | "user_agents"
  /** See logAlarms. */
  | "logged_alarms";

/** @param gateway null: a fact about our own log, which all gateways share. */
export function readFact(db: Database.Database, gateway: string | null, name: FactName): string | null {
  const value = queryValue(db, "SELECT value FROM mirror.facts WHERE name = ?", keyOf(gateway, name));
  return value === null ? null : String(value);
}

/** A fact that is stored as JSON. */
export function readJsonFact<T>(
  db: Database.Database,
  gateway: string | null,
  name: FactName,
  missing: T,
): T {
  const text = readFact(db, gateway, name);
  return text === null ? missing : JSON.parse(text);
}

/** @param value null: deletes the fact. */
export function writeFact(
  db: Database.Database,
  gateway: string | null,
  name: FactName,
  value: string | null,
): void {
  const key = keyOf(gateway, name);
  if (value === null) execute(db, "DELETE FROM mirror.facts WHERE name = ?", key);
  else execute(db, "INSERT OR REPLACE INTO mirror.facts (name, value) VALUES (?, ?)", key, value);
}

export function readTime(db: Database.Database, gateway: string, name: FactName): number | null {
  const text = readFact(db, gateway, name);
  return text === null ? null : Number(text);
}

/** What was learned last. */
export function readStartFit(db: Database.Database, gateway: string): StartFit {
  return readJsonFact(db, gateway, "start_fit", UNKNOWN_START);
}

export function deleteFacts(db: Database.Database, gateway: string): void {
  const prefix = `mirror:${gateway}:`;
  execute(db, "DELETE FROM mirror.facts WHERE name >= ? AND name < ?", prefix, `${prefix}\u{10FFFF}`);
}

function keyOf(gateway: string | null, name: FactName): string {
  return gateway === null ? `mirror:${name}` : `mirror:${gateway}:${name}`;
}

/** The console's rows are read from `since` on. Records from before it are never missing. */
export function coverFrom(db: Database.Database, gateway: string, since: number, now: number): void {
  // A time in the future was written before the clock was set back.
  const begunAt = Math.min(readTime(db, gateway, "begun_at") ?? since, now);
  const from = Math.max(since, begunAt);
  const before = readTime(db, gateway, "covered_from");
  if (before === null || from < before) writeFact(db, gateway, "covered_from", String(from));
}
