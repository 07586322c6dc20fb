/** A time zone in which it is between 12:00 and 13:00 now, so that no day ends during a test. */
export function zoneAtNoon(): string {
  const hours = 12 - new Date().getUTCHours();
  // Etc/GMT-2 is two hours ahead of UTC.
  return hours > 0 ? `Etc/GMT-${hours}` : `Etc/GMT+${-hours}`;
}
