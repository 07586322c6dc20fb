import { localTime } from "../../core/units.ts";
import { offsetName } from "../../usage/reports/calendar.ts";

/** ×1.5; rounded to four digits, because a float may be 1.2000000001. */
export function formatFactor(value: number): string {
  return `×${Number(value.toPrecision(4))}`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** 3 Nov, or 3 Nov 2025 in another year. Local time. */
export function shortDate(at: number, now: number): string {
  const date = new Date(at);
  const year = date.getFullYear() === new Date(now).getFullYear() ? "" : ` ${date.getFullYear()}`;
  return `${date.getDate()} ${MONTHS[date.getMonth()]}${year}`;
}

/** 14:02, or 3 Nov 14:02 on another day. Local time. */
export function timeOfDay(at: number, now: number, seconds = false): string {
  const time = localTime(at).slice(11, seconds ? undefined : 16);
  return localTime(at).slice(0, 10) === localTime(now).slice(0, 10) ? time : `${shortDate(at, now)} ${time}`;
}

/** 2026-11-15 14:10:57.700 +00:00, in local time. */
export function exactTime(at: number): string {
  return `${localTime(at)}.${String(at % 1000).padStart(3, "0")} ${offsetName(at)}`;
}

/** codex and chat; beyond `max`: a, b, c, d, e and 3 more. */
export function joinNames(names: readonly string[], max = 5): string {
  if (names.length > max) return `${names.slice(0, max).join(", ")} and ${names.length - max} more`;
  const [last, ...others] = names.toReversed();
  return others.length === 0 ? (last ?? "") : `${others.toReversed().join(", ")} and ${last}`;
}

/** 12 KB or 3.4 MB */
export function fileSize(bytes: number): string {
  return bytes < 100_000 ? `${Math.ceil(bytes / 1000)} KB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** How long something took or how old it is: 12 s, 3 min, 5 h, 4 days. */
export function ago(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} days`;
}
