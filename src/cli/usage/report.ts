import { isDaemonListening } from "../../control/client.ts";
import { advice } from "../../core/advice.ts";
import { type Failed, failed } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { costInWords, dollars, exact, HOUR_MS, localTime, MINUTE_MS } from "../../core/units.ts";
import { Prices, readPriceTable } from "../../metering/prices.ts";
import { ModelComparison } from "../../metering/same-model.ts";
import { offsetName, startOfDay } from "../../usage/reports/calendar.ts";
import { count, jsonText, short } from "../../usage/reports/format.ts";
import type { OtherModel } from "../../usage/reports/other-models.ts";
import {
  DIMENSIONS,
  type Dimension,
  emptyReport,
  type Question,
  type Report,
  readReport,
  reportCsv,
  reportJson,
  withThisMachine,
} from "../../usage/reports/report.ts";
import { sumTokens, unknownCost } from "../../usage/reports/sums.ts";
import { compareToday, emptyComparison, type TodayComparison } from "../../usage/reports/today.ts";
import type { Sums } from "../../usage/rollups.ts";
import { loadHere } from "../config-here.ts";
import { exitOnClosedOutput, fail, printLayout, printText } from "../ui/messages.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";
import { type Screen, stdoutScreen } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";
import { type FilterOptions, filterOf, parsePeriod, resolveFilter, thisMachine } from "./filter.ts";
import { hasUsageLog, noUsageLog, withIndex } from "./index-file.ts";
import { reportTable } from "./report-table.ts";

export interface ReportOptions extends FilterOptions {
  readonly by?: string;
  readonly today?: boolean;
  readonly json?: boolean;
  readonly csv?: boolean;
}

/** `keybearer usage` */
export async function report(options: ReportOptions): Promise<void> {
  const now = Date.now();
  const parsed = parseQuestion(options, now);
  if (!parsed.ok) return fail(parsed, EXIT.usage);
  exitOnClosedOutput();
  const paths = commandPaths();
  const { question } = parsed;
  const { by, machines } = question;
  const machine = by.includes("machine") || machines.length > 0 ? await thisMachine(paths) : null;
  if (!hasUsageLog(paths)) {
    const resolved = await resolveFilter(question, null, paths, machine);
    if (!resolved.ok) return fail(resolved.problem, EXIT.failed);
    if (options.json || options.csv)
      printReport(
        emptyReport(resolved.filter),
        options.today ? emptyComparison(now) : null,
        options,
        now,
        false,
      );
    else printText(noUsageLog(paths));
    return;
  }
  await withIndex(paths, async (db) => {
    const resolved = await resolveFilter(question, db, paths, machine);
    if (!resolved.ok) return fail(resolved.problem, EXIT.failed);
    const report = readReport(db, resolved.filter, now);
    const named = machine === null ? report : withThisMachine(report, machine);
    const found = { ...named, otherModels: await onlyOtherModels(named.otherModels, paths) };
    const comparison = options.today ? compareToday(db, resolved.filter, now) : null;
    const isServed = found.inFlight > 0 && (await isDaemonListening(paths.socket));
    printReport(found, comparison, options, now, isServed);
  });
}

function printReport(
  found: Report,
  comparison: TodayComparison | null,
  options: ReportOptions,
  now: number,
  isServed: boolean,
): void {
  if (options.json)
    stdio().stdout.write(`${jsonText({ ...reportJson(found, zoneName(now)), ...comparison }, 2)}\n`);
  else if (options.csv) stdio().stdout.write(reportCsv(found));
  else {
    const { width } = stdoutScreen();
    const notes = comparison === null ? [] : comparisonNotes(comparison, now);
    const below = notes.length === 0 ? "" : `\n${notes.map((note) => wrap(note, width)).join("\n")}\n`;
    printLayout(formatReport(found, now, stdoutScreen(), isServed) + below);
  }
}

/** What the day and the month are compared with. */
export function comparisonNotes({ today, usual, forecast }: TodayComparison, now: number): string[] {
  const isPriced = today.cost_microdollars > 0 || (usual?.cost_microdollars ?? 0) > 0;
  const inWords = ({ tokens, cost_microdollars: cost }: { tokens: number; cost_microdollars: number }) =>
    isPriced ? dollars(cost) : `${short(tokens)} tokens`;
  const soFar = isPriced ? costInWords(today.cost_microdollars, today.unknown_cost) : inWords(today);
  const others =
    usual === null
      ? "there is no earlier day to compare with"
      : `on the last ${count(usual.days, "day")} at this time: median ${inWords(usual)}`;
  const notes = [`by ${localTime(now).slice(11, 16)}: ${soFar}; ${others}`];
  if (forecast === null || forecast.cost_microdollars === 0) return notes;
  const { month, spent_microdollars: spent, usual_day_microdollars: usualDay, days } = forecast;
  const basis = `the median of the last ${count(days, "day")} with requests is ${dollars(usualDay)}`;
  notes.push(
    `${month} so far: ${dollars(spent)}; forecast for the month: ${dollars(forecast.cost_microdollars)} (${basis})`,
  );
  return notes;
}

