import type { UsageRecord } from "../../usage/record.ts";
import { localTime } from "../../usage/reports/calendar.ts";
import { dollars, duration, short } from "../../usage/reports/format.ts";
import { unknownCost } from "../../usage/reports/sums.ts";
import { rollupOf } from "../../usage/rollups.ts";
import { printable, textWidth, truncate } from "../ui/text.ts";

/** One record on one line. */
export function tailLine(record: UsageRecord): string {
  const parts = [
    localTime(record.started_at).slice(11),
    padded(record.tool ?? "(nobody)", 12),
    padded(record.model ?? record.model_answered ?? `${record.method} ${record.endpoint}`, 22),
    padded(outcomeOf(record), 11),
    ...(record.end === "refused" ? [record.refusal ?? ""] : amountsOf(record)),
    ...(record.cause === null ? [] : [`(${record.cause_detail ?? record.cause})`]),
  ];
  return printable(parts.join(" ")).trimEnd();
}

function outcomeOf({ end, status }: UsageRecord): string {
  const code = status === null ? "" : `${status} `;
  switch (end) {
    case null:
      return "running";
    case "complete":
      return code.trim();
    case "client-left":
      return `${code}left`;
    case "gateway-failed":
      return `${code}failed`;
    case "refused":
      return `${code}refused`;
    case "interrupted":
      return "interrupted";
  }
}

/** Names are cut where they are too long; a number never is, but moves the rest. */
function amountsOf(record: UsageRecord): string[] {
  return [tokensOf(record).padEnd(30), costOf(record).padStart(8), timesOf(record)];
}

function tokensOf(record: UsageRecord): string {
  const { input_tokens: input, output_tokens: output } = record;
  if (input === null && output === null)
    return rollupOf(record).sums.unmetered === 0 ? "" : "no usage reported";
  const parts = [
    `${amount(input)} in`,
    ...caches([record.cache_read_tokens, "cached"], [record.cache_write_tokens, "written"]),
  ];
  const about = record.tokens_from === "estimated" ? "about " : "";
  return `${about}${parts.join(" + ")}, ${amount(output)} out`;
}

function caches(...kinds: readonly (readonly [number | null, string])[]): string[] {
  return kinds.flatMap(([tokens, name]) =>
    tokens === null || tokens === 0 ? [] : [`${short(tokens)} ${name}`],
  );
}

function amount(tokens: number | null): string {
  return tokens === null ? "?" : short(tokens);
}

/** Unknown where the reports count it so. */
function costOf(record: UsageRecord): string {
  if (record.cost_microdollars !== null) return dollars(record.cost_microdollars);
  return unknownCost(rollupOf(record).sums) === 0 ? "" : "$?";
}

function timesOf({ started_at, first_byte_at, ended_at }: UsageRecord): string {
  const first = first_byte_at === null ? [] : [`first ${duration(first_byte_at - started_at)}`];
  const all = ended_at === null ? [] : [`all ${duration(ended_at - started_at)}`];
  return [...first, ...all].join(", ");
}

function padded(text: string, room: number): string {
  const shown = truncate(printable(text), room);
  return `${shown}${" ".repeat(Math.max(0, room - textWidth(shown)))}`;
}
