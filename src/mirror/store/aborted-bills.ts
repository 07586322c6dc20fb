import type Database from "libsql";
import { CLIENT_LEFT } from "../../usage/journal/lines.ts";
import type { UsageRecord } from "../../usage/record.ts";
import { groupedBy } from "../reconcile/candidates.ts";
import type { JudgedRecord } from "../verdict.ts";
import { readJsonFact, writeFact } from "./facts.ts";

/*
 * What a gateway bills of requests that did not end as they should.
 *
 * Some gateways stop when the client of a stream leaves, and bill what they sent until then. Others read the answer to its
 * end, and bill all of it. The console shows which, so that the limits can count such a stream before its row is read.
 *
 * Of requests that got no answer at all, some are listed and others not. Where most are not, a row that began with one of
 * them is not presumed to be its own.
 */

/** What the console billed for one of our streams that the client ended. */
export interface AbortedBill {
  /** The record's id. */
  readonly record: string;
  /** false: more was billed than was sent. */
  readonly isAsStreamed: boolean;
}

/** Our count is an estimate, and a gateway sends a little more until it notices that the client left. */
const MAX_FACTOR = 1.5;
/** A stream with fewer tokens shows nothing: the rest of a short answer may be as small. */
const MIN_SEEN = 100;
/** The latest ones decide. A single one billed in whole is enough to count the usual output again. */
const REMEMBERED = 20;
/** If a gateway always billed the whole answer, five clients in a row would have to leave in its last third: one time in 243. */
const ENOUGH = 5;

/** null: it shows nothing. */
export function findAbortedBill(own: UsageRecord, { theirs, how }: JudgedRecord): AbortedBill | null {
  const billed = theirs?.output_tokens ?? 0;
  const isAborted = own.end === CLIENT_LEFT && own.stream === true && own.machine === null;
  // A presumed match may be another request's row.
  const isCertain = how === "id" || how === "pair";
  if (!isAborted || !isCertain || own.seen_tokens === null || billed === 0) return null;
  const isAsStreamed = billed <= MAX_FACTOR * Math.max(own.seen_tokens, MIN_SEEN);
  return isAsStreamed && own.seen_tokens < MIN_SEEN ? null : { record: own.id, isAsStreamed };
}

/** The bills that are remembered of these. */
export function latestBills(bills: readonly AbortedBill[]): AbortedBill[] {
  return newestFirst(bills).slice(0, REMEMBERED);
}

/** Ids sort by time. */
function newestFirst<T extends { readonly record: string }>(list: readonly T[]): T[] {
  return list.toSorted((a, b) => (a.record < b.record ? 1 : -1));
}

/** Those of before that were not found again, and those that were found. */
function joined<T extends { readonly record: string }>(before: readonly T[], found: readonly T[]): T[] {
  const ids = new Set(found.map(({ record }) => record));
  return [...before.filter(({ record }) => !ids.has(record)), ...found];
}

export function noteAbortedBills(
  db: Database.Database,
  gateway: string,
  found: readonly AbortedBill[],
): void {
  if (found.length === 0) return;
  const all = joined(readAbortedBills(db, gateway), found);
  writeFact(db, gateway, "aborted_bills", JSON.stringify(latestBills(all)));
}

export function billsAsStreamed(db: Database.Database, gateway: string): boolean {
  const bills = readAbortedBills(db, gateway);
  return bills.length >= ENOUGH && bills.every(({ isAsStreamed }) => isAsStreamed);
}

function readAbortedBills(db: Database.Database, gateway: string): AbortedBill[] {
  return readJsonFact(db, gateway, "aborted_bills", []);
}

/** One of our requests that got no answer. */
export interface UnansweredBill {
  /** The record's id. */
  readonly record: string;
  readonly started_at: number;
  /** See unansweredKind. */
  readonly kind: string;
  /** A row began with it. */
  readonly isListed: boolean;
}

/** Of all kinds together: some clients ask for any number of models. */
const MAX_UNANSWERED = 400;

/** Whether most requests of a kind are listed. Fewer than ENOUGH show nothing. */
export function listedKinds(bills: readonly UnansweredBill[]): Map<string, boolean> {
  const kinds = new Map<string, boolean>();
  for (const [kind, list] of groupedBy(bills, (bill) => bill.kind)) {
    const listed = list.filter(({ isListed }) => isListed).length;
    if (list.length >= ENOUGH) kinds.set(kind, listed >= list.length / 2);
  }
  return kinds;
}

/** What is remembered together with what was found: the latest of each kind. */
export function unansweredWith(
  db: Database.Database,
  gateway: string,
  found: readonly UnansweredBill[],
): UnansweredBill[] {
  const all = joined(readUnanswered(db, gateway), found);
  const kinds = groupedBy(newestFirst(all), ({ kind }) => kind).values();
  const latest = [...kinds].flatMap((list) => list.slice(0, REMEMBERED));
  return newestFirst(latest).slice(0, MAX_UNANSWERED);
}

/** Returns the time from which rows must be compared again, because what is known of a kind has changed; null: nothing has. */
export function noteUnanswered(
  db: Database.Database,
  gateway: string,
  found: readonly UnansweredBill[],
): number | null {
  if (found.length === 0) return null;
  const before = listedKinds(readUnanswered(db, gateway));
  const all = unansweredWith(db, gateway, found);
  writeFact(db, gateway, "unanswered", JSON.stringify(all));
  const after = listedKinds(all);
  const isChanged = ({ kind }: UnansweredBill) => (before.get(kind) ?? false) !== (after.get(kind) ?? false);
  const times = all.filter(isChanged).map(({ started_at }) => started_at);
  return times.length === 0 ? null : Math.min(...times);
}

function readUnanswered(db: Database.Database, gateway: string): UnansweredBill[] {
  return readJsonFact(db, gateway, "unanswered", []);
}
