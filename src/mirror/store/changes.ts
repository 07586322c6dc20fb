import type Database from "libsql";
import type { AmendLine } from "../../usage/journal/lines.ts";
import type { JudgedRecord, JudgedRow } from "../verdict.ts";
import type { Loaded, Their } from "./loading.ts";
import type { Ours } from "./ours.ts";
import { judgedValues, type StoredVerdict } from "./stored-row.ts";
import type { PriceOf } from "./take.ts";
import { type NewVerdict, theirsText, writeRecordVerdicts, writeRowVerdicts } from "./verdicts.ts";

/** What is said now of those that are decided on. */
export interface Decided {
  readonly theirs: readonly { readonly their: Their; readonly next: StoredVerdict }[];
  readonly ours: readonly { readonly our: Ours; readonly next: JudgedRecord | null }[];
}

/**
 * Writes what is other than it was. `loaded`: among these is every row that a verdict names. Returns what changes in the
 * records themselves.
 */
export function writeChanges(
  db: Database.Database,
  gateway: string,
  { theirs, ours }: Decided,
  loaded: Pick<Loaded, "theirs">,
  priceOf: PriceOf,
): AmendLine[] {
  const kinds = new Map(loaded.theirs.map(({ row }) => [row.identity, row.kind]));
  const rows = theirs.filter(
    ({ their, next }) => isOtherRow(their.judged, next) && !takesBack(their.judged, next),
  );
  writeRowVerdicts(
    db,
    gateway,
    rows.map(({ their, next }) => ({ ...next, identity: their.row.identity })),
  );
  const records = ours.filter(({ our, next }) => isOtherRecord(our.verdict, next));
  const news = records.map(({ our, next }): NewVerdict => {
    const hasTokens = next?.row != null && kinds.get(next.row) === "use";
    return { id: our.request.id, judged: next, hasTokens };
  });
  return writeRecordVerdicts(db, gateway, news, priceOf);
}

/**
 * An alarm ends when somebody acknowledges it, or when the row turns out to be ours; not because a key was taken out of
 * config.yaml and put back, which would begin its time anew: who may edit files could silence it so; nor because the
 * clock was set back.
 */
function takesBack(before: StoredVerdict, after: StoredVerdict | JudgedRow): boolean {
  if (before.verdict !== "foreign" || !before.certain) return false;
  return after.verdict === "before" || after.verdict === "unwatched" || after.verdict === "pending";
}

function isOtherRow(before: StoredVerdict, after: StoredVerdict | JudgedRow): boolean {
  const values = judgedValues(before);
  return judgedValues(after).some((value, at) => value !== values[at]);
}

function isOtherRecord(before: Ours["verdict"], after: JudgedRecord | null): boolean {
  if (before === null || after === null) return (before === null) !== (after === null);
  const values = [after.verdict, after.how, after.row, after.reason, theirsText(after)];
  return values.some((value, at) => value !== (before[at] ?? null));
}
