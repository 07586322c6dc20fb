import { askDaemon } from "../../control/client.ts";
import { advice } from "../../core/advice.ts";
import { quoteForShell } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import { costInWords, duration, exact, exactDollars } from "../../core/units.ts";
import type { ComparedRecord, ComparedRow } from "../../mirror/report/shape.ts";
import { fail, formatNote, indentedNote, printJson, printLayout } from "../ui/messages.ts";
import { commandPaths } from "../ui/stdio.ts";
import { columnsFor, layoutTable } from "../ui/table.ts";
import { outputWidth, stdoutScreen } from "../ui/terminal.ts";
import { printable, textWidth, wrap } from "../ui/text.ts";
import { exactTime, formatFactor, timeOfDay } from "../ui/units.ts";
import { readConsoles } from "./consoles.ts";
import { consoleProblem } from "./messages.ts";

/** The daemon lists at most this many rows of a gateway. */
const MAX_ROWS = 500;

/** `keybearer mirror diff` */
export async function diff(gateway: string | undefined, options: { json?: boolean }): Promise<void> {
  const paths = commandPaths();
  const reports = await readConsoles(paths, gateway);
  if (reports === null) return;
  const asked = await askDaemon<ComparedRow[]>(paths, "GET", "/mirrordiff");
  if (!asked.ok) return fail(asked, EXIT.failed);
  const rows = asked.value.filter((row) => gateway === undefined || row.gateway === gateway);
  if (options.json) return printJson(rows);
  const now = Date.now();
  const { width } = stdoutScreen();
  const lines = rows.length === 0 ? ["no differences in the compared rows"] : diffLines(rows, now, width);
  for (const report of reports) {
    if (rows.filter((row) => row.gateway === report.gateway).length >= MAX_ROWS)
      lines.push(`only ${MAX_ROWS} of ${report.gateway} are shown: the foreign ones first, then the newest`);
    // If nothing could be compared, an empty list is not good news.
    const problem = consoleProblem(report, now);
    if (problem !== null && report.state !== "ok")
      lines.push(formatNote({ ...problem, what: `${report.gateway}: ${problem.what}` }, width));
  }
  printLayout(`${lines.join("\n")}\n`);
}

const MAX_LISTED = 10;

/** `keybearer mirror show` */
export async function show(text: string, options: { json?: boolean }): Promise<void> {
  const name = text.trim();
  if (name === "") return fail(`name a row: ${advice.mirrorDiff()} lists them`, EXIT.usage);
  const asked = await askDaemon<ComparedRow[]>(commandPaths(), "POST", "/compared", { what: name });
  if (!asked.ok) return fail(asked, EXIT.failed);
  const found = asked.value;
  const [first] = found;
  if (first === undefined)
    return fail(
      {
        problem: `there is no row or record ${name}`,
        next: `${advice.mirrorDiff()}, or ${advice.usageTail()}`,
      },
      EXIT.failed,
    );
  if (options.json) return printJson(found);
  if (found.length === 1) return printLayout(formatCompared(first, outputWidth()));
  const lines = found.slice(0, MAX_LISTED).map((row) => `${nameOf(row)}  ${row.verdict}, ${row.reason}`);
  const more = found.length > MAX_LISTED ? "\n…" : "";
  fail(`${name} fits several; write one of these:\n${lines.join("\n")}${more}`, EXIT.failed);
}

/** One of the two lines of a compared row. */
interface Side {
  readonly verdict: string;
  readonly time: string;
  readonly side: string;
  readonly tool: string;
  readonly model: string;
  readonly input: string;
  readonly cache: string;
  readonly output: string;
  readonly cost: string;
}

/** Two lines per row, ours above theirs, and the reason below. */
export function diffLines(rows: readonly ComparedRow[], now: number, width: number): string[] {
  const sides = rows.flatMap((row) => [formatOurs(row, now), formatTheirs(row, now)]);
  const { text, number } = columnsFor(sides);
  const table = layoutTable(
    [
      text("verdict", 0, ({ verdict }) => verdict),
      text("", 0, ({ side }) => side),
      text("time", 3, ({ time }) => time),
      text("tool", 0, ({ tool }) => tool),
      text("model", 1, ({ model }) => model),
      number("input", 4, ({ input }) => input),
      number("cache", 5, ({ cache }) => cache),
      number("output", 2, ({ output }) => output),
      number("cost", 0, ({ cost }) => cost),
    ],
    width,
  );
  const [head = "", ...sideLines] = table.lines;
  const lines = [head];
  for (const [at, row] of rows.entries()) {
    lines.push(...sideLines.slice(at * 2, at * 2 + 2));
    // A console's identities may contain anything.
    const next = advice.mirrorShow(quoteForShell(nameOf(row)));
    lines.push(...indentedNote({ what: row.reason, next }, width));
  }
  if (table.note !== null) lines.push(wrap(table.note, width));
  return lines;
}

