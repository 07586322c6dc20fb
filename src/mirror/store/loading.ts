import type Database from "libsql";
import { FARTHEST_MS, type TheirRow } from "../reconcile/context.ts";
import { AMONG, readMany } from "./many.ts";
import { type Ours, oursOf, RECORD, VERDICT } from "./ours.ts";
import { STORED, type StoredVerdict, storedRowOf } from "./stored-row.ts";
import { DAY_MS, UNSETTLED, type Window } from "./window.ts";

/** What of both sides is compared with each other. */
export interface Loaded {
  readonly ours: readonly Ours[];
  readonly theirs: readonly Their[];
}

export interface Their {
  readonly row: TheirRow;
  readonly judged: StoredVerdict;
}

/**
 * The window's records, and those so close to it that they may have a part in a match inside: as far as they are not
 * settled. Running ones too.
 */
export function loadOurs(
  db: Database.Database,
  gateway: string,
  { from, to }: Window,
  idNames: readonly string[],
): Ours[] {
  const [first, last] = [from - FARTHEST_MS, to + FARTHEST_MS];
  const ended = `${ENDED} AND v.${UNSETTLED}`;
  // The plus keeps SQLite from looking through all that ever began: few run at a time, and they have an index of their own.
  const running = "r.end IS NULL AND +r.gateway = ? AND +r.started_at < ?";
  return [
    ...oursWhere(db, idNames, ended, gateway, first - DAY_MS, last, first, first),
    ...oursWhere(db, idNames, running, gateway, last),
  ];
}

/** The index holds all three columns: of the day before, only those that ended late are looked at. */
const ENDED =
  "r.end IS NOT NULL AND r.gateway = ? AND r.started_at >= ? AND r.started_at < ? AND (r.started_at >= ? OR r.ended_at >= ?)";

/** The window's records that were matched by their ids. */
export function loadSettled(
  db: Database.Database,
  gateway: string,
  { from, to }: Window,
  idNames: readonly string[],
): Ours[] {
  const found = oursWhere(db, idNames, `${ENDED} AND v.how = 'id'`, gateway, from - DAY_MS, to, from, from);
  return found.filter(({ own }) => own >= from && own < to);
}

/** Which records in and around the window have one of these ids, settled or not. */
export function ownersNear(
  db: Database.Database,
  gateway: string,
  { from, to }: Window,
  ids: ReadonlySet<string>,
): string[] {
  if (ids.size === 0) return [];
  const [first, last] = [from - FARTHEST_MS, to + FARTHEST_MS];
  const have = `FROM usage.records r, json_each(r.gateway_ids) one WHERE ${ENDED} AND one.value IN ${AMONG}`;
  const values = [gateway, first - DAY_MS, last, first, first, JSON.stringify([...ids])];
  return readMany(db, ["r.id"], have, ...values).map(([id]) => String(id));
}

/** Records, as r, with their verdicts. */
export function oursWhere(
  db: Database.Database,
  idNames: readonly string[],
  where: string,
  ...values: (string | number)[]
): Ours[] {
  const columns = [...RECORD.map((name) => `r."${name}"`), ...VERDICT.map((name) => `v."${name}"`), "v.ours"];
  const tables = "FROM usage.records r LEFT JOIN mirror.verdicts v ON v.record = r.id";
  return readMany(db, columns, `${tables} WHERE ${where}`, ...values).map((row) => oursOf(row, idNames));
}

/** How rows are read: by our clock, and with the keys they were billed to. */
export interface Reading {
  readonly skew: number;
  readonly links: ReadonlyMap<string, string | null>;
}

/** The same of their rows. */
export function loadTheirs(
  db: Database.Database,
  gateway: string,
  { from, to }: Window,
  reading: Reading,
): Their[] {
  const margin = { from: from - FARTHEST_MS, to: to + FARTHEST_MS };
  return theirsIn(db, gateway, margin, reading, UNSETTLED);
}

/** The rows of a time, by our clock. */
export function theirsIn(
  db: Database.Database,
  gateway: string,
  { from, to }: Pick<Window, "from" | "to">,
  reading: Reading,
  where: string,
  ...values: (string | number)[]
): Their[] {
  const within = `gateway = ? AND created_at >= ? AND created_at < ? AND ${where}`;
  return theirsWhere(db, reading, within, gateway, from + reading.skew, to + reading.skew, ...values);
}

export function theirsWhere(
  db: Database.Database,
  { skew, links }: Reading,
  where: string,
  ...values: (string | number)[]
): Their[] {
  return readMany(db, STORED, `FROM mirror.console_rows WHERE ${where}`, ...values).map((raw) => {
    const { row, judged } = storedRowOf(raw);
    const key = row.key_ref === null ? null : (links.get(row.key_ref) ?? null);
    const began = row.began_at === null ? null : row.began_at - skew;
    return { row: Object.assign(row, { at: row.created_at - skew, began, key }), judged };
  });
}
