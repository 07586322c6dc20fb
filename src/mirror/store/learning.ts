import type Database from "libsql";
import type { StartFit } from "../reconcile/context.ts";
import { startFit } from "../reconcile/start.ts";
import type { JudgedRow } from "../verdict.ts";
import { judgeRowsAgain, readFact, writeFact } from "./facts.ts";
import { learnKeys } from "./keys.ts";
import type { Loaded } from "./loading.ts";
import type { Ours } from "./ours.ts";
import { columnsOf } from "./raw-row.ts";

/**
 * Which ids are the gateway's own: by the name of the id and the kind of response, since when. It depends on the gateway's
 * version. new-api v0.13.2 hands out its own on streams and errors, and that of the gateway behind it on plain responses.
 */
export type OwnIds = Readonly<Record<string, number>>;

export function readOwnIds(db: Database.Database, gateway: string): OwnIds {
  return JSON.parse(readFact(db, gateway, "own_ids") ?? "{}");
}

/** Whether one of a record's ids is the gateway's own, by what was seen so far. */
export function hasOwnId({ request, gateway_ids }: Ours, own: OwnIds): boolean {
  return Object.keys(gateway_ids).some(
    (name) => (own[`${name} ${responseKind(request)}`] ?? Number.POSITIVE_INFINITY) <= request.started_at,
  );
}

function responseKind({ status, stream }: Ours["request"]): string {
  if (status !== null && status >= 400) return String(status);
  return stream === true ? "stream" : "plain";
}

/** How many of the last matches by id tell how a row's beginning fits its request. */
const SAMPLE = 200;

export function readStartFit(db: Database.Database, gateway: string, skew: number): StartFit {
  const rows = db
    .prepare(
      `SELECT c.began_at - r.started_at - r.waited_ms FROM mirror.console_rows c JOIN usage.records r ON r.id = c.record
       WHERE c.gateway = ? AND c.verdict IN ('matched', 'differs') AND c.how = 'id' AND c.kind = 'use'
         AND c.began_at IS NOT NULL AND r.status < 400
       ORDER BY c.created_at DESC LIMIT ${SAMPLE}`,
    )
    .raw()
    .all(gateway);
  return startFit(rows.map((row) => Number(columnsOf(row)[0]) - skew));
}

/** What matches by id teach: which ids are the gateway's own, and whose key a row's name for it is. */
export function learnFromRows(
  db: Database.Database,
  gateway: string,
  { ours, theirs }: Loaded,
  judged: ReadonlyMap<string, JudgedRow>,
): void {
  const recordsById = new Map(ours.map((one) => [one.request.id, one]));
  const keys = new Map<string, Set<string>>();
  const own: Record<string, number> = { ...readOwnIds(db, gateway) };
  const known = JSON.stringify(own);
  let from = Number.POSITIVE_INFINITY;
  for (const { row } of theirs) {
    const verdict = judged.get(row.identity);
    const record = verdict?.how === "id" ? recordsById.get(verdict.record ?? "") : undefined;
    if (record === undefined) continue;
    const { key, started_at } = record.request;
    if (key !== null && row.key_ref !== null && row.key !== key)
      keys.set(row.key_ref, (keys.get(row.key_ref) ?? new Set()).add(key));
    for (const [name, id] of Object.entries(record.gateway_ids)) {
      if (id !== row.request_id) continue;
      const kind = `${name} ${responseKind(record.request)}`;
      if ((own[kind] ?? Number.POSITIVE_INFINITY) <= started_at) continue;
      own[kind] = started_at;
      from = Math.min(from, row.created_at, row.began_at ?? row.created_at);
    }
  }
  if (keys.size > 0) learnKeys(db, gateway, keys);
  if (JSON.stringify(own) === known) return;
  writeFact(db, gateway, "own_ids", JSON.stringify(own));
  // What was paired or only suspected from then on may be something else now.
  judgeRowsAgain(db, gateway, from);
}
