import { costInWords, dayName, duration, exact, localTime } from "../../../../core/units.ts";
import { isBilledLater } from "../../../../metering/protocols.ts";
import { mayCost } from "../../../../usage/record.ts";
import type { Outcome } from "../../../../usage/reports/names.ts";
import type { ShownRecord, UsageSums } from "../../../api.ts";
import { clockInWords } from "../../format.ts";
import type { Translate } from "../../messages/messages.ts";
import type { Span } from "./period.ts";

/** How many of the requests that were not refused here failed; null: there were none. */
export function errorRate({ failed, interrupted, requests, refused }: UsageSums): number | null {
  const sent = requests - refused;
  return sent <= 0 ? null : (failed + interrupted) / sent;
}

/** +12 %, -3 %; null: there was nothing before, or nothing changed that one could see. */
export function changeInWords(now: number, before: number): string | null {
  if (before === 0) return null;
  const change = Math.round((now / before - 1) * 100);
  return `${change > 0 ? "+" : ""}${exact(change)}%`;
}

/** 2026-11-03 14:00:00 – 15:00:00 */
export function barTitle({ since, until }: Span): string {
  const isOneDay = dayName(since) === dayName(until - 1);
  return `${localTime(since)} – ${isOneDay ? clockInWords(until) : localTime(until)}`;
}

/** null: it has not ended. An answer that is an error is a failure, whoever made it. */
export function outcomeOf({ end, status }: Pick<ShownRecord, "end" | "status">): Outcome | null {
  if (end === "complete") return status !== null && status >= 400 ? "failed" : "complete";
  return end === "gateway-failed" ? "failed" : end;
}

/** failed (401), refused (rate-limited), complete ×20 */
export function outcomeInWords(record: ShownRecord, t: Translate): string {
  const outcome = outcomeOf(record);
  if (outcome === null) return t("outcome.running");
  const detail = outcome === "failed" && (record.status ?? 0) >= 400 ? record.status : record.refusal;
  const times = record.requests === 1 ? "" : ` ×${exact(record.requests)}`;
  return `${t(`outcome.${outcome}`)}${detail === null ? "" : ` (${detail})`}${times}`;
}

/** Whether there is nothing to pay for: a refusal, an error of the gateway, a list of models. */
export function isFree(record: ShownRecord): boolean {
  const { end, method, endpoint } = record;
  return end === "refused" || (!mayCost(record) && !isBilledLater(method, endpoint));
}

/** Unknown is not zero, and where nothing is paid for there is nothing to know. */
export function costOf(record: ShownRecord, microdollars: number | null): string {
  return microdollars === null && isFree(record) ? "–" : costInWords(microdollars);
}

/** Of sums, which may lack requests of unknown cost. */
export function costOfSums({ cost_microdollars: cost, unpriced, unmetered }: UsageSums): string {
  return costInWords(cost, unpriced + unmetered);
}

/** How long after its beginning something happened. Clocks are set, even during a request. */
export function sinceBegin({ started_at: began }: ShownRecord, at: number | null): string {
  return at === null ? "–" : duration(Math.max(0, at - began));
}
