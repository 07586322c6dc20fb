import { SUMS } from "../ledger/cells.ts";
import type { Report, ReportRow } from "./report.ts";
import { cacheShare } from "./sums.ts";
import { csvLine } from "./text.ts";

/** What the quota counts is no sum of what was used. */
const SHOWN = SUMS.filter((name) => name !== "counted_microdollars");

/** What `keybearer usage --json` prints. Counts and money are exact; what is unknown is in no sum but is counted. */
export function reportJson(report: Report, zone: string): object {
  const { by, period } = report.question;
  return {
    since: period.since,
    until: period.until,
    zone,
    by,
    rows: report.rows.map((row) => ({ ...namesOf(report, row), ...numbersOf(row) })),
    total: numbersOf(report.total),
    running: report.running,
    first_byte_exact: report.firstByte === "exact",
    models_without_price: report.unpriced,
    only_sums_before: report.prunedBefore,
  };
}

export function reportCsv(report: Report): string {
  const head = [...report.question.by, ...Object.keys(numbersOf(report.total))];
  const lines = report.rows.map((row) => csvLine([...row.names, ...Object.values(numbersOf(row))]));
  return csvLine(head) + lines.join("");
}

function namesOf(report: Report, row: ReportRow): Record<string, string | null> {
  return Object.fromEntries(report.question.by.map((dimension, at) => [dimension, row.names[at] ?? null]));
}

/** Put in one after the other: objects made of a list of entries take a year by hour three times as long to write. */
function numbersOf({ sums, firstByte }: ReportRow): Record<string, number | null> {
  const share = cacheShare(sums);
  const numbers: Record<string, number | null> = {};
  for (const name of SHOWN) numbers[name] = sums[name];
  // Nobody compared yet: then no console has said a number, which is not the same as zero.
  if (sums.billed_requests === 0) numbers.billed_microdollars = null;
  numbers.cache_share = share === null ? null : Math.round(share * 10_000) / 10_000;
  numbers.first_byte_p50_ms = firstByte.p50;
  numbers.first_byte_p95_ms = firstByte.p95;
  return numbers;
}
