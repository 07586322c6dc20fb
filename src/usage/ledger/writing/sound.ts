import type { Closing, Opening } from "../../record.ts";

/*
 * Numbers come from clocks, from meters, and through them from gateways. The log holds whole ones only, and would
 * rather round one, or call it unknown, than lose the record it stands in. Texts come from callers and gateways: libsql
 * reads them up to the first NUL only, so that what was written could not be found again by what was read.
 */

/** As it is wherever nothing is wrong with it, which is always but for bugs and callers that mean no good. */
export function soundOpening(opening: Opening): Opening {
  if (isSoundOpening(opening)) return opening;
  const { started_at, multiplier, waited_ms } = opening;
  return {
    ...opening,
    tool: text(opening.tool),
    gateway: text(opening.gateway),
    group: text(opening.group),
    key: text(opening.key),
    method: text(opening.method),
    endpoint: text(opening.endpoint),
    model: text(opening.model),
    process: text(opening.process),
    started_at: whole(started_at) ?? 0,
    multiplier: Number.isFinite(multiplier) ? multiplier : 1,
    waited_ms: whole(waited_ms) ?? 0,
    held_tokens: whole(opening.held_tokens),
    held_microdollars: whole(opening.held_microdollars),
    admitted_at: whole(opening.admitted_at),
  };
}

export function soundClosing(closing: Closing): Closing {
  if (isSoundClosing(closing)) return closing;
  return {
    ...closing,
    model: text(closing.model),
    model_answered: text(closing.model_answered),
    cause: text(closing.cause),
    first_byte_at: whole(closing.first_byte_at),
    ended_at: whole(closing.ended_at),
    status: whole(closing.status),
    input_tokens: whole(closing.input_tokens),
    cache_read_tokens: whole(closing.cache_read_tokens),
    cache_write_tokens: whole(closing.cache_write_tokens),
    output_tokens: whole(closing.output_tokens),
    reasoning_tokens: whole(closing.reasoning_tokens),
    list_microdollars: whole(closing.list_microdollars),
    cost_microdollars: whole(closing.cost_microdollars),
    counted_tokens: whole(closing.counted_tokens),
    counted_microdollars: whole(closing.counted_microdollars),
    bytes_in: whole(closing.bytes_in) ?? 0,
    bytes_out: whole(closing.bytes_out) ?? 0,
  };
}

function isSoundOpening(opening: Opening): boolean {
  return (
    isWhole(opening.started_at) &&
    isWhole(opening.waited_ms) &&
    isWholeOrNull(opening.held_tokens) &&
    isWholeOrNull(opening.held_microdollars) &&
    isWholeOrNull(opening.admitted_at) &&
    Number.isFinite(opening.multiplier) &&
    isText(opening.tool) &&
    isText(opening.gateway) &&
    isText(opening.group) &&
    isText(opening.key) &&
    isText(opening.method) &&
    isText(opening.endpoint) &&
    isText(opening.model) &&
    isText(opening.process)
  );
}

function isSoundClosing(closing: Closing): boolean {
  return (
    isWholeOrNull(closing.first_byte_at) &&
    isWholeOrNull(closing.ended_at) &&
    isWholeOrNull(closing.status) &&
    isWholeOrNull(closing.input_tokens) &&
    isWholeOrNull(closing.cache_read_tokens) &&
    isWholeOrNull(closing.cache_write_tokens) &&
    isWholeOrNull(closing.output_tokens) &&
    isWholeOrNull(closing.reasoning_tokens) &&
    isWholeOrNull(closing.list_microdollars) &&
    isWholeOrNull(closing.cost_microdollars) &&
    isWholeOrNull(closing.counted_tokens) &&
    isWholeOrNull(closing.counted_microdollars) &&
    isWhole(closing.bytes_in) &&
    isWhole(closing.bytes_out) &&
    isText(closing.model) &&
    isText(closing.model_answered) &&
    isText(closing.cause)
  );
}

/** A sum of a million of these is still exact. */
const MOST = 2 ** 33 * 1000;

function whole(value: number | null): number | null {
  if (value === null || !Number.isFinite(value)) return null;
  return Math.min(Math.max(Math.round(value), 0), MOST);
}

function isWhole(value: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= MOST;
}

function isWholeOrNull(value: number | null): boolean {
  return value === null || isWhole(value);
}

function isText(value: string | null): boolean {
  return value?.includes("\0") !== true;
}

function text<T extends string | null>(value: T): T | string {
  return value?.includes("\0") === true ? value.replaceAll("\0", "\uFFFD") : value;
}
