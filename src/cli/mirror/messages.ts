import { advice } from "../../core/advice.ts";
import { dollars, exact, MINUTE_MS } from "../../core/units.ts";
import { alarmClaim, alarmRemedy } from "../../mirror/report/messages.ts";
import { type ShownCount, shownCounts } from "../../mirror/report/notable.ts";
import type { Alarm, ConsoleStatus, MirrorReport, VerdictCounts } from "../../mirror/report/shape.ts";
import { count } from "../../usage/reports/format.ts";
import { whenInWords } from "../tools/limit-lines.ts";
import { indentedNote, type Note } from "../ui/messages.ts";
import { color } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";
import { ago, joinNames, shortDate, timeOfDay } from "../ui/units.ts";

/* Consoles and alarms as `mirror`, `status` and `doctor` describe them. */

/** Printed by `mirror`, `status` and `mirror sync`: what happened, why it is only suspected, and what to do. */
export function alarmLines(alarm: Alarm, now: number, width: number): string[] {
  const { certain, reason, gateway } = alarm;
  const lines = [wrap(printable(`${alarmTitle(alarm)}  ${alarmSentence(alarm, now)}`), width)];
  if (!certain && reason !== null) lines.push(...indentedNote({ what: `why: ${reason}`, next: null }, width));
  lines.push(...indentedNote({ what: formatRemedy(alarm, now), next: null }, width));
  lines.push(...indentedNote({ what: "once you have handled it", next: advice.mirrorAck(gateway) }, width));
  return lines;
}

/** Colors the titles of alarmLines(). Last, because printable() would remove the colors again. */
export function colorAlarms(text: string): string {
  return text
    .replace(/^ALARM(?= {2})/gm, color("red", "ALARM"))
    .replace(/^SUSPECTED(?= {2})/gm, color("yellow", "SUSPECTED"));
}

export function alarmTitle({ certain }: Alarm): string {
  return certain ? "ALARM" : "SUSPECTED";
}

/** key …a1b2 of codex was used outside keybearer: 3 requests, $0.42, models gpt-5.1, first 14:02, last 14:09 */
export function alarmSentence(alarm: Alarm, now: number): string {
  const { models, ips } = alarm;
  const first = timeOfDay(alarm.first_at, now);
  const last = timeOfDay(alarm.last_at, now);
  const facts = [
    count(alarm.count, "request"),
    dollars(alarm.billed_microdollars),
    ...(models.length === 0 ? [] : [`${models.length === 1 ? "model" : "models"} ${joinNames(models)}`]),
    first === last ? `at ${first}` : `first ${first}, last ${last}`,
    ...(ips.length === 0 ? [] : [`from ${joinNames(ips)}`]),
  ];
  return `${alarmClaim(alarm)}: ${facts.join(", ")}`;
}

export function formatRemedy(alarm: Alarm, now: number): string {
  return alarmRemedy(alarm, (at) => timeOfDay(at, now));
}

export function certainFirst(alarms: readonly Alarm[]): Alarm[] {
  return alarms.toSorted((a, b) => Number(b.certain) - Number(a.certain));
}

/** 1,204 rows: 1,198 by id, 6 presumed, 0 foreign; watched since 3 Nov */
export function headline(report: MirrorReport, now: number): string {
  const { rows, watched_since: since } = report;
  const counts = shownCounts(report);
  if (counts === null) return "its rows were never read, so nothing is known";
  const parts = counts.map(({ name, count }) =>
    count === null ? "foreign not known" : `${exact(count)} ${countName(name, rows)}`,
  );
  const watched = since === null ? "not watched yet" : `watched since ${shortDate(since, now)}`;
  return `${count(rows.total, "row")}: ${parts.join(", ")}; ${watched}`;
}

function countName(name: ShownCount["name"], rows: VerdictCounts): string {
  if (name === "differs") return rows.differs === 1 ? "differs" : "differ";
  if (name === "elsewhere") return "elsewhere on purpose";
  if (name === "foreign_certain") return "foreign";
  if (name === "foreign_suspected") return rows.foreign_certain > 0 ? "suspected" : "suspected foreign";
  return name.replace("_", " ");
}

/** sub2api (detected) */
export function formatKind({ kind, detected }: Pick<ConsoleStatus, "kind" | "detected">): string {
  if (kind === null) return "kind not known yet";
  return detected ? `${kind} (detected)` : kind;
}

/** cannot see: laptop since 14:02, desktop since 3 Nov 09:30; null: all machines are seen. */
export function unseenMachines({ unseen_machines: unseen }: MirrorReport, now: number): string | null {
  if (unseen.length === 0) return null;
  const names = unseen.map(
    ({ machine, since }) => `${machine} since ${since === null ? "it joined" : timeOfDay(since, now)}`,
  );
  return `cannot see: ${names.join(", ")}`;
}

/** What is wrong with a console; null: nothing. */
export function consoleProblem(status: ConsoleStatus, now: number): Note | null {
  const { state, why, next, last_sync: lastSyncAt, next_sync: nextSyncAt } = status;
  if (state === "ok") return why === null ? null : { what: why, next };
  if (state === "syncing") return { what: `syncing${formatProgress(status, now)}`, next };
  const name = state === "cannot-see" ? "cannot see" : state;
  const parts = [why === null ? name : `${name}: ${why}`];
  if (nextSyncAt !== null) parts.push(`next try ${whenInWords(nextSyncAt, now)}`);
  // The numbers are from the last sync and do not show what happened since.
  if (lastSyncAt !== null && state !== "cannot-see" && state !== "waiting")
    parts.push(`usage since the last sync, ${ago(now - lastSyncAt)} ago, is not known`);
  return { what: parts.join("; "), next };
}

export function formatProgress(
  { progress, limited_until: limited }: Pick<ConsoleStatus, "progress" | "limited_until">,
  now: number,
): string {
  const parts: string[] = [];
  if (progress !== null) {
    const { done, total } = progress;
    parts.push(total === null ? count(done, "row") : `${exact(done)} of ${count(total, "row")}`);
  }
  const until = limited?.rows ?? limited?.keys ?? null;
  if (until !== null) parts.push(limitWait(until, now));
  return parts.length === 0 ? "" : `: ${parts.join(", ")}`;
}

/** waiting for the console's limit, about 40 s */
export function limitWait(until: number, now: number): string {
  const seconds = Math.max(1, Math.ceil((until - now) / 10_000)) * 10;
  return `waiting for the console's limit, about ${seconds} s`;
}

/** The console is read less often than this only where its limit makes that necessary. */
const USUAL_INTERVAL_MS = 5 * MINUTE_MS;

/** last sync 12 s ago, every 60 s */
export function formatLastSync(
  { last_sync: at, interval = null }: Pick<ConsoleStatus, "last_sync" | "interval">,
  now: number,
): string {
  if (at === null) return "never synced";
  const last = `last sync ${ago(now - at)} ago`;
  if (interval === null) return last;
  const limited = interval > USUAL_INTERVAL_MS ? ", as the console's limit allows without a login" : "";
  return `${last}, every ${ago(interval)}${limited}`;
}
