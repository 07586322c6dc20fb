import type Database from "libsql";
import { CLIENT_LEFT } from "../../usage/journal/lines.ts";
import type { UsageRecord } from "../../usage/record.ts";
import type { JudgedRecord } from "../verdict.ts";
import { readFact, writeFact } from "./facts.ts";

/*
 * Some gateways stop when the client of a stream leaves, and bill what they sent until then. Others read the answer to its
 * end, and bill all of it. The console shows which, so that the limits can count such a stream before its row is read.
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
export function abortedBillOf(own: UsageRecord, { theirs, how }: JudgedRecord): AbortedBill | null {
  const billed = theirs?.output_tokens ?? 0;
  const isAborted = own.end === CLIENT_LEFT && own.stream === true && own.machine === null;
  // A presumed match may be another request's row.
  const isCertain = how === "id" || how === "pair";
  if (!isAborted || !isCertain || own.seen_tokens === null || billed === 0) return null;
  const isAsStreamed = billed <= MAX_FACTOR * Math.max(own.seen_tokens, MIN_SEEN);
  return isAsStreamed && own.seen_tokens < MIN_SEEN ? null : { record: own.id, isAsStreamed };
}

/** The bills that are remembered of these. Ids sort by time. */
export function latestBills(bills: readonly AbortedBill[]): AbortedBill[] {
  return bills.toSorted((a, b) => (a.record < b.record ? 1 : -1)).slice(0, REMEMBERED);
}

export function noteAbortedBills(
  db: Database.Database,
  gateway: string,
  found: readonly AbortedBill[],
): void {
  if (found.length === 0) return;
  const before = readAbortedBills(db, gateway);
  const earlier = before.filter(({ record }) => !found.some((one) => one.record === record));
  writeFact(db, gateway, "aborted_bills", JSON.stringify(latestBills([...earlier, ...found])));
}

export function billsAsStreamed(db: Database.Database, gateway: string): boolean {
  const bills = readAbortedBills(db, gateway);
  return bills.length >= ENOUGH && bills.every(({ isAsStreamed }) => isAsStreamed);
}

function readAbortedBills(db: Database.Database, gateway: string): AbortedBill[] {
  return JSON.parse(readFact(db, gateway, "aborted_bills") ?? "[]");
}
