import type Database from "libsql";
import { FARTHEST_MS } from "../reconcile/context.ts";
import { type Loaded, oursWhere, type Reading, type Their, theirsIn, theirsWhere } from "./loading.ts";
import { AMONG, readMany } from "./many.ts";
import type { Ours } from "./ours.ts";
import type { Window } from "./window.ts";

/** Where a console is blind to very many, the latest are enough. */
const MOST_MISSING = 1000;
/** Somebody who gives all requests one id must not hold up the others. */
const MOST_ALIKE = 1000;

export interface KinMeans extends Reading {
  readonly idNames: readonly string[];
  readonly window: Window;
  /** The ids of which every row is wanted. */
  readonly ids: ReadonlySet<string>;
}

/**
 * What belongs to the loaded records and rows by its id and is not among them, because it was settled already or is far
 * away: a console can write hours late, and one whose clock was wrong and is set right has rows at hours at which nothing
 * of ours was. Without them those rows would be called foreign. `found`: records that are known to belong to them.
 */
export function withKin(
  db: Database.Database,
  gateway: string,
  near: Loaded,
  means: KinMeans,
  found: readonly string[] = [],
): Loaded {
  const ours = new Map(near.ours.map((one) => [one.request.id, one]));
  const theirs = new Map(near.theirs.map((one) => [one.row.identity, one]));
  const addOurs = (ids: readonly string[]): Ours[] => {
    const others = [...new Set(ids)].filter((id) => !ours.has(id));
    if (others.length === 0) return [];
    const added = oursWhere(db, means.idNames, `r.id IN ${AMONG}`, JSON.stringify(others));
    for (const one of added) ours.set(one.request.id, one);
    return added;
  };
  const addTheirs = (identities: readonly string[]): Their[] => {
    const others = [...new Set(identities)].filter((identity) => !theirs.has(identity));
    if (others.length === 0) return [];
    const among = `gateway = ? AND identity IN ${AMONG}`;
    const added = theirsWhere(db, means, among, gateway, JSON.stringify(others));
    for (const one of added) theirs.set(one.row.identity, one);
    return added;
  };

  const alike = addTheirs(rowsWith(db, gateway, means.ids));
  const owners = addOurs([...found, ...linksOf([...near.theirs, ...alike])]);
  const settled = near.ours.filter((one) => one.verdict?.[1] === "id");
  const complete = [...settled, ...owners];
  if (complete.length > 0) {
    const ids = new Set(complete.flatMap(({ request }) => request.ids));
    const mains = complete.flatMap(({ verdict }) => (verdict?.[2] == null ? [] : [String(verdict[2])]));
    const more = addTheirs([...rowsWith(db, gateway, ids), ...mains]);
    for (const one of rowsBehind(db, gateway, ids, means)) theirs.set(one.row.identity, one);
    addOurs(linksOf(more));
  }
  return { ours: [...ours.values()], theirs: [...theirs.values()] };
}

/** A row that changed keeps the record it was matched with until it is judged again. */
function linksOf(theirs: readonly Their[]): string[] {
  return theirs.flatMap(({ judged: { how, record } }) =>
    record !== null && (how === "id" || how === null) ? [record] : [],
  );
}

function rowsWith(db: Database.Database, gateway: string, ids: ReadonlySet<string>): string[] {
  if (ids.size === 0) return [];
  // Left to itself, SQLite looks for a request id through all rows of the gateway.
  const rows = `(SELECT identity FROM mirror.console_rows INDEXED BY console_rows_by_id
    WHERE gateway = ? AND request_id IN ${AMONG} LIMIT ?)`;
  const found = readMany(
    db,
    ["identity"],
    `FROM ${rows}`,
    gateway,
    JSON.stringify([...ids]),
    ids.size + MOST_ALIKE,
  );
  return found.map(([identity]) => String(identity));
}

/** No index holds the id of the gateway behind; what has it is not far away. */
function rowsBehind(
  db: Database.Database,
  gateway: string,
  ids: ReadonlySet<string>,
  means: KinMeans,
): Their[] {
  const { from, to } = means.window;
  const around = { from: from - FARTHEST_MS, to: to + FARTHEST_MS };
  return theirsIn(db, gateway, around, means, `upstream_id IN ${AMONG}`, JSON.stringify([...ids]));
}

/** Which records that were never listed have one of these ids, however long ago. */
export function missingWith(db: Database.Database, gateway: string, ids: ReadonlySet<string>): string[] {
  if (ids.size === 0) return [];
  const latest = `(SELECT record FROM mirror.verdicts WHERE gateway = ? AND verdict = 'missing'
    ORDER BY started_at DESC LIMIT ${MOST_MISSING})`;
  const have = `FROM ${latest} m JOIN usage.records r ON r.id = m.record, json_each(r.gateway_ids) one
    WHERE one.value IN ${AMONG}`;
  return readMany(db, ["r.id"], have, gateway, JSON.stringify([...ids])).map(([id]) => String(id));
}

/** The ids by which rows can be found to belong to a record. */
export function idsOfRows(theirs: readonly Their[]): Set<string> {
  const ids = new Set<string>();
  for (const { row } of theirs) {
    if (row.request_id !== null) ids.add(row.request_id);
    if (row.upstream_id !== null) ids.add(row.upstream_id);
  }
  return ids;
}
