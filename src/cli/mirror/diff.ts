import { askDaemon } from "../../control/client.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import type { ComparedRecord, ComparedRow } from "../../mirror/report/shape.ts";
import { localTime, offsetName } from "../../usage/reports/calendar.ts";
import { dollars, exact } from "../../usage/reports/format.ts";
import { fail, formatNote, indentedNote } from "../ui/messages.ts";
import { type Column, layoutTable, renderTable } from "../ui/table.ts";
import { type Screen, stdoutScreen } from "../ui/terminal.ts";
import { printable } from "../ui/text.ts";
import { formatFactor, moneyOrUnknown, timeOfDay } from "../ui/units.ts";
import { readConsoles } from "./consoles.ts";
import { trouble } from "./headline.ts";

/** The daemon lists at most this many of a gateway. */
const MAX = 500;

export async function diff(gateway: string | undefined, options: { json?: boolean }): Promise<void> {
  const { socket } = findPaths();
  const reports = await readConsoles(socket, gateway);
  if (reports === null) return;
  const asked = await askDaemon<ComparedRow[]>(socket, "GET", "/mirrordiff");
  if (!asked.ok) return fail(asked.reason, EXIT.failed);
  const rows = asked.value.filter((row) => gateway === undefined || row.gateway === gateway);
  if (options.json) return void process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
  const now = Date.now();
  const screen = stdoutScreen();
  const lines = [rows.length === 0 ? "no row that was compared differs" : diffInWords(rows, now, screen)];
  const full = reports.filter((report) => rows.filter((row) => row.gateway === report.gateway).length >= MAX);
  for (const report of full)
    lines.push(`of ${report.gateway} only ${MAX} are shown: the foreign ones first, then the newest`);
  // An empty list is no good news where nothing could be compared.
  for (const report of reports) {
    const problem = trouble(report, now);
    if (problem !== null && report.state !== "ok")
      lines.push(formatNote({ ...problem, what: `${report.gateway}: ${problem.what}` }, screen.width));
  }
  process.stdout.write(`${lines.map((line) => line.trimEnd()).join("\n")}\n`);
}

const MAX_SHOWN = 10;

