import type { Language, Translate } from "./messages/messages.ts";

/** Moments as people read them in either language. Numbers and money come from core/units.ts. */

/** Longer than this, a time of day says more than a number of minutes. */
const BY_SPAN_MS = 2 * 3_600_000;

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
  const then = new Date(time);
  const today = new Date(now);
  const clock = `${two(then.getHours())}:${two(then.getMinutes())}`;
  if (then.toDateString() === today.toDateString()) return clock;
  const day = `${two(then.getMonth() + 1)}-${two(then.getDate())}`;
  return then.getFullYear() === today.getFullYear()
    ? `${day} ${clock}`
    : `${then.getFullYear()}-${day} ${clock}`;
}

/** 14:02:31 */
export function clockInWords(time: number): string {
  const then = new Date(time);
  return `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
}

/** 2026-11-03, by the reader's calendar. */
export function dayOf(time: number): string {
  const then = new Date(time);
  return `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())}`;
}

/** in 12 min, today 23:00, tomorrow 00:00, 2026-12-01 00:00 */
export function whenInWords(time: number, now: number, t: Translate): string {
  if (time <= now) return t("frame.now");
  if (time - now <= BY_SPAN_MS) return t("frame.in", { span: spanInWords(time - now + 999, t) });
  const then = new Date(time);
  const clock = `${two(then.getHours())}:${two(then.getMinutes())}`;
  const today = new Date(now);
  const tomorrow = new Date(today.getFullYear(), today.getMonth(), today.getDate() + 1);
  if (then.toDateString() === today.toDateString()) return t("when.today", { clock });
  if (then.toDateString() === tomorrow.toDateString()) return t("when.tomorrow", { clock });
  return clock === "00:00" ? dayOf(time) : `${dayOf(time)} ${clock}`;
}

/** The whole of it, for a title or a screen reader: 3 November 2026 at 14:02:31 GMT+8 */
export function momentInWords(time: number, language: Language): string {
  return new Intl.DateTimeFormat(language, { dateStyle: "long", timeStyle: "long" }).format(time);
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}
