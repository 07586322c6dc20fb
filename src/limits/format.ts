import type { Period } from "../config/schema.ts";
import { dollars, exact, exactDollars, roundedDollars, twoDigits } from "../core/units.ts";
import type { Kind, LimitKind } from "./counters.ts";
import type { Calendar, LocalTime } from "./windows.ts";

/* Amounts, durations and times as people read them. */

/** What counts under a limit. */
export interface LimitUse {
  /** null: unknown. */
  readonly used: number | null;
  /** How much of it is estimated; null: unknown. */
  readonly estimated?: number | null;
  /** Reserved for requests in flight; null: unknown. */
  readonly held: number | null;
  /** `extra` included. */
  readonly max: number;
  /** How much of `max` is an extra allowance. */
  readonly extra?: number;
  /** What one more request may use. */
  readonly need?: number;
}

/** As text, without a unit. null: there is none, or it is unknown. */
interface LimitFigures {
  readonly used: string | null;
  readonly estimated: string | null;
  readonly held: string | null;
  /** $5.00, and with an extra allowance $5.00+$2.00. */
  readonly max: string;
  readonly need: string | null;
}

/**
 * How full a limit is, in the same figures everywhere: `tools`, `status`, `doctor`, refusals, the dashboard.
 *
 * - A limit has all its digits, as an amount from config.yaml or a command: $5.00, $0.0125. Requests and tokens are never
 *   rounded. An extra allowance is named beside it: $5.00+$2.00.
 * - Money that was counted is rounded as all money is (core/units.ts): $4.10, $0.017.
 * - Rounding never moves an amount across its limit. It gets more digits instead: $4.998 of $5.00 while there is room, and
 *   $5.00 of $5.00 only at the limit. The same holds for used and held together, and in a refusal for these and what the
 *   request may use: by the figures shown, too, they are above the limit.
 * - `used` is what requests cost, or an estimate of it where that is unknown. What is held for requests in flight is not
 *   part of it. Both are named: $1.44 of $5.00 used, incl. $0.10 estimated, $0.48 reserved for requests in flight.
 * - A sum that lacks unknown amounts says so wherever it is shown: $2.47 + ? (costInWords in core/units.ts). A limit has
 *   none: what is unknown counts as estimated or as held.
 */
export function limitFigures(limit: LimitKind, use: LimitUse): LimitFigures {
  const { used, estimated, held, max, extra = 0, need = 0 } = use;
  const decimals = isMoney(limit) ? decimalsFor(used ?? 0, held ?? 0, need, max) : 0;
  const counted = (amount: number) => (isMoney(limit) ? dollars(amount, decimals) : exact(amount));
  return {
    used: used === null ? null : counted(used),
    estimated: estimated ? counted(estimated) : null,
    held: held ? counted(held) : null,
    max: maxInWords(limit, max, extra),
    need: need > 0 ? counted(need) : null,
  };
}

/** Of a limit in a tool's status, which calls its maximum `most`. */
export function statusFigures(
  status: Omit<LimitUse, "max"> & { readonly limit: LimitKind; readonly most: number },
): LimitFigures {
  return limitFigures(status.limit, { ...status, max: status.most });
}

/** Of a quota that the gateway's console reports. */
export function consoleFigures(used: number | null, max: number): LimitFigures {
  return limitFigures("quota", { used, held: 0, max });
}

function maxInWords(limit: LimitKind, max: number, extra: number): string {
  const set = isMoney(limit) ? exactDollars : exact;
  return extra > 0 ? `${set(max - extra)}+${set(extra)}` : set(max);
}

/** The fewest decimals with which no amount shown crosses the limit. Six decimals are exact. */
function decimalsFor(used: number, held: number, need: number, max: number): number {
  const taken = used + held;
  for (let decimals = 2; decimals < 6; decimals += 1) {
    const shownUsed = roundedDollars(used, decimals);
    const shownTaken = shownUsed + roundedDollars(held, decimals);
    const shownAll = shownTaken + roundedDollars(need, decimals);
    const keepsOrder =
      shownUsed >= max === used >= max &&
      shownTaken >= max === taken >= max &&
      (need === 0 || shownAll > max === taken + need > max);
    if (keepsOrder) return decimals;
  }
  return 6;
}