type ParsedQuestion = { readonly ok: true; readonly question: Question } | Failed;

export function parseQuestion(options: ReportOptions, now: number): ParsedQuestion {
  const names = [...new Set((options.by ?? "tool").split(",").map((name) => name.trim()))];
  const unknown = names.find((name) => !isDimension(name));
  if (unknown !== undefined)
    return failed(`--by: "${unknown}" is not one of ${DIMENSIONS.join(", ")}`, "for two: --by day,tool");
  const by = names.filter(isDimension);
  if (by.length > 2) return failed("--by takes one or two", "--by day,tool");
  if (by.includes("day") && by.includes("hour")) return failed("--by takes day or hour, not both");
  if (options.json && options.csv) return failed("--json or --csv, not both");
  if (options.today) {
    if (options.since !== undefined || options.until !== undefined)
      return failed("--today is from midnight until now, so without --since and --until");
    const period = { since: startOfDay(now), until: null };
    return { ok: true, question: { ...filterOf(options, period), by } };
  }
  const parsed = parsePeriod(options, now, by.includes("hour") ? last24Hours(now) : last7Days(now));
  if (!parsed.ok) return parsed;
  return { ok: true, question: { ...filterOf(options, parsed.period), by } };
}

function isDimension(name: string): name is Dimension {
  return DIMENSIONS.some((dimension) => dimension === name);
}

/** Today and the six days before it. */
function last7Days(now: number): number {
  const date = new Date(now);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() - 6).getTime();
}

/** This hour and the 23 before it. */
function last24Hours(now: number): number {
  return new Date(now - 23 * HOUR_MS).setMinutes(0, 0, 0);
}

/** Without those that are the same model by another name. */
async function onlyOtherModels(named: readonly OtherModel[], paths: Paths): Promise<readonly OtherModel[]> {
  // Most often there are none, and neither config.yaml nor the list of prices is needed.
  if (named.length === 0) return named;
  const { config } = await loadHere(paths, { strict: false });
  const same = config?.usage.sameModels ?? {};
  const comparison = new ModelComparison(new Prices(readPriceTable()));
  return named.filter(({ asked, answered }) => !comparison.isSame(asked, answered, same));
}

/** `isServed`: a daemon runs. Without one no request can be in flight. */
export function formatReport(found: Report, now: number, screen: Screen, isServed: boolean): string {
  const isEmpty = found.rows.length === 0;
  const notes = isEmpty
    ? [emptyNote(found)]
    : [...totalNotes(found), ...endNotes(found), ...otherModelNotes(found)];
  if (found.inFlight > 0) notes.push(inFlightNote(found, isServed));
  const parts = [
    wrap(formatTitle(found), screen.width),
    ...(isEmpty ? [] : [reportTable(found, screen, now)]),
    notes.map((note) => wrap(note, screen.width)).join("\n"),
    ...priceNotes(found, screen),
  ];
  return `${parts.join("\n\n")}\n`;
}

function formatTitle({ question }: Report): string {
  const { period, by, tools, models, projects, sessions } = question;
  const machines = question.machines.filter((name) => name !== "");
  const parts = [
    period.since === null ? "all usage" : `usage since ${formatTime(period.since)}`,
    ...(period.until === null ? [] : [`until ${formatTime(period.until)}`]),
    `by ${by.join(" and ")}`,
    ...(tools.length === 0 ? [] : [`tool ${tools.join(", ")}`]),
    ...(models.length === 0 ? [] : [`model ${models.join(", ")}`]),
    ...(machines.length === 0 ? [] : [`machine ${machines.join(", ")}`]),
    ...(projects.length === 0 ? [] : [`project ${projects.join(", ")}`]),
    ...(sessions.length === 0 ? [] : [`session ${sessions.join(", ")}`]),
  ];
  return printable(parts.join(", "));
}

function emptyNote({ lastRecord }: Report): string {
  if (lastRecord === null) return "nothing was recorded yet";
  return `nothing was recorded in this period; the last record is from ${formatTime(lastRecord)}`;
}

function totalNotes(found: Report): string[] {
  const { sums } = found.total;
  const unknown = unknownCost(sums);
  const cost = costInWords(sums.cost_microdollars, unknown);
  const requests = count(sums.requests, "request");
  if (unknown === 0) return [`${requests}, ${cost}`, ...tokenNotes(sums)];
  const reasons = [
    ...(sums.unmetered > 0 ? [`${exact(sums.unmetered)} ${unmeteredReason(sums)}`] : []),
    ...(sums.unpriced > 0 ? [`${exact(sums.unpriced)} without a known price`] : []),
  ];
  return [
    `${requests}, ${cost}`,
    ...tokenNotes(sums),
    `${count(unknown, "request")} cost an unknown amount: ${reasons.join(", ")}`,
    ...unmeteredAdvice(found),
  ];
}

