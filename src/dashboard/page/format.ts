import { dayName, HOUR_MS, localTime } from "../../core/units.ts";
import type { Translate } from "./messages/messages.ts";

/** Moments as people read them in either language. Numbers and money come from core/units.ts. */

/** Longer than this, a time of day says more than a number of minutes. */
const BY_SPAN_MS = 2 * HOUR_MS;

/** 12 s, 3 min, 2 h, 5 d */
export function spanInWords(ms: number, t: Translate): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return t("frame.span.seconds", { n: seconds });
  if (seconds < 3600) return t("frame.span.minutes", { n: Math.floor(seconds / 60) });
  if (seconds < 48 * 3600) return t("frame.span.hours", { n: Math.floor(seconds / 3600) });
  return t("frame.span.days", { n: Math.floor(seconds / 86_400) });
}

export function agoInWords(time: number, now: number, t: Translate): string {
  const age = now - time;
  return age < 2000 ? t("frame.just-now") : t("frame.ago", { span: spanInWords(age, t) });
}

/** 14:02, and on another day 11-03 14:02; of another year with the year. */
export function timeInWords(time: number, now: number): string {
  const clock = clockInWords(time).slice(0, "14:02".length);
  const day = dayName(time);
  if (day === dayName(now)) return clock;
  const isOfThisYear = day.slice(0, "2026".length) === dayName(now).slice(0, "2026".length);
  return `${isOfThisYear ? dayOfYear(time) : day} ${clock}`;
}

/** 14:02:31 */
export function clockInWords(time: number): string {
  return localTime(time).slice("2026-11-03 ".length);
}

/** 11-03 */
export function dayOfYear(time: number): string {
  return dayName(time).slice("2026-".length);
}

/** now, in 12 min; later than that, as timeInWords() says it */
export function whenInWords(time: number, now: number, t: Translate): string {
  if (time <= now) return t("frame.now");
  if (time - now <= BY_SPAN_MS) return t("frame.in", { span: spanInWords(time - now + 999, t) });
  return timeInWords(time, now);
}

/** What is unknown is not zero: a dash stands for it. */
export function orDash<Value, Shown>(value: Value | null, show: (value: Value) => Shown): Shown | string {
  return value === null ? "–" : show(value);
}

/** What there is to say, one after the other; null: nothing. */
export function joined(parts: readonly (string | null)[], t: Translate): string {
  return parts.filter((part) => part !== null && part !== "").join(t("frame.comma"));
}
