import { MINUTE_MS } from "../../core/units.ts";
import { MAX_USER_AGENT } from "../../usage/record.ts";
import type { Context, OurRequest, OurTokens, RowGroup, StartFit, TheirRow } from "./context.ts";

/* Whether a console row can belong to a record: by ids, by key, model, stream and tokens, and by time. */

/** The gateway knows this request's id, and the row has an id too. Equal ids were matched before, so they differ. */
export function idsContradict(record: OurRequest, { main }: RowGroup): boolean {
  if (mayBeRefusal(record, main)) return false;
  return record.own_id && !record.upgraded && main.request_id !== null;
}

/** The row of a failure may be the refusal of this request, whatever its id is. */
export function mayBeRefusal({ refusable }: OurRequest, { kind }: Pick<TheirRow, "kind">): boolean {
  return refusable && kind === "error";
}

/** Clocks are compared to about a second. */
const CLOCKS_MS = 3000;
/** On two overloaded cores LiteLLM began requests up to 53 s after they were sent, some after their client had left. */
const BEGUN_LATE_MS = 2 * MINUTE_MS;

/**
 * Of rows with the id that a request of ours brought, those that are that request's: they have its key, and began while it was
 * in flight. Whoever reads LiteLLM's usage log later knows the id, too.
 */
export function findOwnRows(record: OurRequest, rows: readonly TheirRow[]): TheirRow[] {
  const possible = rows.filter((row) => !hasOtherKey(record, row));
  const inFlight = possible.filter((row) => beganInFlight(record, row));
  if (inFlight.length > 0 && wasAnswered(record)) return withinDuration(record, inFlight);
  if (inFlight.length > 0 || wasAnswered(record)) return inFlight;
  const end = endOf(record);
  const late = possible.flatMap(({ began }) => (began !== null && began > end ? [began] : []));
  const first = Math.min(...late);
  return first > end + BEGUN_LATE_MS ? [] : possible.filter(({ began }) => began === first);
}

/** Whatever the clocks say, rows of one request begin no further apart than it lasted. */
function withinDuration({ sent_at, ended_at }: OurRequest, rows: readonly TheirRow[]): TheirRow[] {
  const first = Math.min(...rows.map(({ began }) => began ?? Infinity));
  const latest = ended_at === null ? Infinity : first + ended_at - sent_at;
  return rows.filter(({ began }) => began === null || began <= latest);
}

export function beganInFlight(record: OurRequest, { began }: TheirRow): boolean {
  if (began === null) return true;
  const error = record.clock_error + CLOCKS_MS;
  if (began < record.sent_at - error) return false;
  return record.running || began <= (record.ended_at ?? record.sent_at + CONNECT_MS) + error;
}

/** The whole answer arrived. */
export function wasAnswered({ expected, failed }: OurRequest): boolean {
  return expected || failed;
}

export function hasOtherKey(record: OurRequest, { key }: TheirRow): boolean {
  return key !== null && record.key !== null && key !== record.key;
}

/** sub2api gives ids only to rows of HTTP requests, so a row with an id did not come through a WebSocket. */
export function mayBeOfSocket({ main }: RowGroup, { hands_out_ids, socket_rows_have_ids }: Context): boolean {
  return main.request_id === null || socket_rows_have_ids || !hands_out_ids;
}

/** Key, user agent, stream, model and tokens agree, as far as both sides know them. */
export function isSameCall(record: OurRequest, { main, key }: RowGroup): boolean {
  if (key !== record.key || hasOtherUserAgent(record, main)) return false;
  if (record.stream !== null && main.stream !== null && record.stream !== main.stream) return false;
  const knowsModel = record.model !== null || record.model_answered !== null;
  if (knowsModel && main.model !== null && !hasModel(record, main.model)) return false;
  if (main.kind !== "use" || record.tokens === null || !record.exact) return true;
  const theirs = tokensOfRow(main);
  return theirs === null || tokensAgree(record.tokens, theirs);
}

/** The program that sent the request is not the one that the row lists. */
export function hasOtherUserAgent(
  { user_agent: sent }: OurRequest,
  { user_agent: listed }: TheirRow,
): boolean {
  return sent !== null && listed !== null && !isSameUserAgent(sent, listed);
}

/** @param sent as a record has it: of a long one only the first part. */
export function isSameUserAgent(sent: string, listed: string): boolean {
  return listed.slice(0, MAX_USER_AGENT).trim() === sent;
}

/** The model names that a console may list, in lower case. Some list the requested model, others the one that answered. */
export function listModels({ model, model_answered }: OurRequest): string[] {
  const names = [model, model_answered].filter((name) => name !== null);
  return [...new Set(names.map((name) => name.toLowerCase()))];
}

export function hasModel(record: OurRequest, name: string): boolean {
  return (
    name === record.model || name === record.model_answered || listModels(record).includes(name.toLowerCase())
  );
}