function tokenNotes(sums: Readonly<Sums>): string[] {
  const kinds = [
    [sums.input_tokens, "input"],
    [sums.cache_read_tokens, "read from cache"],
    [sums.cache_write_tokens, "written to cache"],
    [sums.output_tokens, "output"],
  ] as const;
  const shown = kinds.filter(([tokens]) => tokens > 0).map(([tokens, name]) => `${short(tokens)} ${name}`);
  return shown.length === 0 ? [] : [`${short(sumTokens(sums))} tokens: ${shown.join(", ")}`];
}

/** A response that was cut off may have reported part of its usage. */
function unmeteredReason({ failed, client_left: left, interrupted }: Readonly<Sums>): string {
  return failed + left + interrupted === 0
    ? "reported no usage"
    : "reported no usage, or ended before they could";
}

/** An interrupted request has no remedy. Others may report their usage if they are asked to. */
function unmeteredAdvice({ question, rows, total: { sums } }: Report): string[] {
  if (sums.unmetered <= sums.interrupted) return [];
  const at = question.by.indexOf("tool");
  const names = new Set(rows.filter((row) => row.sums.unmetered > 0).map((row) => row.names[at] ?? "<tool>"));
  const [name = "<tool>", ...others] = names;
  const tool = printable(others.length === 0 ? name : "<tool>");
  return [
    `→ in config.yaml, tools.${tool}.ask_usage: true asks streams for their usage, estimate: true estimates it`,
  ];
}

function endNotes({ total: { sums } }: Report): string[] {
  const parts = [
    ...(sums.refused > 0 ? [`${exact(sums.refused)} refused by keybearer`] : []),
    ...(sums.failed > 0 ? [`${exact(sums.failed)} failed at the gateway`] : []),
    ...(sums.client_left > 0 ? [`${exact(sums.client_left)} canceled by the tool`] : []),
    ...(sums.interrupted > 0 ? [`${exact(sums.interrupted)} interrupted`] : []),
  ];
  return parts.length === 0 ? [] : [parts.join(", ")];
}

const MAX_MODEL_PAIRS = 3;

/** 12 of 340 were answered by another model: gpt-5.1 → gpt-5.1-mini */
function otherModelNotes({ otherModels, total, question }: Report): string[] {
  const [first] = otherModels;
  if (first === undefined) return [];
  const requests = otherModels.reduce((sum, pair) => sum + pair.requests, 0);
  const tools = new Set(otherModels.map(({ tool }) => tool));
  const pairs = otherModels.slice(0, MAX_MODEL_PAIRS).map(({ tool, asked, answered, requests: some }) => {
    const whose = tools.size > 1 || question.tools.length !== 1 ? `${tool}: ` : "";
    return `${whose}${asked} → ${answered}${otherModels.length > 1 ? ` (${exact(some)})` : ""}`;
  });
  const rest = otherModels.length - pairs.length;
  if (rest > 0) pairs.push(`and ${rest} more`);
  const were = requests === 1 ? "was" : "were";
  return [
    printable(
      `${exact(requests)} of ${exact(total.sums.requests)} ${were} answered by another model: ${pairs.join(", ")}`,
    ),
    `→ if it is the same model: ${printable(advice.acknowledgeModel(first.asked, first.answered))}`,
  ];
}

function inFlightNote({ inFlight }: Report, isServed: boolean): string {
  if (isServed) return `${inFlight} running now, not counted yet`;
  return `${inFlight} not finished when keybearer was killed; its next start counts them as interrupted`;
}

const MAX_PRICE_NOTES = 8;

/** What to write where. An invented price would be worse than none. */
function priceNotes({ unpriced }: Report, { width }: Screen): string[] {
  if (unpriced.length === 0) return [];
  const rest = unpriced.length - MAX_PRICE_NOTES;
  const lines = [
    wrap("no price is known for these. add it in config.yaml, $ per million tokens:", width),
    "prices:",
    // Not wrapped, so that it can be copied.
    ...unpriced
      .slice(0, MAX_PRICE_NOTES)
      .map(
        ({ model, requests }) =>
          `  ${yamlKey(model)}: { input: …, output: … }  # ${count(requests, "request")}`,
      ),
    ...(rest > 0 ? [`  # and ${rest} more: ${advice.usageByModel()}`] : []),
  ];
  return [lines.join("\n")];
}

function yamlKey(model: string): string {
  const name = printable(model);
  return /^[A-Za-z][\w.-]*$/.test(name) ? name : JSON.stringify(name);
}

/** Mon 2026-11-09 00:00 */
function formatTime(at: number): string {
  const day = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][new Date(at).getDay()];
  const end = at % MINUTE_MS === 0 ? "2026-11-09 00:00".length : undefined;
  return `${day} ${localTime(at).slice(0, end)}`;
}

/** Europe/Berlin, or an offset if the system does not say. */
function zoneName(at: number): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone ?? offsetName(at);
}
