import type { ComparedRecord, ComparedRow } from "../../mirror/report/shape.ts";
import { localTime, offsetName } from "../../usage/reports/calendar.ts";
import { dollars, exact } from "../../usage/reports/format.ts";
import { type Column, fitted, type Screen } from "../columns.ts";
import { noteBelow } from "../note.ts";
import { table, visible } from "../table.ts";
import { factor, moneyOrUnknown, timeOfDay } from "./amounts.ts";

/** One line of two: what one side says. */
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

/** Two lines each, ours above theirs, and below them why. */
export function diffInWords(rows: readonly ComparedRow[], now: number, { width }: Screen): string {
  const sides = rows.flatMap((row) => [oursOf(row, now), theirsOf(row, now)]);
  const column = (name: keyof Side, goes: number, right = false, head: string = name): Column => ({
    head,
    cells: sides.map((side) => side[name]),
    goes,
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
  const [head = "", ...lines] = fitted(columns, width, { sum: false }).split("\n");
  const shown = rows.flatMap((row, at) => [
    ...lines.slice(at * 2, at * 2 + 2),
    ...noteBelow({ what: row.reason, next: `keybearer mirror show ${typedName(row)}` }, width),
  ]);
  return `${[head, ...shown].join("\n")}\n`;
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

/** By which `mirror show` finds it again. */
export function nameOf({ row, record }: ComparedRow): string {
  return row?.identity ?? record?.id ?? "";
}

/** As a shell takes it for one word: a console's identities may hold anything. */
function typedName(compared: ComparedRow): string {
  const name = nameOf(compared);
  return /^[\w.:@%+=,/-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}

/** Everything of both sides, and why the verdict. */
export function comparedInWords(compared: ComparedRow): string {
  const facts = factsOf(compared).filter(([, ours, theirs]) => ours !== null || theirs !== null);
  const cells = facts.map(([name, ours, theirs]) => [name, ours ?? "-", theirs ?? "-"]);
  const { row, record } = compared;
  const absent = [
    ...(record === null ? ["nothing of ours: it did not pass here"] : []),
    ...(row === null ? ["nothing of theirs: the console does not list it"] : []),
  ];
  return `${[
    visible(`${compared.gateway}: ${verdictInWords(compared)}`),
    visible(compared.reason),
    ...absent,
    "",
    table(["", "ours", "theirs"], cells),
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
    ["multiplier", null, row === null || row.multiplier === null ? null : factor(row.multiplier)],
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
