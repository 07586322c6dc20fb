/** Numbers as people read them. */

/** $1,234.56, $0.12, $0.0081: two digits that count, and never a zero that is none. */
export function dollars(microdollars: number): string {
  const sign = microdollars < 0 ? "-" : "";
  const value = Math.abs(microdollars) / 1_000_000;
  if (value === 0) return "$0";
  // Rounded first, because that may carry: 0.000999 is $0.0010.
  const digits = value >= 0.995 ? 2 : Math.min(6, 1 - Math.floor(Math.log10(Number(value.toPrecision(2)))));
  return `${sign}$${grouped(value.toFixed(digits))}`;
}

/** 1,234,567 */
export function exact(number: number): string {
  return grouped(String(number));
}

function grouped(digits: string): string {
  const dot = digits.indexOf(".");
  const whole = dot < 0 ? digits : digits.slice(0, dot);
  // Most are short, and a long report has a hundred thousand of them.
  if (whole.length <= 3) return digits;
  return whole.replace(/\B(?=(?:\d{3})+$)/g, ",") + digits.slice(whole.length);
}

const UNITS: readonly (readonly [number, string])[] = [
  [1e12, "T"],
  [1e9, "B"],
  [1e6, "M"],
  [1e3, "k"],
];

/** 999, 1.2k, 45k, 3.4M */
export function short(number: number): string {
  if (number < 1000) return String(Math.round(number));
  for (const [size, unit] of UNITS) {
    // What would be shown as 1000 of the smaller unit is one of this.
    if (number < size * 0.9995) continue;
    const value = number / size;
    return `${value < 9.95 ? value.toFixed(1) : Math.round(value)}${unit}`;
  }
  return String(Math.round(number));
}

/** 878 ms, 2.3 s, 75 s, 12 min */
export function duration(ms: number): string {
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 599_500 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`;
}

/** 0.4 %, 87 % */
export function percent(share: number): string {
  return share > 0 && share < 0.0095 ? `${(share * 100).toFixed(1)}%` : `${Math.round(share * 100)}%`;
}

export function count(number: number, noun: string): string {
  return `${exact(number)} ${noun}${number === 1 ? "" : "s"}`;
}