/** A row's tokens. `cache` null: the input includes cached tokens, as in one-api and some rows of new-api. */
export interface RowTokens {
  readonly input: number;
  readonly cache: { readonly read: number; readonly write: number } | null;
  readonly output: number;
}

/** null: the console does not list them all. */
export function tokensOfRow(row: TheirRow): RowTokens | null {
  const {
    input_tokens: input,
    output_tokens: output,
    cache_read_tokens: read,
    cache_write_tokens: write,
  } = row;
  if (input === null || output === null) return null;
  if (read !== null && write !== null) return { input, cache: { read, write }, output };
  return { input: input + (read ?? 0) + (write ?? 0), cache: null, output };
}

export function wholeInput({ input, cache_read, cache_write }: OurTokens): number {
  return input + cache_read + cache_write;
}

export function theirWholeInput({ input, cache }: RowTokens): number {
  return cache === null ? input : input + cache.read + cache.write;
}

export function tokensAgree(ours: OurTokens, theirs: RowTokens): boolean {
  if (ours.output !== theirs.output) return false;
  if (theirs.cache === null) return wholeInput(ours) === theirs.input;
  const { read, write } = theirs.cache;
  return ours.input === theirs.input && ours.cache_read === read && ours.cache_write === write;
}

/** Fewer matches by id do not show how close a row's start is to its request. */
const ENOUGH_OFFSETS = 20;
/** On two busy cores, half of 1,707 requests reached new-api within 1 ms of the others, 99 % within 47 to 86 ms. */
const LEAST_CLOSE_MS = 50;
const CLOSE_SHARE = 0.99;
/** Used until then: clocks are compared to about a second, and new-api's rows have whole seconds. */
export const UNKNOWN_START: StartFit = { later: 0, within: 3000, close: LEAST_CLOSE_MS, latest: 3000 };
/** On two busy cores requests reached new-api up to 240 ms later than most. */
const LEAST_WITHIN_MS = 500;
/** A request that opens a new connection takes longer than most. */
const SPREAD_FACTOR = 3;
/**
 * What was sent may arrive late: on two overloaded cores requests reached new-api up to 8 s after they were sent, some after
 * their client had left. Such a request has no id, so those that have one show how late it may be.
 */
const LEAST_LATEST_MS = 2000;
const LATEST_FACTOR = 1.5;

/**
 * null: too few offsets.
 * @param offsets of requests matched by id: when their rows began, minus when the requests were sent.
 */
export function learnStartFit(offsets: readonly number[]): StartFit | null {
  if (offsets.length < ENOUGH_OFFSETS) return null;
  const later = quantile(offsets, 0.5);
  const distances = offsets.map((offset) => Math.abs(offset - later));
  const spread = SPREAD_FACTOR * quantile(distances, 0.9);
  const within = Math.min(Math.max(LEAST_WITHIN_MS, spread), UNKNOWN_START.within);
  const close = Math.max(LEAST_CLOSE_MS, quantile(distances, CLOSE_SHARE));
  const latest = Math.max(LEAST_LATEST_MS, LATEST_FACTOR * (quantile(offsets, 1) - later));
  return {
    later,
    within,
    close: Math.min(close, within),
    latest: Math.min(latest, CONNECT_MS),
  };
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
}

/** When a row's request was sent. Where the row has no start: when it ended. */
export function timeOfRow({ began, at }: TheirRow, { later }: StartFit): number {
  return began === null ? at : began - later;
}

/** When a record's row would be written: consoles write at the end of a request. */
export function endOf({ ended_at, sent_at }: OurRequest): number {
  return ended_at ?? sent_at;
}

/** A request whose end keybearer did not see began at the gateway within this time. */
const CONNECT_MS = 10_000;
/** new-api and one-api list the end of a request in whole seconds. */
const ROUNDED_MS = 1000;
/** new-api and sub2api continue a request whose client left, for as long as the provider answers. */
const LONGEST_MS = 90 * MINUTE_MS;

/** Whether the row began while the request was in flight. If the row has no start, it must end after the request began. */
export function mayHaveBegun(record: OurRequest, row: TheirRow, start: StartFit): boolean {
  const earliest = record.sent_at - record.clock_error;
  if (row.at < earliest - Math.max(start.within, ROUNDED_MS)) return false;
  if (row.began === null) return true;
  const sent = timeOfRow(row, start);
  if (sent < earliest - start.within) return false;
  if (record.running) return true;
  const end = (record.ended_at ?? record.sent_at + CONNECT_MS) + record.clock_error;
  return sent < end + start.latest && row.at <= end + LONGEST_MS;
}

/** Whether the row began when the request was sent. */
export function beganWith(record: OurRequest, row: TheirRow, start: StartFit): boolean {
  if (row.began === null || !mayHaveBegun(record, row, start)) return false;
  return Math.abs(timeOfRow(row, start) - record.sent_at) <= start.within;
}