function formatOurs({ record, verdict }: ComparedRow, now: number): Side {
  if (record === null) return { ...EMPTY_SIDE, verdict, side: "ours", model: "did not pass here" };
  return {
    verdict,
    side: "ours",
    time: timeOfDay(record.started_at, now, true),
    tool: record.tool ?? "-",
    model: record.model ?? "-",
    ...formatAllTokens(record),
    cost: costInWords(record.cost_microdollars),
  };
}

function formatTheirs({ row }: ComparedRow, now: number): Side {
  if (row === null) return { ...EMPTY_SIDE, side: "theirs", model: "not listed" };
  return {
    verdict: "",
    side: "theirs",
    time: timeOfDay(row.at, now, true),
    tool: row.key ?? row.key_ref ?? "-",
    model: row.model ?? "-",
    ...formatAllTokens(row),
    cost: costInWords(row.billed_microdollars),
  };
}

const EMPTY_SIDE: Side = {
  verdict: "",
  side: "",
  time: "",
  tool: "",
  model: "",
  input: "",
  cache: "",
  output: "",
  cost: "",
};

type Tokens = Pick<
  ComparedRecord,
  "input_tokens" | "cache_read_tokens" | "cache_write_tokens" | "output_tokens"
>;

function formatAllTokens(tokens: Tokens): Pick<Side, "input" | "cache" | "output"> {
  const { cache_read_tokens: read, cache_write_tokens: written } = tokens;
  const cache = read === null && written === null ? null : (read ?? 0) + (written ?? 0);
  return {
    input: formatTokens(tokens.input_tokens),
    cache: formatTokens(cache),
    output: formatTokens(tokens.output_tokens),
  };
}

/** The name that `mirror show` takes. */
function nameOf({ row, record }: ComparedRow): string {
  return row?.identity ?? record?.id ?? "";
}

/** All fields of both sides, and the reason for the verdict. */
export function formatCompared(compared: ComparedRow, width: number): string {
  const { row, record, candidate } = compared;
  const lines = [`${compared.gateway}: ${formatVerdict(compared)}`, compared.reason];
  if (candidate !== undefined) lines.push(`it may be our request ${candidate.id}, which is shown beside it`);
  else if (record === null) lines.push("nothing of ours: it did not pass here");
  if (row === null) lines.push("nothing of theirs: the console does not list it");
  const fields = listFields(compared).filter(([, ours, theirs]) => ours !== null || theirs !== null);
  const shown = [...lines.map((line) => wrap(printable(line), width)), "", ...fieldLines(fields, width)];
  return `${shown.join("\n")}\n`;
}

const NAME_WIDTH = 15;
const GAP = 2;

/** Both sides beside each other. Values that do not fit there, such as long ids, have a line of their own. */
function fieldLines(fields: readonly Field[], width: number): string[] {
  const maxWidth = Math.floor((width - NAME_WIDTH - GAP) / 2);
  const rows = fields.map(([name, ours, theirs]) => {
    const left = printable(ours ?? "-");
    const right = printable(theirs ?? "-");
    return { name, left, right, fits: Math.max(textWidth(left), textWidth(right)) <= maxWidth };
  });
  const leftWidth = Math.max(...rows.filter(({ fits }) => fits).map(({ left }) => textWidth(left)), 4);
  const lines = rows.flatMap(({ name, left, right, fits }) =>
    fits
      ? [sideBySide(name, left, right, leftWidth)]
      : [name, ...belowEachOther("ours", left, width), ...belowEachOther("theirs", right, width)],
  );
  return [sideBySide("", "ours", "theirs", leftWidth), ...lines];
}

function sideBySide(name: string, left: string, right: string, leftWidth: number): string {
  const padding = " ".repeat(leftWidth - textWidth(left) + GAP);
  return `${name.padEnd(NAME_WIDTH)}${left}${padding}${right}`;
}

