import { localTime } from "../../usage/reports/calendar.ts";
import { dollars } from "../../usage/reports/format.ts";

/** $8.10, and $50 without its cents where there are none. */
export function money(microdollars: number): string {
  return dollars(microdollars).replace(/\.00$/, "");
}

export function moneyOrUnknown(microdollars: number | null): string {
  return microdollars === null ? "?" : dollars(microdollars);
}

/** ×1.5; what a float cannot hold exactly is not shown. */
export function factor(value: number): string {
  return `×${Number(value.toPrecision(4))}`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** 3 Nov, and with its year where that is not this one. Local. */
export function dayInWords(at: number, now: number): string {
  const date = new Date(at);
  const year = date.getFullYear() === new Date(now).getFullYear() ? "" : ` ${date.getFullYear()}`;
  return `${date.getDate()} ${MONTHS[date.getMonth()]}${year}`;
}

/** 14:02, and with its day where that is not today. Local. */
export function timeOfDay(at: number, now: number, seconds = false): string {
  const time = localTime(at).slice(11, seconds ? undefined : 16);
  return localTime(at).slice(0, 10) === localTime(now).slice(0, 10) ? time : `${dayInWords(at, now)} ${time}`;
}

/** codex, codex and chat, or so many of them and how many more. */
export function listed(names: readonly string[], most = 5): string {
  if (names.length > most) return `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
  const [last, ...others] = names.toReversed();
  return others.length === 0 ? (last ?? "") : `${others.toReversed().join(", ")} and ${last}`;
}
