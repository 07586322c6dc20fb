/* Money, numbers and times as people read them. */

/** $1,234.56, $0.12, $0.0081: below a dollar two significant digits, and never $0.00 for an amount above 0. */
export function dollars(microdollars: number): string {
  const sign = microdollars < 0 ? "-" : "";
  const value = Math.abs(microdollars) / 1_000_000;
  if (value === 0) return "$0";
  // Rounding first, because it may carry: 0.000999 is $0.0010.
  const digits = value >= 0.995 ? 2 : Math.min(6, 1 - Math.floor(Math.log10(Number(value.toPrecision(2)))));
  return `${sign}$${grouped(value.toFixed(digits))}`;
}

/** 1,234,567 */
export function exact(number: number): string {
  return grouped(String(number));
}

function grouped(digits: string): string {
  const [whole = "", ...fraction] = digits.split(".");
  return [whole.replace(/\B(?=(?:\d{3})+$)/g, ","), ...fraction].join(".");
}

/** 878 ms, 2.3 s, 75 s, 12 min */
export function duration(ms: number): string {
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 599_500 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`;
}
