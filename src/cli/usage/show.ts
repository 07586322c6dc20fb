import { startCommand } from "../../control/client.ts";
import { advice } from "../../core/advice.ts";
import type { Problem } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { dollars, duration, exact } from "../../core/units.ts";
import { findMetering } from "../../metering/protocols.ts";
import type { CauseDetail, CauseName } from "../../proxy/key-health/cause.ts";
import { usedBy } from "../../usage/counted.ts";
import { OWN_RECORDS } from "../../usage/journal/refusal-runs.ts";
import { mayCost, type TokensFrom, type UsageRecord } from "../../usage/record.ts";
import { jsonText, refusalInWords } from "../../usage/reports/format.ts";
import { exportedRecord, findRecords, findRuns } from "../../usage/reports/records.ts";
import { exitOnClosedOutput, fail, notice, printLayout } from "../ui/messages.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";
import { outputWidth } from "../ui/terminal.ts";
import { printable, wrap } from "../ui/text.ts";
import { exactTime } from "../ui/units.ts";
import { thisMachine } from "./filter.ts";
import { hasUsageLog, type IndexDatabase, noUsageLog, withIndex } from "./index-file.ts";
import { recordLine } from "./record-line.ts";

const MAX_LISTED = 10;
const MIN_ID_LENGTH = 4;
const ID_LENGTH = 26;

/** `keybearer usage show <id>` */
export async function show(text: string, options: { json?: boolean }): Promise<void> {
  const id = text.trim();
  if (id.length < MIN_ID_LENGTH)
    return fail(
      `"${id}" is too short: write at least ${MIN_ID_LENGTH} characters of the id, or last`,
      EXIT.usage,
    );
  exitOnClosedOutput();
  const paths = commandPaths();
  if (!hasUsageLog(paths)) return fail(noUsageLog(paths), EXIT.failed);
  await withIndex(paths, async (db) => {
    const own = findRecords(db, id, MAX_LISTED + 1);
    const found = own.length > 0 ? own : findRuns(db, id.toUpperCase(), MAX_LISTED + 1);
    const [record] = found;
    if (record === undefined) return fail(notFound(id, db, paths), EXIT.failed);
    if (found.length > 1) return fail(severalFound(id, found), EXIT.failed);
    if (own.length === 0 && record.last_id !== id.toUpperCase())
      notice(`${id} has no record of its own: it may be one of these ${exact(record.requests)} requests`);
    if (options.json) stdio().stdout.write(`${jsonText(exportedRecord(record), 2)}\n`);
    else printLayout(formatRecord(record, await thisMachine(paths), outputWidth()));
  });
}

function notFound(id: string, db: IndexDatabase, paths: Paths): Problem {
  return findRecords(db, "last", 1).length === 0
    ? {
        problem: "nothing was recorded yet, so there is no record to show",
        next: `${startCommand(paths)}, and send a request`,
      }
    : {
        problem: `there is no record ${id}. Requests that were refused beyond the first ${OWN_RECORDS} of a kind in a minute share a record`,
        next: `${advice.usageTail()} shows the last ones`,
      };
}

function severalFound(id: string, found: readonly UsageRecord[]): string {
  const lines = found.slice(0, MAX_LISTED).map((record) => `${record.id}  ${recordLine(record, 80)}`);
  const more = found.length > MAX_LISTED ? "\n…" : "";
  const next = id.length < ID_LENGTH ? "write more of the id" : "it has no record of its own";
  return `${id} fits several records; ${next}:\n${lines.join("\n")}${more}`;
}

const NAME_WIDTH = 12;

/**
 * One record: its fields, then what they mean.
 * @param machine the name of this machine; null: it has none.
 */
export function formatRecord(record: UsageRecord, machine: string | null, width: number): string {
  const lines = listFields(record, machine).flatMap(([name, value]) =>
    value === null ? [] : [formatField(name, value, width)],
  );
  const notes = listNotes(record).map((note) => wrap(printable(note), width));
  if (notes.length > 0) lines.push("", ...notes);
  return `${lines.join("\n")}\n`;
}

export function formatField(name: string, value: string, width: number): string {
  const [first = "", ...rest] = wrap(printable(value), width - NAME_WIDTH).split("\n");
  const later = rest.map((line) => `${" ".repeat(NAME_WIDTH)}${line}`);
  return [`${name.padEnd(NAME_WIDTH)}${first}`, ...later].join("\n");
}

