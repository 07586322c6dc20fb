import type { Measured } from "./result.ts";
import { median } from "./statistics.ts";

/** What keybearer does besides passing requests on. */
export function houseLines({ flat, reload, house }: Measured): string[] {
  const { reports, journal, sync, match, lookups } = house;
  const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(0)} MB`;
  const whole = (value: number) => value.toFixed(0);
  return [
    ...flat.map(
      ({ candidate, requests, rssBytes, growth }) =>
        `${candidate} over ${requests} requests: ${megabytes(rssBytes[0] ?? 0)} to ${megabytes(rssBytes.at(-1) ?? 0)}, grown by a factor of ${growth.toFixed(2)}`,
    ),
    ...(reload === null
      ? []
      : [
          `a change in a config.yaml of ${reload.tools} tools holds after ${whole(median(reload.heldAfterMs))} ms; the longest a request waited meanwhile: ${whole(median(reload.longestAnswerMs))} ms`,
        ]),
    ...(journal === null
      ? []
      : [
          ...journal.appends.map(
            ({ atOnce, perSecond, cpuMicroseconds }) =>
              `usage journal, ${atOnce} requests at once: ${whole(perSecond)} records/s, ${whole(cpuMicroseconds)} µs of the processor each`,
          ),
          `usage index: ${whole(journal.indexing.perSecond)} records/s, ${whole(journal.indexing.cpuMicroseconds)} µs of the processor each`,
        ]),
    ...(reports === null
      ? []
      : [
          ...(reports.rebuiltMs === null
            ? []
            : [`index of ${reports.records} records, rebuilt: ${whole(reports.rebuiltMs / 1000)} s`]),
          `reports over ${reports.records} records (${whole(reports.megabytes)} MB, ${reports.rollups} rollups), median ms:`,
          ...reports.reports.map(({ name, rows, ms }) => `  ${name}: ${whole(ms)} (${rows} rows)`),
        ]),
    ...(sync === null
      ? []
      : [
          `sync of ${sync.rows} console rows: ${sync.syncs.map(({ ms }) => `${whole(ms)} ms`).join(", then ")}; longest step ${whole(Math.max(...sync.syncs.flatMap(({ writing, judging }) => [writing.longestMs, judging.longestMs])))} ms; ${sync.foreignFound} of ${sync.foreign} foreign rows found`,
        ]),
    ...match.map(
      ({ ids, rows, cpuMs }) =>
        `comparing ${rows} console rows ${ids ? "with" : "without"} ids: ${whole(cpuMs)} ms`,
    ),
    ...lookups.map(
      ({ others, ms, cpuMs }) =>
        `whose a new connection is, beside ${others} others: ${ms.toFixed(1)} ms, ${cpuMs.toFixed(1)} ms of the processor`,
    ),
  ].map((line, at) => (at === 0 ? `\n${line}` : line));
}