function isMoney(limit: LimitKind): boolean {
  return limit === "spend" || limit === "quota";
}

/** requests/minute, concurrent, quota: as in config.yaml. */
export function limitName({
  limit,
  per,
}: {
  readonly limit: LimitKind;
  readonly per: Period | null;
}): string {
  return per === null ? limit : `${limit}/${per}`;
}

/** Nothing is left of a limit until its window ends. Requests in flight may return what is reserved for them. */
export function isUsedUp({ used, most }: { readonly used: number | null; readonly most: number }): boolean {
  return used !== null && used >= most;
}

/**
 * 400,000 tokens, 60 requests, $5.00: an amount from config.yaml or a command. Money and calls at once have no unit.
 * @param extra how much of it is an extra allowance
 */
export function amountInWords(limit: LimitKind, amount: number, extra = 0): string {
  const text = maxInWords(limit, amount, extra);
  if (isMoney(limit) || limit === "concurrent") return text;
  return `${text} ${amount === 1 ? limit.slice(0, -1) : limit}`;
}

/** An amount as an option of a command: 60, or dollars without the sign, rounded up to a cent. */
export function amountToType(kind: Kind, amount: number): string {
  return String(kind === "spend" ? Math.ceil(amount / 10_000) / 100 : amount);
}

/** 400,000, $4.10: an amount that was counted. */
export function countInWords(limit: LimitKind, amount: number): string {
  return isMoney(limit) ? dollars(amount) : exact(amount);
}

/** Rounded up: a retry after that time finds capacity. */
export function durationInWords(ms: number): string {
  const seconds = Math.max(1, Math.ceil(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  return `${Math.ceil(hours / 24)} days`;
}

/** In local time, as short as possible: at 14:05, tomorrow at 00:00, on 2026-12-01 at 14:05, on 2026-12-01 for its start. */
export function momentInWords(time: number, now: number, calendar: Calendar): string {
  const then = calendar.at(time);
  const today = calendar.at(now);
  const clock = `at ${timeInWords(then)}`;
  if (sameDay(then, today)) return clock;
  const tomorrow = calendar.at(calendar.dayStart(today.year, today.month, today.day + 1));
  if (sameDay(then, tomorrow)) return `tomorrow ${clock}`;
  const isStart = calendar.dayStart(then.year, then.month, then.day) === time;
  return `on ${dateInWords(then)}${isStart ? "" : ` ${clock}`}`;
}

/**
 * The end of something, local time: 2026-11-15 18:00, or the end of 2026-11-15. A date in config.yaml or on the command line
 * includes that day, so midnight is shown as the end of the day before.
 */
export function endInWords(time: number, calendar: Calendar): string {
  const end = calendar.at(time);
  if (calendar.dayStart(end.year, end.month, end.day) === time)
    return `the end of ${dateInWords(calendar.at(time - 1))}`;
  return `${dateInWords(end)} ${timeInWords(end)}`;
}

/** Anything may have been sent as a model's name, and a terminal may show it. */
export function printableModel(model: string): string {
  const plain = model.replace(/[^\x20-\x7e]/g, "?");
  return plain.length > 100 ? `${plain.slice(0, 100)}…` : plain;
}

function dateInWords({ year, month, day }: LocalTime): string {
  return `${year}-${twoDigits(month)}-${twoDigits(day)}`;
}

function timeInWords({ hour, minute, second }: LocalTime): string {
  return `${twoDigits(hour)}:${twoDigits(minute)}${second === 0 ? "" : `:${twoDigits(second)}`}`;
}

function sameDay(a: LocalTime, b: LocalTime): boolean {
  return a.year === b.year && a.month === b.month && a.day === b.day;
}
