import { count, dollars, exact, short } from "../../usage/reports/format.ts";
import type { Report } from "../../usage/reports/report.ts";
import { tokensOf, unknownCost } from "../../usage/reports/sums.ts";
import type { Sums } from "../../usage/rollups.ts";
import type { Screen } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";
import { reportTable, timeInWords } from "./report-table.ts";

/** What a report says around its table. */
export interface Around {
  readonly now: number;
  readonly screen: Screen;
  /** Whether a daemon runs: without one, nothing can be under way. */
  readonly served: boolean;
}

const MOST_MODELS = 8;

export function reportInWords(report: Report, around: Around): string {
  const { screen, now } = around;
  const empty = report.rows.length === 0;
  const notes = empty
    ? [nothingOf(report), ...inFlightOf(report, around)]
    : [...totalOf(report), ...outcomesOf(report), ...inFlightOf(report, around)];
  const parts = [
    wrap(titleOf(report), screen.width),
    ...(empty ? [] : [reportTable(report, screen, now)]),
    notes.map((note) => wrap(note, screen.width)).join("\n"),
    ...unpricedOf(report, screen),
  ];
  return `${parts.join("\n\n")}\n`;
}

function titleOf({ question }: Report): string {
  const { period, by, tools, models } = question;
  const parts = [
    period.since === null ? "all usage" : `usage since ${timeInWords(period.since)}`,
    ...(period.until === null ? [] : [`until ${timeInWords(period.until)}`]),
    `by ${by.join(" and ")}`,
    ...(tools.length === 0 ? [] : [`tool ${tools.join(", ")}`]),
    ...(models.length === 0 ? [] : [`model ${models.join(", ")}`]),
  ];
  return printable(parts.join(", "));
}

function nothingOf({ lastRecord }: Report): string {
  if (lastRecord === null) return "nothing was recorded yet";
  return `nothing was recorded in it; the last record of all is of ${timeInWords(lastRecord)}`;
}

function totalOf(report: Report): string[] {
  const { sums } = report.total;
  const unknown = unknownCost(sums);
  const cost = dollars(sums.cost_microdollars);
  const what = count(sums.requests, "request");
  const tokens = tokensInWords(sums);
  if (unknown === 0) return [`${what}, ${cost}`, ...tokens];
  const why = [
    ...(sums.unmetered > 0 ? [`${exact(sums.unmetered)} ${unmeteredInWords(sums)}`] : []),
    ...(sums.unpriced > 0 ? [`${exact(sums.unpriced)} without a known price`] : []),
  ];
  return [
    `${what}, at least ${cost}`,
    ...tokens,
    `${count(unknown, "request")} cost an unknown amount: ${why.join(", ")}`,
    ...unmeteredAdvice(report),
  ];
}

function tokensInWords(sums: Readonly<Sums>): string[] {
  const kinds = [
    [sums.input_tokens, "input"],
    [sums.cache_read_tokens, "read from cache"],
    [sums.cache_write_tokens, "written to cache"],
    [sums.output_tokens, "output"],
  ] as const;
  const shown = kinds.filter(([tokens]) => tokens > 0).map(([tokens, name]) => `${short(tokens)} ${name}`);
  return shown.length === 0 ? [] : [`${short(tokensOf(sums))} tokens: ${shown.join(", ")}`];
}

/** What was cut off may have reported a part. */
function unmeteredInWords({ failed, client_left: left, interrupted }: Readonly<Sums>): string {
  return failed + left + interrupted === 0
    ? "reported no usage"
    : "reported no usage, or ended before they could";
}

/** For what was interrupted there is nothing to be done; of the rest some may only not have been asked. */
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

function outcomesOf({ total: { sums } }: Report): string[] {
  const parts = [
    ...(sums.refused > 0 ? [`${exact(sums.refused)} refused by keybearer`] : []),
    ...(sums.failed > 0 ? [`${exact(sums.failed)} failed at the gateway`] : []),
    ...(sums.client_left > 0 ? [`${exact(sums.client_left)} left by the tool`] : []),
    ...(sums.interrupted > 0 ? [`${exact(sums.interrupted)} interrupted`] : []),
  ];
  return parts.length === 0 ? [] : [parts.join(", ")];
}

function inFlightOf({ inFlight }: Report, { served }: Around): string[] {
  if (inFlight === 0) return [];
  if (served) return [`${inFlight} running now, in no sum yet`];
  return [`${inFlight} cut off with keybearer, in no sum yet; its next start counts them as interrupted`];
}

/** What to write where. A price of our invention would be worse than none. */
function unpricedOf({ unpriced }: Report, { width }: Screen): string[] {
  if (unpriced.length === 0) return [];
  const shown = unpriced.slice(0, MOST_MODELS);
  const rest = unpriced.length - shown.length;
  const words = "no price is known for these: write it into config.yaml, $ per million tokens";
  return [
    [
      wrap(words, width),
      "prices:",
      // Not wrapped: this is to be copied.
      ...shown.map(
        ({ model, requests }) =>
          `  ${yamlKey(model)}: { input: …, output: … }  # ${count(requests, "request")}`,
      ),
      ...(rest > 0 ? [`  # and ${rest} more: keybearer usage --by model`] : []),
    ].join("\n"),
  ];
}

function yamlKey(model: string): string {
  const name = printable(model);
  return /^[A-Za-z][\w.-]*$/.test(name) ? name : JSON.stringify(name);
}