function belowEachOther(side: string, value: string, width: number): string[] {
  const [first = "", ...rest] = wrap(value, width - NAME_WIDTH).split("\n");
  return [
    `${`  ${side}`.padEnd(NAME_WIDTH)}${first}`,
    ...rest.map((line) => `${" ".repeat(NAME_WIDTH)}${line}`),
  ];
}

/** matched, by id; foreign, certain */
function formatVerdict({ verdict, row }: ComparedRow): string {
  if (row === null) return verdict;
  if (row.verdict === "foreign") return `foreign, ${row.certain ? "certain" : "suspected"}`;
  if (row.how === null) return verdict;
  return `${verdict}, ${row.how === "presumed" ? "presumed" : `by ${row.how}`}`;
}

type Field = readonly [name: string, ours: string | null, theirs: string | null];

function listFields({ row, record: own, candidate }: ComparedRow): Field[] {
  const record = own ?? candidate ?? null;
  const ids = Object.entries(record?.gateway_ids ?? {}).map(([name, id]) => `${name}: ${id}`);
  const tokens = (name: string, field: keyof Tokens): Field => [
    name,
    record === null ? null : formatTokens(record[field]),
    row === null ? null : formatTokens(row[field]),
  ];
  return [
    ["name", record?.id ?? null, row?.identity ?? null],
    ["request id", ids.length === 0 ? null : ids.join(", "), row?.request_id ?? null],
    ["upstream id", null, row?.upstream_id ?? null],
    ["kind", null, row?.kind ?? null],
    ["began", timeOrNull(record?.started_at), timeOrNull(row?.began)],
    [
      "sent",
      record === null || record.sent_at === record.started_at ? null : timeOrNull(record.sent_at),
      null,
    ],
    ["ended", timeOrNull(record?.ended_at), timeOrNull(row?.at)],
    ["its clock", null, row === null || row.created_at === row.at ? null : exactTime(row.created_at)],
    ["took", totalTime(record), durationOrNull(row?.duration_ms)],
    ["machine", record?.machine ?? null, null],
    ["tool", record?.tool ?? null, null],
    ["key", record?.key ?? null, formatKey(row)],
    ["group", null, row?.group ?? null],
    ["model", record?.model ?? null, row?.model ?? null],
    ["endpoint", null, row?.endpoint ?? null],
    ["stream", yesOrNo(record?.stream), yesOrNo(row?.stream)],
    ["end", formatEnd(record), null],
    tokens("input", "input_tokens"),
    tokens("cache read", "cache_read_tokens"),
    tokens("cache written", "cache_write_tokens"),
    tokens("output", "output_tokens"),
    ["tokens from", record?.tokens_from ?? null, null],
    ["list price", moneyOrNull(record?.list_microdollars), moneyOrNull(row?.list_microdollars)],
    ["multiplier", null, row === null || row.multiplier === null ? null : formatFactor(row.multiplier)],
    ["cost", moneyOrNull(record?.cost_microdollars), null],
    ["billed", moneyOrNull(record?.billed_microdollars), moneyOrNull(row?.billed_microdollars)],
    ["user agent", record?.user_agent ?? null, row?.user_agent ?? null],
    ["from", null, row?.ip ?? null],
  ];
}

function formatKey(row: ComparedRow["row"]): string | null {
  if (row === null) return null;
  return row.key_ref === null ? row.key : `${row.key ?? "not known here"} (${row.key_ref})`;
}

function formatEnd(record: ComparedRecord | null): string | null {
  if (record === null) return null;
  const { end, status } = record;
  return `${end ?? "still running"}${status === null ? "" : `, ${status}`}`;
}

function totalTime(record: ComparedRecord | null): string | null {
  if (record === null || record.ended_at === null) return null;
  return duration(record.ended_at - record.started_at);
}

function durationOrNull(ms: number | null | undefined): string | null {
  return ms === null || ms === undefined ? null : duration(ms);
}

function timeOrNull(at: number | null | undefined): string | null {
  return at === null || at === undefined ? null : exactTime(at);
}

function moneyOrNull(microdollars: number | null | undefined): string | null {
  return microdollars === null || microdollars === undefined ? null : exactDollars(microdollars);
}

function yesOrNo(value: boolean | null | undefined): string | null {
  return value === null || value === undefined ? null : value ? "yes" : "no";
}

/** Unknown is not zero. */
function formatTokens(tokens: number | null): string {
  return tokens === null ? "?" : exact(tokens);
}
