import { isDaemonListening } from "../../control/client.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import { type Period, parseSince, parseUntil } from "../../usage/reports/calendar.ts";
import { jsonText } from "../../usage/reports/format.ts";
import {
  DIMENSIONS,
  type Dimension,
  emptyReport,
  type Question,
  type Report,
  readReport,
  reportCsv,
  reportJson,
} from "../../usage/reports/report.ts";
import { exitOnClosedOutput, fail } from "../ui/messages.ts";
import { stdoutScreen } from "../ui/terminal.ts";
import { printableLines } from "../ui/text.ts";
import { withLog } from "./log-file.ts";
import { zoneInWords } from "./report-table.ts";
import { reportInWords } from "./report-words.ts";

export interface FilterOptions {
  readonly since?: string;
  readonly until?: string;
  readonly tool?: readonly string[];
  readonly model?: readonly string[];
}

export interface ReportOptions extends FilterOptions {
  readonly by?: string;
  readonly json?: boolean;
  readonly csv?: boolean;
}

export async function report(options: ReportOptions): Promise<void> {
  const now = Date.now();
  const asked = questionOf(options, now);
  if (!asked.ok) return fail(asked.reason, EXIT.usage);
  exitOnClosedOutput();
  const { socket } = findPaths();
  await withLog(
    async (db) => {
      const found = readReport(db, asked.question, now);
      print(found, options, now, found.inFlight > 0 && (await isDaemonListening(socket)));
    },
    (words) => {
      if (options.json || options.csv) print(emptyReport(asked.question), options, now, false);
      else process.stdout.write(`${printableLines(words)}\n`);
    },
  );
}

function print(found: Report, options: ReportOptions, now: number, served: boolean): void {
  if (options.json) process.stdout.write(`${jsonText(reportJson(found, zoneInWords(now)), 2)}\n`);
  else if (options.csv) process.stdout.write(reportCsv(found));
  else {
    const screen = stdoutScreen();
    process.stdout.write(reportInWords(found, { now, screen, served }));
  }
}

type Asked =
  | { readonly ok: true; readonly question: Question }
  | { readonly ok: false; readonly reason: string };

export function questionOf(options: ReportOptions, now: number): Asked {
  const by = [...new Set((options.by ?? "tool").split(",").map((name) => name.trim()))];
  const unknown = by.find((name) => !DIMENSIONS.includes(name as Dimension));
  if (unknown !== undefined)
    return no(`--by: "${unknown}" is none of ${DIMENSIONS.join(", ")}. two go with a comma: --by day,tool`);
  if (by.length > 2) return no("--by takes one or two, such as --by day,tool");
  if (by.includes("day") && by.includes("hour")) return no("--by takes day or hour, not both");
  if (options.json && options.csv) return no("--json or --csv, not both");
  const period = periodOf(options, now, by.includes("hour") ? recentHours(now) : recentDays(now));
  if (!period.ok) return period;
  const { tool: tools = [], model: models = [] } = options;
  return { ok: true, question: { by: by as Dimension[], period: period.period, tools, models } };
}

type PeriodAsked =
  | { readonly ok: true; readonly period: Period }
  | { readonly ok: false; readonly reason: string };

/** `usual` is where it begins when neither end is named; null: with the first record. */
export function periodOf(options: FilterOptions, now: number, usual: number | null): PeriodAsked {
  const { since, until } = options;
  const all = since?.trim().toLowerCase() === "all";
  const begin = since === undefined || all ? null : parseSince(since, now);
  const end = until === undefined ? null : parseUntil(until, now);
  if (begin?.ok === false) return begin;
  if (end?.ok === false) return end;
  const period = {
    since: begin?.at ?? (all || end !== null ? null : usual),
    until: end?.at ?? null,
  };
  if (period.since !== null && period.until !== null && period.since >= period.until)
    return no("--since is not before --until: nothing lies between them");
  return { ok: true, period };
}

/** Today and the six days before it. */
function recentDays(now: number): number {
  const date = new Date(now);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() - 6).getTime();
}

/** This hour and the 23 before it. */
function recentHours(now: number): number {
  return new Date(now - 23 * 3_600_000).setMinutes(0, 0, 0);
}

function no(reason: string): { readonly ok: false; readonly reason: string } {
  return { ok: false, reason };
}