function listFields(record: UsageRecord, machine: string | null): [name: string, value: string | null][] {
  const { started_at: began, first_byte_at: first, ended_at: ended } = record;
  const ids = Object.entries(record.gateway_ids).map(([name, id]) => `${name}: ${id}`);
  const billed = record.billed_microdollars;
  if (record.last_id !== null)
    return [
      ["record", record.id],
      ["last id", record.last_id],
      ["requests", exact(record.requests)],
      ["minute", exactTime(began)],
      ["tool", record.tool ?? "unknown"],
      ["gateway", record.gateway],
      ["end", record.end],
      ["refusal", record.refusal],
    ];
  return [
    ["record", record.id],
    ["began", exactTime(began)],
    ["first byte", first === null ? null : `${exactTime(first)}, after ${elapsed(began, first)}`],
    ["ended", ended === null ? null : `${exactTime(ended)}, after ${elapsed(began, ended)}`],
    ["waited", record.waited_ms === 0 ? null : `${duration(record.waited_ms)} for a limit`],
    ["sent", sentLate(record)],
    ["tool", record.tool ?? "unknown"],
    ["token", record.token],
    ["session", record.session],
    ["project", formatProject(record)],
    ["process", record.process],
    ["user agent", record.user_agent],
    ["machine", record.machine ?? machine],
    ["gateway", record.gateway],
    ["group", record.group === null ? null : `${record.group}, multiplier ${record.multiplier}`],
    ["key", record.key],
    ["request", `${record.method} ${record.endpoint} (${record.protocol})`],
    ["model", formatModel(record)],
    ["status", record.status === null ? null : `${record.status}${record.stream ? ", streamed" : ""}`],
    ["end", record.end ?? "still running"],
    ["refusal", record.refusal],
    ["cause", record.cause],
    ["detail", record.cause_detail],
    ["tokens", formatTokens(record)],
    ["cost", formatCost(record)],
    ["billed", billed === null ? null : `${dollars(billed)}, according to the console`],
    ["counted", formatCounted(record)],
    ["bytes", `${exact(record.bytes_in)} from the tool, ${exact(record.bytes_out)} back`],
    ...ids.map((id, at): [string, string] => [at === 0 ? "ids" : "", id]),
  ];
}

/** Of a request that had to wait for its gateway, or took long to connect. */
function sentLate({ started_at: began, waited_ms, admitted_at, sent_at: sent }: UsageRecord): string | null {
  if (sent === null || admitted_at === null) return null;
  // `admitted_at` may be the store's time, and before it the body was read: both must say that it was late.
  if (Math.min(sent - admitted_at, sent - began - waited_ms) < 1000) return null;
  return `${exactTime(sent)}, after ${elapsed(began, sent)}: before, there was no connection to the gateway`;
}

function elapsed(from: number, to: number): string {
  return to < from ? "the clock was set back" : duration(to - from);
}

function formatProject({ project, branch }: UsageRecord): string | null {
  return branch === null ? project : `${project ?? "unknown"}, branch ${branch}`;
}

function formatModel({ model, model_answered: answered }: UsageRecord): string | null {
  if (model === null || answered === null || model === answered) return model ?? answered;
  return `${model}, answered by ${answered}`;
}

/** What the tool's limits count for a request whose use is not known; null: what it used, or nothing. */
function formatCounted(record: UsageRecord): string | null {
  const { tool, counts, end, machine, held_tokens, held_microdollars } = record;
  if (tool === null || counts === false || end === null || machine !== null) return null;
  const used = usedBy(record);
  const parts: string[] = [];
  const tokens = used.tokens ?? held_tokens ?? 0;
  const spend = used.spend ?? held_microdollars ?? 0;
  if (used.areTokensEstimated && tokens > 0) parts.push(`${exact(tokens)} tokens`);
  if (used.isSpendEstimated && spend > 0) parts.push(dollars(spend));
  return parts.length === 0 ? null : `${parts.join(" and ")} under the tool's limits, estimated`;
}

const SOURCES: Readonly<Record<TokensFrom, string>> = {
  reported: "reported by the gateway",
  console: "from the gateway's console",
  estimated: "estimated from the text",
  none: "",
};

function formatTokens(record: UsageRecord): string | null {
  if (record.tokens_from === "none") return null;
  const parts: [string, number | null][] = [
    ["input", record.input_tokens],
    ["read from cache", record.cache_read_tokens],
    ["written to cache", record.cache_write_tokens],
    ["output", record.output_tokens],
    ["of it reasoning", record.reasoning_tokens],
  ];
  const known = parts.flatMap(([name, tokens]) => (tokens === null ? [] : [`${exact(tokens)} ${name}`]));
  if (record.output_tokens === null) known.push("output not known");
  return `${known.join(", ")}; ${SOURCES[record.tokens_from]}`;
}

function formatCost(record: UsageRecord): string | null {
  const { cost_microdollars: cost, list_microdollars: list, multiplier } = record;
  if (cost === null) return null;
  if (list === null || multiplier === 1) return dollars(cost);
  return `${dollars(cost)} = list price ${dollars(list)} × ${multiplier}`;
}

function listNotes(record: UsageRecord): string[] {
  if (record.last_id !== null) return runNotes(record);
  const notes = [endNote(record), causeNote(record), usageNote(record)];
  return notes.filter((note) => note !== null);
}

