import { meteringOf } from "../../metering/protocols.ts";
import type { CauseDetail, CauseName } from "../../proxy/cause.ts";
import { mayCost, type TokensFrom, type UsageRecord } from "../../usage/record.ts";
import { localTime, offsetName } from "../../usage/reports/calendar.ts";
import { dollars, duration, exact, refusalInWords } from "../../usage/reports/format.ts";
import { printable } from "../ui/text.ts";

/** One record whole: what was noted, then what it means. */
export function recordInWords(record: UsageRecord): string {
  const lines = factsOf(record).flatMap(([name, value]) =>
    value === null ? [] : [`${name.padEnd(12)}${printable(value)}`],
  );
  const meaning = meaningOf(record).map((sentence) => printable(sentence));
  return `${[...lines, ...(meaning.length === 0 ? [] : ["", ...meaning])].join("\n")}\n`;
}

function factsOf(record: UsageRecord): [string, string | null][] {
  const { started_at: began, first_byte_at: first, ended_at: ended } = record;
  const ids = Object.entries(record.gateway_ids).map(([name, id]) => `${name}: ${id}`);
  return [
    ["record", record.id],
    ["began", moment(began)],
    ["first byte", first === null ? null : `${moment(first)}, after ${since(began, first)}`],
    ["ended", ended === null ? null : `${moment(ended)}, after ${since(began, ended)}`],
    ["waited", record.waited_ms === 0 ? null : `${duration(record.waited_ms)} for room under a limit`],
    ["tool", record.tool ?? "nobody that is known"],
    ["process", record.process],
    ["gateway", record.gateway],
    ["group", record.group === null ? null : `${record.group}, multiplier ${record.multiplier}`],
    ["key", record.key],
    ["request", `${record.method} ${record.endpoint} (${record.protocol})`],
    ["model", modelOf(record)],
    ["status", record.status === null ? null : `${record.status}${record.stream ? ", streamed" : ""}`],
    ["end", record.end ?? "still running"],
    ["refusal", record.refusal],
    ["cause", record.cause],
    ["detail", record.cause_detail],
    ["tokens", tokensOf(record)],
    ["cost", costOf(record)],
    [
      "billed",
      record.billed_microdollars === null
        ? null
        : `${dollars(record.billed_microdollars)}, as the console says`,
    ],
    ["bytes", `${exact(record.bytes_in)} to the gateway, ${exact(record.bytes_out)} back`],
    ...ids.map((id, at): [string, string] => [at === 0 ? "ids" : "", id]),
  ];
}

function moment(at: number): string {
  return `${localTime(at)}.${String(at % 1000).padStart(3, "0")} ${offsetName(at)}`;
}

function since(from: number, to: number): string {
  return to < from ? "the clock was set back" : `${exact(to - from)} ms`;
}

function modelOf({ model, model_answered: answered }: UsageRecord): string | null {
  if (model === null || answered === null || model === answered) return model ?? answered;
  return `${model}, answered by ${answered}`;
}

const UNKNOWN = "tokens and cost are unknown, which is not zero";

const FROM: Readonly<Record<TokensFrom, string>> = {
  reported: "reported by the gateway",
  console: "from the gateway's console",
  estimated: "estimated from the text",
  none: "",
};

function tokensOf(record: UsageRecord): string | null {
  if (record.tokens_from === "none") return null;
  const parts: [string, number | null][] = [
    ["input", record.input_tokens],
    ["read from cache", record.cache_read_tokens],
    ["written to cache", record.cache_write_tokens],
    ["output", record.output_tokens],
    ["of it reasoning", record.reasoning_tokens],
  ];
  const known = parts.flatMap(([name, tokens]) => (tokens === null ? [] : [`${exact(tokens)} ${name}`]));
  const output = record.output_tokens === null ? ["output not known"] : [];
  return `${[...known, ...output].join(", ")}; ${FROM[record.tokens_from]}`;
}

function costOf({
  cost_microdollars: cost,
  list_microdollars: list,
  multiplier,
}: UsageRecord): string | null {
  if (cost === null) return null;
  if (list === null || multiplier === 1) return dollars(cost);
  return `${dollars(cost)} = list price ${dollars(list)} × ${multiplier}`;
}

