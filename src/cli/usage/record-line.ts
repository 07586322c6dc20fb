import { costInWords, duration, exact, localTime } from "../../core/units.ts";
import type { UsageRecord } from "../../usage/record.ts";
import { short } from "../../usage/reports/format.ts";
import { unknownCost } from "../../usage/reports/sums.ts";
import { rollUp } from "../../usage/rollups.ts";
import { type Color, color } from "../ui/terminal.ts";
import { printable, textWidth, truncate } from "../ui/text.ts";

const TIME_WIDTH = "00:00:00".length;
const STATUS_WIDTH = 3;
const COST_WIDTH = "$0.0081".length;
const DURATION_WIDTH = "878 ms".length;
/** From this width on names have more space, and the time to the first byte is shown. */
const WIDE = 110;

/**
 * One record on one line: time, status, tool, model, then cost, duration and tokens, or why there are none. Only what
 * follows the cost can be cut off at 80 columns.
 */
export function recordLine(record: UsageRecord, width: number): string {
  const isWide = width >= WIDE;
  const names = [
    localTime(record.started_at).slice(11),
    String(record.status ?? "").padStart(STATUS_WIDTH),
    padded(record.tool ?? "(unknown)", isWide ? 14 : 11),
    padded(formatSubject(record), isWide ? 24 : 17),
  ].join(" ");
  const rest = width - textWidth(names) - 1;
  const line = truncate(`${names} ${formatResult(record, rest, isWide)}`.trimEnd(), width);
  return colorStatus(line, chooseColor(record));
}

function formatSubject({ model, model_answered, method, endpoint, requests, last_id }: UsageRecord): string {
  if (last_id !== null) return `${exact(requests)} more requests`;
  return model ?? model_answered ?? `${method} ${endpoint}`;
}

/** Cost, duration and tokens; for a request that cost nothing and failed, its end. */
function formatResult(record: UsageRecord, width: number, isWide: boolean): string {
  const cost = formatCost(record);
  const end = printable(describeEnd(record));
  if (cost === "" && end !== "") return end;
  const amounts = `${cost.padStart(COST_WIDTH)} ${totalTime(record).padStart(DURATION_WIDTH)} `;
  const firstByte = isWide ? firstByteTime(record) : "";
  const rest = width - textWidth(`${amounts}${end}, , ${firstByte}`);
  const tokens = formatTokens(record, rest);
  const details = [end, tokens, firstByte].filter((text) => text !== "");
  return `${amounts}${details.join(", ")}`;
}

/** Why a request did not complete, or why the gateway refused it. */
function describeEnd({ end, refusal, cause, cause_detail: detail }: UsageRecord): string {
  const causes = [cause, detail].filter((text) => text !== null).join(": ");
  switch (end) {
    case null:
      return "running";
    case "complete":
      return causes;
    case "client-left":
      return "canceled";
    case "gateway-failed":
      return ["failed", refusal ?? causes].filter((text) => text !== "").join(": ");
    case "refused":
      return `refused: ${[refusal, causes].filter((text) => text !== null && text !== "").join(", ")}`;
    case "interrupted":
      return "interrupted";
  }
}

function chooseColor({ end, status }: UsageRecord): Color | null {
  if (end === "refused" || end === "gateway-failed") return "red";
  if (status !== null && status >= 400) return "red";
  return end === "complete" ? null : "yellow";
}

function colorStatus(line: string, name: Color | null): string {
  if (name === null) return line;
  const begin = TIME_WIDTH + 1;
  const end = begin + STATUS_WIDTH;
  return `${line.slice(0, begin)}${color(name, line.slice(begin, end))}${line.slice(end)}`;
}

/** All kinds of tokens if they fit, otherwise input and output. */
function formatTokens(record: UsageRecord, width: number): string {
  const { input_tokens: input, output_tokens: output } = record;
  const { cache_read_tokens: read, cache_write_tokens: written } = record;
  if (input === null && output === null) {
    const isUnmetered = record.end === "complete" && rollUp(record).sums.unmetered > 0;
    return isUnmetered ? "no usage reported" : "";
  }
  const about = record.tokens_from === "estimated" ? "about " : "";
  const parts = [
    `${amount(input)} in`,
    ...(read ? [`${short(read)} cached`] : []),
    ...(written ? [`${short(written)} written`] : []),
  ];
  const all = `${about}${parts.join(" + ")}, ${amount(output)} out`;
  if (textWidth(all) <= width) return all;
  const sum = input === null ? null : input + (read ?? 0) + (written ?? 0);
  return `${about}${amount(sum)} in, ${amount(output)} out`;
}

function amount(tokens: number | null): string {
  return tokens === null ? "?" : short(tokens);
}

/** The reports count the same records as unknown. */
function formatCost(record: UsageRecord): string {
  const { cost_microdollars: cost } = record;
  return cost === null && unknownCost(rollUp(record).sums) === 0 ? "" : costInWords(cost);
}

function totalTime({ started_at, ended_at }: UsageRecord): string {
  return ended_at === null ? "" : duration(ended_at - started_at);
}

function firstByteTime({ started_at, first_byte_at }: UsageRecord): string {
  return first_byte_at === null ? "" : `first byte ${duration(first_byte_at - started_at)}`;
}

function padded(text: string, width: number): string {
  const shown = truncate(printable(text), width);
  return `${shown}${" ".repeat(Math.max(0, width - textWidth(shown)))}`;
}