function runNotes({ end, refusal }: UsageRecord): string[] {
  const many = `the first ${OWN_RECORDS} of this kind in the minute have their own records; the others are counted here, from the first id to the last`;
  if (end !== "refused") return ["the tool canceled them before anything was sent", many];
  return [`keybearer refused them and sent nothing to the gateway: ${refusalInWords(refusal)}`, many];
}

function endNote(record: UsageRecord): string | null {
  const { end, refusal } = record;
  switch (end) {
    case null:
      return "it has not ended yet; or keybearer was killed, and its next start marks it as interrupted";
    case "refused":
      return `keybearer refused it and sent nothing to the gateway: ${refusalInWords(refusal)}`;
    case "client-left":
      return canceledNote(record);
    case "gateway-failed":
      return refusal === null
        ? "the gateway ended its answer early"
        : `the gateway did not answer: ${refusalInWords(refusal)}`;
    case "interrupted":
      return "keybearer was stopped while it ran, so its result and its cost are not known here";
    case "complete":
      return null;
  }
}

function canceledNote(record: UsageRecord): string {
  if (record.sent_at === null) return "the tool canceled it before anything was sent";
  // What a GET asks for is not billed.
  return record.method === "GET" && record.first_byte_at === null
    ? "the tool canceled it before an answer came"
    : "the tool canceled it before the answer was complete; the gateway may bill what it had produced";
}

const CAUSES: Readonly<Record<CauseName, string>> = {
  "incomplete-key":
    "the gateway does not know the key, or it is not valid: not complete, deleted, disabled, expired or used up",
  "group-unavailable": "the key's group cannot be used, or does not have this model",
  "balance-or-quota": "the balance, the subscription or the key's quota is used up",
  "wrong-base-url": "the gateway has no API at this address: see base_url in config.yaml",
  "rate-limit": "the gateway limits how many requests come at once",
  unknown: "the gateway refused it for an unknown reason",
};

/** More specific than the cause. */
const CAUSE_DETAILS: Readonly<Record<CauseDetail, string>> = {
  "key-disabled": "the key was disabled at the gateway",
  "key-expired": "the key had expired at the gateway",
  "key-deleted": "the gateway did not know the key any more: it was deleted",
  "key-quota": "the key's own quota was used up",
  "account-balance": "the account's balance was used up",
  "account-disabled": "the account was disabled, banned or deleted at the gateway",
  "ip-not-allowed": "the key did not allow this machine's IP address",
  "window-used-up": "the quota of a window (5 hours, day, week or month) was used up; it returns by itself",
  "group-deleted": "the key's group was deleted at the gateway",
  "group-disabled": "the key's group was disabled at the gateway",
  "group-not-allowed": "the account could not use the key's group",
  "no-group": "the key had no group at the gateway",
  "no-models": "the gateway listed no models for the key: its group had none",
  "no-capacity": "the gateway, or the provider behind it, had no capacity for the request",
};

function causeNote({ cause, cause_detail: detail }: UsageRecord): string | null {
  if (cause === null) return null;
  return (
    CAUSE_DETAILS[detail as CauseDetail] ?? CAUSES[cause as CauseName] ?? `the gateway's refusal: ${cause}`
  );
}

const UNKNOWN = "tokens and cost are unknown, which is not zero";

/** Why tokens or cost are unknown, and what to do about it. */
function usageNote(record: UsageRecord): string | null {
  const { end, tokens_from: source } = record;
  if (end === null || end === "refused" || end === "interrupted") return null;
  if (end === "client-left" && record.sent_at === null) return null;
  if (source === "none") return noTokensNote(record);
  if (record.output_tokens === null)
    return "it ended before its output was counted, so the output and the cost are not known";
  if (record.list_microdollars === null)
    return `no price is known for ${formatModel(record) ?? "its model"}, so the cost is unknown → prices: in config.yaml`;
  return source === "estimated" ? "the tokens and the cost are an estimate" : null;
}

function noTokensNote(record: UsageRecord): string {
  if (record.status === 101) return `the usage of a WebSocket is not read, so ${UNKNOWN}`;
  const metering = findMetering(record.method, record.endpoint);
  if (metering === null) return "this is not billed by tokens";
  if (!mayCost(record)) return "no usage was reported; most gateways do not charge for a request that failed";
  if (metering === "other")
    return `the price of this endpoint is not known, and it reported no usage, so ${UNKNOWN}`;
  return `the gateway reported no usage, so ${UNKNOWN}. ${usageAdvice(record)}`;
}

/** Some streams report their usage if they are asked to. Any text can be estimated. */
function usageAdvice({ method, endpoint, end, stream, tool }: UsageRecord): string {
  const metering = findMetering(method, endpoint);
  const canAsk = end === "complete" && stream === true && (metering === "chat" || metering === "completions");
  const ask = canAsk ? "ask_usage: true asks streams for it, " : "";
  return `tools.${tool ?? "<tool>"}.${ask}estimate: true estimates it`;
}
