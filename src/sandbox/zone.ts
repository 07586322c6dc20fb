/** A place on earth, for dates: the console filters by day, and a day begins at a different moment everywhere. */
export interface Zone {
  readonly name: string;
  /** RFC 3339 with the offset of this place, as 2026-11-15T10:08:00.123+08:00. */
  format(time: number): string;
  /** The first moment of a day written YYYY-MM-DD, or null when there is no such day. */
  startOf(day: string): number | null;
  /** The day on which a moment falls. */
  dayOf(time: number): string;
}

const DAY = 24 * 60 * 60 * 1000;

/** Null when there is no place of this IANA name. */
export function createZone(name: string): Zone | null {
  let parts: Intl.DateTimeFormat;
  try {
    parts = new Intl.DateTimeFormat("en-US", {
      timeZone: name,
      hourCycle: "h23",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
    });
  } catch {
    return null;
  }

  /** Milliseconds to add to UTC to get what a clock on the wall shows. */
  function offsetAt(time: number): number {
    const at: Partial<Record<Intl.DateTimeFormatPartTypes, number>> = {};
    for (const { type, value } of parts.formatToParts(time)) at[type] = Number(value);
    const wall = Date.UTC(
      at.year ?? 1970,
      (at.month ?? 1) - 1,
      at.day ?? 1,
      at.hour ?? 0,
      at.minute ?? 0,
      at.second ?? 0,
    );
    return wall - Math.floor(time / 1000) * 1000;
  }

  const wallText = (time: number) => new Date(time + offsetAt(time)).toISOString();

  return {
    name,
    format(time) {
      const minutes = Math.round(offsetAt(time) / 60_000);
      const size = Math.abs(minutes);
      const two = (n: number) => String(n).padStart(2, "0");
      const offset = `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
      return wallText(time).replace("Z", offset);
    },
    startOf(day) {
      if (!/^\d{4}-\d{2}-\d{2}$/.test(day)) return null;
      const utc = Date.parse(`${day}T00:00:00Z`);
      // 31 April rolls over into May instead of failing.
      if (Number.isNaN(utc) || !new Date(utc).toISOString().startsWith(day)) return null;
      // The offset is that of the answer, not of the guess: near a change of the clocks they differ.
      const guess = utc - offsetAt(utc);
      return utc - offsetAt(guess);
    },
    dayOf: (time) => wallText(time).slice(0, 10),
  };
}

/** The day after a day written YYYY-MM-DD. */
export function dayAfter(day: string): string {
  return new Date(Date.parse(`${day}T00:00:00Z`) + DAY).toISOString().slice(0, 10);
}