export async function show(text: string, options: { json?: boolean }): Promise<void> {
  const what = text.trim();
  if (what === "") return fail("say which row: keybearer mirror diff lists them", EXIT.usage);
  const asked = await askDaemon<ComparedRow[]>(findPaths().socket, "POST", "/compared", { what });
  if (!asked.ok) return fail(asked.reason, EXIT.failed);
  const [only, ...others] = asked.value;
  if (only === undefined)
    return fail(
      `there is no row or record ${what} → keybearer mirror diff, or keybearer usage tail`,
      EXIT.failed,
    );
  if (options.json) return void process.stdout.write(`${JSON.stringify(asked.value, null, 2)}\n`);
  if (others.length === 0) return void process.stdout.write(comparedInWords(only));
  const lines = asked.value.slice(0, MAX_SHOWN).map((row) => `${nameOf(row)}  ${row.verdict}, ${row.reason}`);
  const more = asked.value.length > MAX_SHOWN ? "\n…" : "";
  fail(`${what} fits several; write one of these:\n${lines.join("\n")}${more}`, EXIT.failed);
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

/** Two lines per row, ours above theirs, and below them the reason. */
export function diffInWords(rows: readonly ComparedRow[], now: number, { width }: Screen): string {
  const sides = rows.flatMap((row) => [oursOf(row, now), theirsOf(row, now)]);
  const column = (name: keyof Side, dropOrder: number, right = false, head: string = name): Column => ({
    head,
    cells: sides.map((side) => side[name]),
    dropOrder,
    right,
  });
  const columns = [
    column("verdict", 0),
    column("side", 0, false, ""),
    column("time", 3),
    column("tool", 0),
    column("model", 1),
    column("input", 4, true),
    column("cache", 5, true),
    column("output", 2, true),
    column("cost", 0, true),
  ];
  const { lines: table, note } = layoutTable(columns, width);
  const [head = "", ...lines] = table;
  const shown = rows.flatMap((row, at) => [
    ...lines.slice(at * 2, at * 2 + 2),
    ...indentedNote({ what: row.reason, next: `keybearer mirror show ${typedName(row)}` }, width),
  ]);
  return `${[head, ...shown, ...(note === null ? [] : [note])].join("\n")}\n`;
}

function oursOf({ record, verdict }: ComparedRow, now: number): Side {
  if (record === null) return { ...NOTHING, verdict, side: "ours", model: "did not pass here" };
  return {
    verdict,
    side: "ours",
    time: timeOfDay(record.started_at, now, true),
    tool: record.tool ?? "-",
    model: record.model ?? "-",
    ...tokensOf(record),
    cost: moneyOrUnknown(record.cost_microdollars),
  };
}

function theirsOf({ row }: ComparedRow, now: number): Side {
  if (row === null) return { ...NOTHING, side: "theirs", model: "not listed" };
  return {
    verdict: "",
    side: "theirs",
    time: timeOfDay(row.at, now, true),
    tool: row.key ?? row.key_ref ?? "-",
    model: row.model ?? "-",
    ...tokensOf(row),
    cost: moneyOrUnknown(row.billed_microdollars),
  };
}

const NOTHING: Side = {
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

function tokensOf(tokens: Tokens): Pick<Side, "input" | "cache" | "output"> {
  const { cache_read_tokens: read, cache_write_tokens: written } = tokens;
  const cache = read === null && written === null ? null : (read ?? 0) + (written ?? 0);
  return { input: number(tokens.input_tokens), cache: number(cache), output: number(tokens.output_tokens) };
}

/** The name that `mirror show` takes. */
function nameOf({ row, record }: ComparedRow): string {
  return row?.identity ?? record?.id ?? "";
}

/** Quoted for a shell: a console's identities may contain anything. */
function typedName(compared: ComparedRow): string {
  const name = nameOf(compared);
  return /^[\w.:@%+=,/-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}

/** All fields of both sides, and the reason for the verdict. */
export function comparedInWords(compared: ComparedRow): string {
  const facts = factsOf(compared).filter(([, ours, theirs]) => ours !== null || theirs !== null);
  const columns: Column[] = [
    { head: "", cells: facts.map(([name]) => name), dropOrder: 0 },
    { head: "ours", cells: facts.map(([, ours]) => ours ?? "-"), dropOrder: 0 },
    { head: "theirs", cells: facts.map(([, , theirs]) => theirs ?? "-"), dropOrder: 0 },
  ];
  const { row, record } = compared;
  const absent = [
    ...(record === null ? ["nothing of ours: it did not pass here"] : []),
    ...(row === null ? ["nothing of theirs: the console does not list it"] : []),
  ];
  return `${[
    printable(`${compared.gateway}: ${verdictInWords(compared)}`),
    printable(compared.reason),
    ...absent,
    "",
    renderTable(columns, Number.POSITIVE_INFINITY),
  ].join("\n")}\n`;
}

/** matched, by id; foreign, certain */
function verdictInWords({ verdict, row }: ComparedRow): string {
  if (row === null) return verdict;
  if (row.verdict === "foreign") return `foreign, ${row.certain ? "certain" : "suspected"}`;
  if (row.how === null) return verdict;
  return `${verdict}, ${row.how === "presumed" ? "presumed" : `by ${row.how}`}`;
}

type Fact = readonly [name: string, ours: string | null, theirs: string | null];

function factsOf({ row, record }: ComparedRow): Fact[] {
  const ids = Object.entries(record?.gateway_ids ?? {}).map(([name, id]) => `${name}: ${id}`);
  const tokens = (name: string, field: keyof Tokens): Fact => [
    name,
    record === null ? null : number(record[field]),
    row === null ? null : number(row[field]),
  ];
  return [
    ["name", record?.id ?? null, row?.identity ?? null],
    ["request id", ids.length === 0 ? null : ids.join(", "), row?.request_id ?? null],
    ["upstream id", null, row?.upstream_id ?? null],
    ["kind", null, row?.kind ?? null],
    ["began", record === null ? null : moment(record.started_at), null],
    ["ended", momentOrNull(record?.ended_at), momentOrNull(row?.at)],
    ["its clock", null, row === null || row.created_at === row.at ? null : moment(row.created_at)],
    ["took", tookOf(record), row === null ? null : milliseconds(row.duration_ms)],
    ["tool", record?.tool ?? null, null],
    ["key", record?.key ?? null, keyOf(row)],
    ["group", null, row?.group ?? null],
    ["model", record?.model ?? null, row?.model ?? null],
    ["endpoint", null, row?.endpoint ?? null],
    ["stream", yesOrNo(record?.stream), yesOrNo(row?.stream)],
    ["end", endOf(record), null],
    tokens("input", "input_tokens"),
    tokens("cache read", "cache_read_tokens"),
    tokens("cache written", "cache_write_tokens"),
    tokens("output", "output_tokens"),
    ["tokens from", record?.tokens_from ?? null, null],
    ["list price", null, moneyOrNull(row?.list_microdollars)],
    ["multiplier", null, row === null || row.multiplier === null ? null : formatFactor(row.multiplier)],
    ["cost", moneyOrNull(record?.cost_microdollars), null],
    ["billed", moneyOrNull(record?.billed_microdollars), moneyOrNull(row?.billed_microdollars)],
    ["from", null, row?.ip ?? null],
  ];
}

function keyOf(row: ComparedRow["row"]): string | null {
  if (row === null) return null;
  return row.key_ref === null ? row.key : `${row.key ?? "not known here"} (${row.key_ref})`;
}

function endOf(record: ComparedRecord | null): string | null {
  if (record === null) return null;
  const { end, status } = record;
  return `${end ?? "still running"}${status === null ? "" : `, ${status}`}`;
}

function tookOf(record: ComparedRecord | null): string | null {
  if (record === null || record.ended_at === null) return null;
  return milliseconds(record.ended_at - record.started_at);
}

function milliseconds(ms: number | null): string | null {
  return ms === null ? null : `${exact(ms)} ms`;
}

function moment(at: number): string {
  return `${localTime(at)}.${String(at % 1000).padStart(3, "0")} ${offsetName(at)}`;
}

function momentOrNull(at: number | null | undefined): string | null {
  return at === null || at === undefined ? null : moment(at);
}

function moneyOrNull(microdollars: number | null | undefined): string | null {
  return microdollars === null || microdollars === undefined ? null : dollars(microdollars);
}

function yesOrNo(value: boolean | null | undefined): string | null {
  return value === null || value === undefined ? null : value ? "yes" : "no";
}

/** Unknown is not zero. */
function number(tokens: number | null): string {
  return tokens === null ? "?" : exact(tokens);
}
