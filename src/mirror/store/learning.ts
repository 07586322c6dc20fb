import type Database from "libsql";
import type { TheirRow } from "../reconcile/context.ts";
import { markFrom } from "./changed-days.ts";
import { readFact, writeFact } from "./facts.ts";
import { type KeyLinks, learnKeys } from "./keys.ts";
import type { Ours } from "./ours.ts";

/**
 * Which ids are the gateway's own: by the name of the id and the kind of response, since when. It depends on the gateway's
 * version. new-api v0.13.2 hands out its own on streams and errors, and that of the gateway behind it on plain responses.
 */
export type OwnIds = Readonly<Record<string, number>>;

/** What matches by id teach. */
export interface Learned {
  readonly own: OwnIds;
  /** Since when an id is newly known to be own; null: none is. */
  readonly ownFrom: number | null;
  /** Which keys a console's name for a key stands for. */
  readonly keys: ReadonlyMap<string, ReadonlySet<string>>;
}

interface Their {
  readonly row: TheirRow;
}

export function readOwnIds(db: Database.Database, gateway: string): OwnIds {
  return JSON.parse(readFact(db, gateway, "own_ids") ?? "{}");
}

/** Whether one of a record's ids is the gateway's own, by what was learned so far. */
export function hasOwnId({ request, gateway_ids }: Ours, own: OwnIds): boolean {
  return Object.keys(gateway_ids).some(
    (name) => (own[`${name} ${responseKind(request)}`] ?? Number.POSITIVE_INFINITY) <= request.started_at,
  );
}

function responseKind({ status, stream }: Ours["request"]): string {
  if (status !== null && status >= 400) return String(status);
  return stream === true ? "stream" : "plain";
}

/** null: nothing that is not known already. */
export function learnedFrom(
  ours: readonly Ours[],
  theirs: readonly Their[],
  known: OwnIds,
  links: KeyLinks,
): Learned | null {
  const own: Record<string, number> = { ...known };
  const keys = new Map<string, Set<string>>();
  let ownFrom: number | null = null;
  for (const { record, row } of matchesById(ours, theirs)) {
    const { key, started_at } = record.request;
    const ref = row.key_ref;
    if (key !== null && ref !== null && !links.decided.has(ref) && links.keys.get(ref) !== key)
      keys.set(ref, (keys.get(ref) ?? new Set()).add(key));
    for (const [name, id] of Object.entries(record.gateway_ids)) {
      const kind = `${name} ${responseKind(record.request)}`;
      if (id !== row.request_id || (own[kind] ?? Number.POSITIVE_INFINITY) <= started_at) continue;
      own[kind] = started_at;
      ownFrom = Math.min(ownFrom ?? started_at, started_at);
    }
  }
  return ownFrom === null && keys.size === 0 ? null : { own, ownFrom, keys };
}

export function writeLearned(db: Database.Database, gateway: string, { own, ownFrom, keys }: Learned): void {
  if (keys.size > 0) learnKeys(db, gateway, keys);
  if (ownFrom === null) return;
  writeFact(db, gateway, "own_ids", JSON.stringify(own));
  // What was paired or only suspected from then on may be something else now.
  markFrom(db, gateway, ownFrom);
}

/** How many of the last matches by id tell how a row's beginning fits its request. */
const SAMPLE = 200;

/** How much later than they were sent requests began at the gateway, of the last that were matched by id. */
export function offsetsOf(ours: readonly Ours[], theirs: readonly Their[]): number[] {
  const offsets: { readonly at: number; readonly offset: number }[] = [];
  for (const { record, row } of matchesById(ours, theirs)) {
    if (row.began === null || row.kind !== "use" || record.request.failed) continue;
    offsets.push({ at: row.at, offset: row.began - record.request.sent_at });
  }
  offsets.sort((a, b) => b.at - a.at || a.offset - b.offset);
  return offsets.slice(0, SAMPLE).map(({ offset }) => offset);
}

function* matchesById(ours: readonly Ours[], theirs: readonly Their[]) {
  const recordsById = new Map<string, Ours>();
  for (const one of ours) for (const id of one.request.ids) recordsById.set(id, one);
  for (const { row } of theirs) {
    const record = row.request_id === null ? undefined : recordsById.get(row.request_id);
    if (record !== undefined) yield { record, row };
  }
}
