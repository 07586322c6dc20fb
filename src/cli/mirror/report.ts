import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import { costInWords, dollars, duration, exact, exactDollars } from "../../core/units.ts";
import {
  differenceInWords,
  isFarAbove,
  isOtherPrice,
  isSkewed,
  kindPrices,
  roundedUse,
} from "../../mirror/report/notable.ts";
import {
  type ElsewhereUse,
  type MirrorReport,
  type ModelFactor,
  type PriceExplanation,
  ROWS_PER_FACTOR,
  type ToolMoney,
} from "../../mirror/report/shape.ts";
import { count } from "../../usage/reports/format.ts";
import { formatNote, indentedNote, type Note, printJson, printLayout, printText } from "../ui/messages.ts";
import { commandPaths, setExitCode } from "../ui/stdio.ts";
import { columnsFor, renderTable } from "../ui/table.ts";
import { stdoutScreen } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";
import { ago, formatFactor } from "../ui/units.ts";
import { NO_CONSOLE, readAllConsoles } from "./consoles.ts";
import {
  alarmLines,
  certainFirst,
  colorAlarms,
  consoleProblem,
  formatKind,
  formatLastSync,
  headline,
  unseenMachines,
} from "./messages.ts";

/** `keybearer mirror` */
export async function report(options: { json?: boolean }): Promise<void> {
  const reports = await readAllConsoles(commandPaths());
  if (reports === null) return;
  if (options.json) printJson(reports);
  else if (reports.length === 0) printText(NO_CONSOLE);
  else printLayout(colorAlarms(formatMirror(reports, Date.now(), stdoutScreen().width)));
  // For scripts. A suspicion does not fail them, because it may be a request of ours.
  if (reports.some(({ alarms }) => alarms.some(({ certain }) => certain))) setExitCode(EXIT.failed);
}

/** Alarms first, then each gateway. */
export function formatMirror(reports: readonly MirrorReport[], now: number, width: number): string {
  const alarms = certainFirst(reports.flatMap((report) => report.alarms)).map((alarm) =>
    alarmLines(alarm, now, width),
  );
  const blocks = [...alarms, ...reports.map((report) => gatewayLines(report, now, width))];
  return `${blocks.map((lines) => lines.join("\n")).join("\n\n")}\n`;
}

function gatewayLines(report: MirrorReport, now: number, width: number): string[] {
  const line = (text: string) => wrap(printable(text), width);
  const problem = consoleProblem(report, now);
  const unseen = unseenMachines(report, now);
  return [
    line(`${report.gateway}, ${formatKind(report)} at ${report.url}`),
    line(headline(report, now)),
    ...(problem === null ? [] : [formatNote(problem, width)]),
    ...(unseen === null ? [] : [line(unseen)]),
    line(formatLag(report, now)),
    line(formatRecords(report)),
    ...moneyTable(report.tools, width),
    ...report.models.flatMap((model) => priceLines(model, width)),
    ...multiplierNotes(report).map((note) => formatNote(note, width)),
    ...balanceLines(report).map(line),
    ...report.elsewhere.map((use) => line(formatElsewhere(use))),
    ...blindLines(report.blind, width),
  ];
}

/** last sync 12 s ago, newest row 40 s old */
function formatLag(report: MirrorReport, now: number): string {
  const { newest_row: newest, skew } = report;
  const parts = [
    formatLastSync({ last_sync: report.last_sync }, now),
    newest === null ? "no row seen yet" : `newest row ${ago(now - newest)} old`,
  ];
  if (isSkewed(skew)) parts.push(`its clock is ${duration(Math.abs(skew))} ${skew > 0 ? "ahead" : "behind"}`);
  return parts.join(", ");
}

function formatRecords({ records, rows, state }: MirrorReport): string {
  const { matched, differs, pending, missing } = records;
  const parts = [
    `${exact(matched)} matched`,
    ...(differs > 0 ? [`${exact(differs)} ${differs === 1 ? "differs" : "differ"}`] : []),
    `${exact(pending)} pending`,
    `${exact(missing)} missing`,
  ];
  const next = missing + differs + rows.differs > 0 && state !== "syncing" ? ` → ${advice.mirrorDiff()}` : "";
  return `ours: ${parts.join(", ")}${next}`;
}

function moneyTable(tools: readonly ToolMoney[], width: number): string[] {
  if (tools.length === 0) return [];
  const hasForeign = tools.some((tool) => tool.foreign > 0);
  const hasSuspected = tools.some((tool) => tool.suspected > 0);
  const { text, number } = columnsFor(tools);
  const columns = [
    text("tool", 0, ({ tool }) => tool),
    number("requests", 2, ({ requests }) => exact(requests)),
    number("ours", 0, (tool) => costInWords(tool.ours_microdollars, tool.ours_unknown)),
    number("theirs", 0, (tool) => costInWords(tool.theirs_microdollars, tool.theirs_unknown)),
    number("difference", 1, differenceInWords),
    ...(hasForeign
      ? [
          number("foreign", 0, (tool) => exact(tool.foreign)),
          number("foreign $", 1, (tool) => dollars(tool.foreign_microdollars)),
        ]
      : []),
    ...(hasSuspected
      ? [
          number("suspected", 0, (tool) => exact(tool.suspected)),
          number("suspected $", 1, (tool) => dollars(tool.suspected_microdollars)),
        ]
      : []),
  ];
  return ["", renderTable(columns, width), ""];
}

