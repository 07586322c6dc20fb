import type Database from "libsql";
import type { AmendLine } from "../../usage/journal/lines.ts";
import { judgeIds } from "../reconcile/reconcile.ts";
import { writeChanges } from "./changes.ts";
import { idsOfRows, withKin } from "./far-apart.ts";
import type { JudgingMeans } from "./judging.ts";
import { keyLinks } from "./keys.ts";
import { learnFromRows } from "./learning.ts";
import { loadSettled, oursWhere, ownersNear, theirsIn } from "./loading.ts";
import { AMONG } from "./many.ts";
import type { StoredVerdict } from "./stored-row.ts";
import { WITH_IDS, type Window } from "./window.ts";

export interface FoundById {
  readonly amendments: readonly AmendLine[];
  /** The earliest time, by our clock, of what has lost the one it was matched with. */
  readonly lostAt: number;
}

/**
 * Finds whose ids are the same, for the rows of a window that are new or have changed, and writes what follows from that.
 * It is settled then, and never loaded again to judge what is around it. `anew`: what was settled is looked at as well.
 */
export function settleIds(
  db: Database.Database,
  gateway: string,
  window: Window,
  means: JudgingMeans,
  anew: boolean,
): FoundById {
  const reading = { skew: means.skew, links: keyLinks(db, gateway) };
  const theirs = theirsIn(db, gateway, window, reading, anew ? "true" : WITH_IDS);
  const owners = ownersNear(db, gateway, window, idsOfRows(theirs));
  const settled = anew ? loadSettled(db, gateway, window, means.idNames) : [];
  const known = new Set(settled.map(({ request }) => request.id));
  const others = JSON.stringify(owners.filter((id) => !known.has(id)));
  const ours = [...settled, ...oursWhere(db, means.idNames, `r.id IN ${AMONG}`, others)];
  const ids = idsOfRows(theirs);
  for (const { request } of ours) for (const id of request.ids) ids.add(id);
  const all = withKin(db, gateway, { ours, theirs }, { ...means, ...reading, window, ids });

  const judgement = judgeIds(
    all.ours.map(({ request }) => request),
    all.theirs.map(({ row }) => row),
  );
  const found = judgement.rows.filter(({ how }) => how === "id");
  const rows = new Map(found.map((row) => [row.identity, row]));
  const records = new Map(judgement.records.map((record) => [record.record, record]));
  learnFromRows(db, gateway, all, rows);
  // What is not found by its id, and never was, is the business of those who look at everything else.
  const decided = {
    theirs: all.theirs.flatMap((their) => {
      const next = rows.get(their.row.identity) ?? (their.judged.how === "id" ? NOT_JUDGED : null);
      return next === null ? [] : [{ their, next }];
    }),
    ours: all.ours.flatMap((our) => {
      const next = records.get(our.request.id) ?? null;
      return next === null && our.verdict?.[1] !== "id" ? [] : [{ our, next }];
    }),
  };
  const lost = [
    ...decided.theirs.flatMap(({ their, next }) => (next === NOT_JUDGED ? [their.row.at] : [])),
    ...decided.ours.flatMap(({ our, next }) => (next === null ? [our.own] : [])),
  ];
  return {
    amendments: writeChanges(db, gateway, decided, all, means.priceOf),
    lostAt: Math.min(...lost, Number.POSITIVE_INFINITY),
  };
}

const NOT_JUDGED: StoredVerdict = {
  verdict: null,
  how: null,
  certain: false,
  record: null,
  key: null,
  reason: null,
};
