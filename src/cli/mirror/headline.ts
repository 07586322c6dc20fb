import type { ConsoleStatus, MirrorReport } from "../../mirror/report/shape.ts";
import { count, exact } from "../../usage/reports/format.ts";
import { whenInWords } from "../tools/limit-lines.ts";
import type { Note } from "../ui/messages.ts";
import { ago, shortDate } from "../ui/units.ts";

/** 1,204 rows: 1,198 by id, 6 presumed, 0 foreign; watched since 3 Nov */
export function headline(report: MirrorReport, now: number): string {
  const { rows, watched_since: since } = report;
  if (report.last_sync === null && rows.total === 0) return "its rows were never read, so nothing is known";
  const some = (number: number, name: string) => (number > 0 ? [`${exact(number)} ${name}`] : []);
  const parts = [
    `${exact(rows.by_id)} by id`,
    ...some(rows.by_pair, "by pair"),
    ...some(rows.by_sum, "by sum"),
    `${exact(rows.presumed)} presumed`,
    ...some(rows.differs, rows.differs === 1 ? "differs" : "differ"),
    ...some(rows.pending, "pending"),
    foreignInWords(report),
    ...some(rows.elsewhere, "elsewhere on purpose"),
    ...some(rows.before, "before"),
    ...some(rows.unwatched, "unwatched"),
    ...some(rows.companion, "companion"),
    ...some(rows.duplicate, "duplicate"),
  ];
  const watched = since === null ? "not watched yet" : `watched since ${shortDate(since, now)}`;
  return `${count(rows.total, "row")}: ${parts.join(", ")}; ${watched}`;
}

/** Never "0 foreign" where a row is suspected, or where a foreign row could not have been seen. */
function foreignInWords({ rows, state }: MirrorReport): string {
  const { foreign_certain: certain, foreign_suspected: suspected } = rows;
  if (certain > 0)
    return `${exact(certain)} foreign${suspected > 0 ? `, ${exact(suspected)} suspected` : ""}`;
  if (suspected > 0) return `${exact(suspected)} suspected foreign`;
  return state === "cannot-see" ? "foreign not known" : "0 foreign";
}

/** sub2api (detected) */
export function kindInWords({ kind, detected }: Pick<ConsoleStatus, "kind" | "detected">): string {
  if (kind === null) return "of a kind that is not known yet";
  return detected ? `${kind} (detected)` : kind;
}

/** What is wrong with a console; null: nothing. */
export function trouble(status: ConsoleStatus, now: number): Note | null {
  const { state, why, next, last_sync: read, next_sync: again, progress } = status;
  if (state === "ok") return why === null ? null : { what: why, next };
  if (state === "syncing") return { what: `syncing${progressInWords(progress)}`, next };
  const reason = why === null ? state : `${state}: ${why}`;
  const parts = [state === "cannot-see" ? `cannot see${why === null ? "" : `: ${why}`}` : reason];
  if (again !== null) parts.push(`tried again ${whenInWords(again, now)}`);
  // Old numbers do not show what happened since the last sync, so say so.
  if (read !== null && state !== "cannot-see" && state !== "waiting")
    parts.push(`what was used since the last sync, ${ago(now - read)} ago, is not known`);
  return { what: parts.join("; "), next };
}

export function progressInWords(progress: ConsoleStatus["progress"]): string {
  if (progress === null) return "";
  const { done, total } = progress;
  return total === null ? `: ${count(done, "row")}` : `: ${exact(done)} of ${count(total, "row")}`;
}

/** last sync 12 s ago */
export function lastSync({ last_sync: at }: Pick<ConsoleStatus, "last_sync">, now: number): string {
  return at === null ? "never synced" : `last sync ${ago(now - at)} ago`;
}