/** An operator's own price is one note per model, not a difference in every row. */
function priceLines(line: ModelFactor, width: number): string[] {
  const { model, group, tier, explanation } = line;
  const names = [model, ...(tier === null ? [] : [tier]), ...(group === null ? [] : [`group ${group}`])];
  const note = (what: string, next: string | null = null) =>
    formatNote({ what: `${names.join(", ")}: ${what}`, next }, width);
  const lines: string[] = [];
  const price = formatPrice(line);
  if (price !== null) {
    const what = `the console's price is ${price} of the list price known here (${formatExplained(line)})`;
    // config.yaml's prices apply to every tier.
    lines.push(note(what, tier === null ? "prices: in config.yaml" : null));
  }
  if (explanation === undefined) return lines;
  const isExplained = explanation.unexplained_microdollars === 0;
  if (!isExplained) lines.push(note(formatUnexplained(explanation)));
  if (!isExplained || kindPrices(line).length > 0) lines.push(...exampleLines(explanation, width));
  return lines;
}

/** ×1.2, or for each kind of token: input ×1, output ×0.5; null: it is the list price, or not known. */
function formatPrice(line: ModelFactor): string | null {
  const kinds = kindPrices(line);
  if (kinds.length > 0)
    return kinds.map(([kind, one]) => `${kind.replace("_", " ")} ${formatFactor(one)}`).join(", ");
  // The factor of all rows is rounded. One that explains the latest rows is not.
  const [exactFactor] = Object.values(line.explanation?.factors ?? {});
  if (exactFactor !== undefined) return exactFactor === 1 ? null : formatFactor(exactFactor);
  return isOtherPrice(line.factor) ? formatFactor(line.factor) : null;
}

function formatExplained({ factor_rows: rows, explanation }: ModelFactor): string {
  if (explanation === undefined || explanation.factors === null) return count(rows, "row");
  return `${exact(explanation.explained)} of ${count(explanation.rows, "row")}`;
}

function formatUnexplained({ rows, explained, unexplained_microdollars: left }: PriceExplanation): string {
  const money = `${dollars(Math.abs(left))} ${left > 0 ? "more" : "less"}`;
  if (rows === 0)
    return `${money} was billed than here, and the console lists no price that could explain it`;
  const unexplained = rows - explained;
  const which = `${exact(unexplained)} of ${count(rows, "row")} ${unexplained === 1 ? "was" : "were"} billed ${money}`;
  if (rows < ROWS_PER_FACTOR) return `${which}; too few rows to say why`;
  return `${which}, and no price of a kind of token explains it`;
}

/** A request that a person can check. */
function exampleLines({ example }: PriceExplanation, width: number): string[] {
  if (example === null) return [];
  const tokens = Object.entries(example.tokens)
    .filter(([, number]) => number > 0)
    .map(([kind, number]) => `${exact(number)} ${kind.replace("_", " ")}`);
  const what = `for example ${tokens.join(", ")}: ${exactDollars(example.ours_microdollars)} here, ${exactDollars(example.theirs_microdollars)} there`;
  return indentedNote({ what, next: advice.mirrorShow(example.record) }, width);
}

/** One note per group, for all its models. LiteLLM has a discount or a margin for each provider: there one per multiplier. */
function multiplierNotes({ models, gateway, kind }: MirrorReport): Note[] {
  const known = models.filter(({ multiplier }) => multiplier !== null);
  const same = new Map<string, ModelFactor[]>();
  for (const model of known.filter(({ multiplier_here: here }) => here !== null)) {
    const name = JSON.stringify([model.group, model.multiplier]);
    same.set(name, [...(same.get(name) ?? []), model]);
  }
  return [...same.values()].flatMap((differing): Note[] => {
    const [first] = differing;
    if (first === undefined) return [];
    const { group, multiplier, multiplier_here: here } = first;
    const isMixed =
      kind === "litellm" && known.some((one) => one.group === group && one.multiplier !== multiplier);
    const names = new Set(differing.map(({ model }) => model));
    const whose = isMixed ? `${[...names].join(", ")} ` : "";
    const rows = differing.reduce((sum, one) => sum + one.multiplier_rows, 0);
    const says = `the console multiplies ${whose}by ${formatFactor(multiplier ?? 1)}, config.yaml says ${formatFactor(here ?? 1)} (${count(rows, "row")})`;
    const what = group === null ? `without a group: ${says}` : `group ${group}: ${says}`;
    if (isMixed)
      return [{ what, next: "a tool that calls no other model can have a group with that multiplier" }];
    const own = group === null ? null : `change gateways.${gateway}.groups.${group}.multiplier`;
    return [{ what, next: own ?? "give these tools a group with that multiplier" }];
  });
}

function balanceLines({ account }: MirrorReport): string[] {
  return account === null || account.balance === null ? [] : [`balance ${dollars(account.balance)}`];
}

function formatElsewhere(use: ElsewhereUse): string {
  const above = isFarAbove(use) ? ": FAR ABOVE ITS USUAL LEVEL" : "";
  return (
    `${use.tool}, key ${use.key}, elsewhere on purpose: ${count(use.day, "request")}, ${dollars(use.day_microdollars)} ` +
    `in the last day; usually ${exact(roundedUse(use.usual))} a day, ${dollars(use.usual_microdollars)}${above}`
  );
}

/** Always printed, so that no alarm is not mistaken for safety. */
function blindLines(blind: readonly string[], width: number): string[] {
  if (blind.length === 0) return [];
  return ["the alarm cannot see:", ...blind.flatMap((what) => indentedNote({ what, next: null }, width))];
}
