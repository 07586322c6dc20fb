import type Database from "libsql";
import { type Ours, oursWhere, type Their, theirsWhere } from "./loading.ts";

/** Where a console is blind to very many, the latest are enough. */
const MOST_MISSING = 1000;

export interface FarApart {
  readonly ours: readonly Ours[];
  readonly theirs: readonly Their[];
}

/**
 * What belongs to the loaded records and rows by its id, however far away it is: a console can write hours late, and one
 * whose clock was wrong and is set right has rows at hours at which nothing of ours was. Without them those rows would be
 * called foreign.
 */
export function loadFarApart(
  db: Database.Database,
  gateway: string,
  { ours, theirs }: FarApart,
  means: {
    readonly idNames: readonly string[];
    readonly skew: number;
    readonly links: ReadonlyMap<string, string | null>;
  },
): FarApart {
  const records = new Set(ours.map(({ request }) => request.id));
  const ids = new Set(ours.flatMap(({ request }) => request.ids));
  const owners = theirs.flatMap(({ judged: { how, record } }) =>
    how === "id" && record !== null && !records.has(record) ? [record] : [],
  );
  const lost = new Set(
    theirs.flatMap(({ row: { request_id: id } }) => (id === null || ids.has(id) ? [] : [id])),
  );
  const among = "(SELECT value FROM json_each(?))";
  const found =
    owners.length === 0 ? [] : oursWhere(db, means.idNames, `r.id IN ${among}`, JSON.stringify(owners));
  const late = lost.size === 0 ? [] : loadMissing(db, gateway, means.idNames);
  const farOurs = [
    ...found,
    ...late.filter(({ request }) => !owners.includes(request.id) && request.ids.some((id) => lost.has(id))),
  ].filter(({ request }) => !records.has(request.id));

  const identities = new Set(theirs.map(({ row }) => row.identity));
  const alone = ours.filter(({ verdict }) => verdict?.[1] === "id" && !identities.has(String(verdict[2])));
  if (alone.length === 0) return { ours: farOurs, theirs: [] };
  const theirIds = JSON.stringify(alone.flatMap(({ request }) => request.ids));
  const theirRows = JSON.stringify(alone.map(({ verdict }) => verdict?.[2]));
  // Left to itself, SQLite looks for a request id through all rows of the gateway.
  const byId = `SELECT identity FROM log.console_rows INDEXED BY console_rows_by_id
    WHERE gateway = ? AND request_id IN ${among}`;
  const farTheirs = [
    ...theirsWhere(db, means, `gateway = ? AND identity IN (${byId})`, gateway, gateway, theirIds),
    ...theirsWhere(db, means, `gateway = ? AND identity IN ${among}`, gateway, theirRows),
  ].filter(({ row }) => !identities.has(row.identity));
  const unique = new Map(farTheirs.map((one) => [one.row.identity, one]));
  return { ours: farOurs, theirs: [...unique.values()] };
}

function loadMissing(db: Database.Database, gateway: string, idNames: readonly string[]): Ours[] {
  const missing = `SELECT record FROM log.verdicts WHERE gateway = ? AND verdict = 'missing'
    ORDER BY started_at DESC LIMIT ${MOST_MISSING}`;
  return oursWhere(db, idNames, `r.id IN (${missing})`, gateway);
}
