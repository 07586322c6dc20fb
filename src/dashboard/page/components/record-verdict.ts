import type { ComparedRow } from "../../../mirror/report/shape.ts";
import type { MessageId, Translate } from "../messages/messages.ts";

const VERDICTS = [
  "matched",
  "differs",
  "pending",
  "missing",
  "foreign",
  "before",
  "unwatched",
  "companion",
  "duplicate",
] as const;

/** matched, by id; foreign, certain */
export function verdictInWords({ verdict, row }: ComparedRow, t: Translate): string {
  const known = VERDICTS.find((name) => name === verdict);
  const words = known === undefined ? t("mirror.verdict.none") : t(`mirror.verdict.${known}`);
  const how = howOf(row);
  return how === null ? words : t("mirror.verdict.how", { verdict: words, how: t(how) });
}

function howOf(row: ComparedRow["row"]): MessageId | null {
  if (row === null) return null;
  if (row.verdict === "foreign") return row.certain ? "mirror.how.certain" : "mirror.how.suspected";
  return row.how === null ? null : `mirror.how.${row.how}`;
}