const CAUSES: Readonly<Record<CauseName, string>> = {
  "incomplete-key":
    "the gateway does not know the key, or it is not valid: not complete, deleted, disabled, expired or used up",
  "group-unavailable": "the key's group is not enabled, or does not have this model",
  "balance-or-quota": "the balance, the subscription or the key's quota is used up",
  "wrong-base-url": "nothing of the gateway's answers at this address: see base_url in config.yaml",
  "rate-limit": "the gateway limits how many requests come at once",
  unknown: "the gateway refused without a reason that is known",
};

/** In place of the cause's words, where the detail is known. */
const DETAILS: Readonly<Record<CauseDetail, string>> = {
  "key-disabled": "the key was disabled at the gateway",
  "key-expired": "the key had expired at the gateway",
  "key-deleted": "the gateway did not know the key any more: it was deleted",
  "key-quota": "the key's own quota was used up",
  "account-balance": "the account's balance was used up",
  "account-disabled": "the account was disabled, banned or deleted at the gateway",
  "ip-not-allowed": "the key did not allow this machine's IP address",
  "window-used-up": "the quota of a window (5 hours, day, week or month) was used up; it returns by itself",
  "no-capacity": "the gateway, or the provider behind it, had no capacity for the request",
};

function causeInWords({ cause, cause_detail: detail }: UsageRecord): string[] {
  if (cause === null) return [];
  const known = DETAILS[detail as CauseDetail] ?? CAUSES[cause as CauseName];
  return [known ?? `the gateway's refusal: ${cause}`];
}

function meaningOf(record: UsageRecord): string[] {
  return [...endInWords(record), ...causeInWords(record), ...tokensInWords(record)];
}

function endInWords(record: UsageRecord): string[] {
  const { end, refusal } = record;
  switch (end) {
    case null:
      return ["it has not ended yet; or keybearer was cut off, and its next start marks it interrupted"];
    case "refused":
      return [`keybearer refused it, and nothing was sent to the gateway: ${refusalInWords(refusal)}`];
    case "client-left":
      return [leftInWords(record)];
    case "gateway-failed":
      return [
        refusal === null
          ? "the gateway broke off before its answer was complete"
          : `the gateway did not answer: ${refusalInWords(refusal)}`,
      ];
    case "interrupted":
      return ["keybearer was cut off while it ran: what came of it, and what it cost, is not known here"];
    case "complete":
      return [];
  }
}

function leftInWords(record: UsageRecord): string {
  // A request without a body would not show whether it was sent.
  if (nothingPassed(record) && record.method !== "GET") return "the tool hung up before anything was sent";
  if (nothingPassed(record)) return "the tool hung up before an answer came";
  return "the tool hung up before the answer was complete; the gateway may bill what it made by then";
}

function nothingPassed({ status, bytes_in: sent, bytes_out: back }: UsageRecord): boolean {
  return status === null && sent === 0 && back === 0;
}

/** Why tokens or money are unknown, and what to do about it. */
function tokensInWords(record: UsageRecord): string[] {
  const { method, endpoint, end, status, tokens_from: from } = record;
  if (end === null || end === "refused" || end === "interrupted") return [];
  if (end === "client-left" && nothingPassed(record)) return [];
  if (status === 101 && from === "none") return [`a websocket's usage is not read, so ${UNKNOWN}`];
  const metering = meteringOf(method, endpoint);
  if (metering === null && from === "none") return ["nothing that is billed by tokens"];
  if (from === "none") {
    if (!mayCost(record))
      return ["no usage was reported; a request that failed costs nothing at most gateways"];
    if (metering === "other")
      return [`nobody here knows what this endpoint costs, and it reported no usage, so ${UNKNOWN}`];
    return [`the gateway reported no usage, so ${UNKNOWN}. ${adviceOf(record)}`];
  }
  if (record.output_tokens === null)
    return ["it ended early, before its output was counted: that is not known, and so neither is its cost"];
  if (record.list_microdollars === null)
    return [
      `no price is known for ${modelOf(record) ?? "its model"}, so the cost is unknown → prices: in config.yaml`,
    ];
  return from === "estimated" ? ["its tokens are an estimate, and so is its cost"] : [];
}

/** Some streams can be asked, and tell it at their end; an estimate is made of any text. */
function adviceOf({ method, endpoint, end, stream, tool }: UsageRecord): string {
  const metering = meteringOf(method, endpoint);
  const asks = end === "complete" && stream === true && (metering === "chat" || metering === "completions");
  const ask = asks ? "ask_usage: true asks streams for it, " : "";
  return `tools.${tool ?? "<tool>"}.${ask}estimate: true estimates it`;
}
