/* Money, numbers and times as people read them. */

/**
 * $1,234.56, $0.12, $0.0081: cents; below one dollar, two significant digits. Only zero is $0.
 * @param least minimum number of decimals, for an amount that is compared with another
 */
export function dollars(microdollars: number, least = 2): string {
  return formatExact(roundedDollars(microdollars, least));
}

/** $5.00, $0.0125: every digit of an amount from config.yaml or a command, such as a limit or a price. */
export function exactDollars(microdollars: number): string {
  return formatExact(Math.round(microdollars));
}

/** $2.47, $? for an unknown amount, and $2.47 + ? for a sum that lacks unknown amounts. */
export function costInWords(microdollars: number | null, unknown = 0): string {
  if (microdollars === null || (microdollars === 0 && unknown > 0)) return "$?";
  return unknown > 0 ? `${dollars(microdollars)} + ?` : dollars(microdollars);
}

/** What dollars() shows, in micro-dollars. */
export function roundedDollars(microdollars: number, least = 2): number {
  const value = Math.abs(microdollars) / 1_000_000;
  let decimals = least;
  // Rounding first, because it may carry: 0.000999 is $0.001.
  if (value > 0 && value < 0.995)
    decimals = Math.min(6, Math.max(least, 1 - Math.floor(Math.log10(Number(value.toPrecision(2))))));
  // On whole micro-dollars: as a float, 1.005 is less than that.
  const step = 10 ** (6 - decimals);
  return Math.sign(microdollars) * Math.round(Math.abs(microdollars) / step) * step;
}

/** At least cents, and no zeros at the end after them. */
function formatExact(microdollars: number): string {
  if (microdollars === 0) return "$0";
  const digits = (Math.abs(microdollars) / 1_000_000).toFixed(6).replace(/0{1,4}$/, "");
  return `${microdollars < 0 ? "-" : ""}$${grouped(digits)}`;
}

/** 1,234,567 */
export function exact(number: number): string {
  return grouped(String(number));
}

function grouped(digits: string): string {
  const [whole = "", ...fraction] = digits.split(".");
  return [whole.replace(/\B(?=(?:\d{3})+$)/g, ","), ...fraction].join(".");
}

/** 2026-11-01 02:03:04, in local time. */
export function localTime(at: number): string {
  const date = new Date(at);
  return `${dayName(at)} ${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}:${twoDigits(date.getSeconds())}`;
}

/** 2026-11-01, in local time. */
export function dayName(at: number): string {
  const date = new Date(at);
  return `${String(date.getFullYear()).padStart(4, "0")}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`;
}

/** 07 */
export function twoDigits(number: number): string {
  return String(number).padStart(2, "0");
}

/** 878 ms, 2.3 s, 75 s, 12 min */
export function duration(ms: number): string {
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 599_500 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / MINUTE_MS)} min`;
}

/** The minute that ends then or after it: by its end, a window that resets at that time is sure to have been reset. */
export function wholeMinute(time: number): number {
  return Math.ceil(time / MINUTE_MS) * MINUTE_MS;
}

export const MINUTE_MS = 60_000;
/** The offset of every time zone is a multiple of it, and changes only at such times. */
export const QUARTER_MS = 15 * MINUTE_MS;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;
