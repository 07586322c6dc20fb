import type Database from "libsql";
import type { JudgedRow } from "../verdict.ts";
import { handsOutIds, judgeRowsAgain, writeFact } from "./facts.ts";
import { learnKeys } from "./keys.ts";
import type { Their } from "./loading.ts";
import type { Ours } from "./ours.ts";
import { numberIn } from "./raw-row.ts";

/** An id in an error text, or one that any server in between can set, does not show that every answer carries the row's. */
const NO_PROOF = ["error", "x-request-id"];

export function learnIds(
  db: Database.Database,
  gateway: string,
  ours: readonly Ours[],
  idNames: readonly string[],
): void {
  if (handsOutIds(db, gateway) !== null) return;
  const names = idNames.filter((name) => !NO_PROOF.includes(name));
  const name = names.find((one) => ours.some(({ gateway_ids }) => gateway_ids[one] !== undefined));
  if (name === undefined) return;
  writeFact(db, gateway, "hands_out_ids", name);
  const first = db
    .prepare("SELECT min(created_at) FROM mirror.console_rows WHERE gateway = ? AND verdict = 'foreign'")
    .raw();
  const from = numberIn(first.get(gateway));
  // What was only suspected is certain now.
  if (from !== null) judgeRowsAgain(db, gateway, from);
}

export function learnFromRows(
  db: Database.Database,
  gateway: string,
  theirs: readonly Their[],
  judged: ReadonlyMap<string, JudgedRow>,
  ours: readonly Ours[],
): void {
  const keys = new Map(ours.map(({ request }) => [request.id, request.key]));
  const learnt = new Map<string, Set<string>>();
  for (const { row } of theirs) {
    const { how, record } = judged.get(row.identity) ?? { how: null, record: null };
    const key = how === "id" && record !== null ? (keys.get(record) ?? null) : null;
    if (key === null || row.key_ref === null || row.key === key) continue;
    learnt.set(row.key_ref, (learnt.get(row.key_ref) ?? new Set()).add(key));
  }
  if (learnt.size > 0) learnKeys(db, gateway, learnt);
}
