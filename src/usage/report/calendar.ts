import { SLOT_MS } from "../ledger/cells.ts";

const HOUR_SLOTS = 4;

/** A day or an hour of this machine's calendar, from one slot to another, which is not part of it. */
export interface Bin {
  /** 2026-11-01, or 2026-11-01T02:00+01:00, which tells the two of the hour that is there twice apart. */
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

/** The local days that the slots touch, the first and the last cut to them. */
export function daysOf(from: number, to: number): Bin[] {
  const bins: Bin[] = [];
  for (let slot = from; slot < to; ) {
    const date = new Date(slot * SLOT_MS);
    const next = new Date(date.getFullYear(), date.getMonth(), date.getDate() + 1).getTime() / SLOT_MS;
    // A day that a zone left out (Samoa, 2011) begins no later than it ends.
    const end = Math.min(to, Math.max(slot + 1, Math.ceil(next)));
    bins.push({ name: dayName(slot * SLOT_MS), from: slot, to: end });
    slot = end;
  }
  return bins;
}

/**
 * The local hours. Where the clocks go back, one is there twice; where they go forward, one is not there. A year has so
 * many that each is looked up once, and what it has in common with the one before is not spelled out again.
 */
export function hoursOf(from: number, to: number): Bin[] {
  const bins: Bin[] = [];
  let date = new Date(from * SLOT_MS);
  let [day, dayOfMonth, zone, offset] = ["", 0, "", Number.NaN];
  for (let slot = from; slot < to; ) {
    if (date.getDate() !== dayOfMonth) [day, dayOfMonth] = [dayName(slot * SLOT_MS), date.getDate()];
    if (date.getTimezoneOffset() !== offset)
      [zone, offset] = [offsetName(slot * SLOT_MS), date.getTimezoneOffset()];
    const name = `${day}T${two(date.getHours())}:00${zone}`;
    let end = slot + HOUR_SLOTS - Math.floor(date.getMinutes() / 15);
    date = new Date(end * SLOT_MS);
    if (date.getTimezoneOffset() !== offset) {
      end = hourEnd(slot, end);
      date = new Date(end * SLOT_MS);
    }
    bins.push({ name, from: slot, to: Math.min(to, end) });
    slot = end;
  }
  return bins;
}

/** The slot with which the next hour begins, where the clocks change before `usual` or with it. */
function hourEnd(slot: number, usual: number): number {
  const current = hourOf(slot);
  if (hourOf(usual - 1) === current) return usual;
  let end = slot + 1;
  while (hourOf(end) === current) end += 1;
  return end;
}

/** The local months that the slots touch, the first and the last cut to them. */
export function monthsOf(from: number, to: number): Bin[] {
  const bins: Bin[] = [];
  for (let slot = from; slot < to; ) {
    const date = new Date(slot * SLOT_MS);
    const next = new Date(date.getFullYear(), date.getMonth() + 1, 1).getTime() / SLOT_MS;
    const end = Math.min(to, Math.max(slot + 1, Math.ceil(next)));
    bins.push({ name: dayName(slot * SLOT_MS).slice(0, 7), from: slot, to: end });
    slot = end;
  }
  return bins;
}

/** A number that is another one in the next hour, and when the clocks change. */
function hourOf(slot: number): number {
  const date = new Date(slot * SLOT_MS);
  return date.getHours() + date.getTimezoneOffset() * 24;
}

/** As many bins as fit, of the same number of days each, the last one full: for a line that shows how it went. */
export function stretchesOf(bins: readonly Bin[], most: number): Bin[] {
  const size = Math.ceil(bins.length / most);
  const stretches: Bin[] = [];
  for (let end = bins.length; end > 0; end -= size) {
    const first = bins[Math.max(0, end - size)];
    const last = bins[end - 1];
    if (first !== undefined && last !== undefined)
      stretches.unshift({ name: first.name, from: first.from, to: last.to });
  }
  return stretches;
}

export function dayName(at: number): string {
  const date = new Date(at);
  return `${String(date.getFullYear()).padStart(4, "0")}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

export function hourName(at: number): string {
  return `${dayName(at)}T${two(new Date(at).getHours())}:00${offsetName(at)}`;
}

/** +01:00 */
export function offsetName(at: number): string {
  const minutes = -new Date(at).getTimezoneOffset();
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** 2026-11-01 02:03:04, as the clock on the wall showed it. */
export function localTime(at: number): string {
  const date = new Date(at);
  return `${dayName(at)} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}
