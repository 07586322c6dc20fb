import { DAY_MS, QUARTER_MS } from "../core/units.ts";
import { mayCost, type UsageRecord } from "./record.ts";

/** The number of the quarter hour that contains a time, counted from 1970. */
export function quarterOf(time: number): number {
  return Math.floor(time / QUARTER_MS);
}

/** The sums, in the order of the table's columns. */
export const SUMS = [
  "requests",
  "refused",
  "failed",
  "client_left",
  "interrupted",
  "unmetered",
  "unpriced",
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "reasoning_tokens",
  "list_microdollars",
  "cost_microdollars",
  "billed_microdollars",
  "billed_requests",
] as const;

export type Sums = Record<(typeof SUMS)[number], number>;

/**
 * There are separate sums for each combination of these. An empty text stands for null, which a primary key cannot have. A
 * session is none of them: there are too many.
 */
export interface Series {
  readonly tool: string;
  readonly gateway: string;
  readonly group: string;
  readonly key: string;
  readonly model: string;
  /** Empty: this machine. */
  readonly machine: string;
  readonly project: string;
  readonly branch: string;
  readonly token: string;
  /** The model that answered, where its name is not the one asked for; see metering/same-model.ts. */
  readonly answered: string;
}

export const SERIES = [
  "tool",
  "gateway",
  "group",
  "key",
  "model",
  "machine",
  "project",
  "branch",
  "token",
  "answered",
] as const satisfies readonly (keyof Series)[];

/** What distinguishes a rollup from all others. */
export interface RollupPlace extends Series {
  readonly quarter: number;
}

/** The finished records of one series in one quarter hour, added up. */
export interface Rollup extends RollupPlace {
  readonly sums: Sums;
  readonly firstBytes: Histogram;
}

/** Of the rollup that a finished record belongs to. */
export function rollupPlace(record: UsageRecord): RollupPlace {
  return {
    quarter: quarterOf(record.started_at),
    tool: record.tool ?? "",
    gateway: record.gateway ?? "",
    group: record.group ?? "",
    key: record.key ?? "",
    model: record.model ?? record.model_answered ?? "",
    machine: record.machine ?? "",
    project: record.project ?? "",
    branch: record.branch ?? "",
    token: record.token ?? "",
    answered: otherAnswered(record),
  };
}

export function isSamePlace(one: RollupPlace, other: RollupPlace): boolean {
  return one.quarter === other.quarter && SERIES.every((name) => one[name] === other[name]);
}

/** Without any records. */
export function emptyRollup(place: RollupPlace): Rollup {
  return { ...place, sums: emptySums(), firstBytes: new Map() };
}

function otherAnswered({ model, model_answered }: UsageRecord): string {
  return model === null || model === model_answered ? "" : (model_answered ?? "");
}

/** The rollup of a single record. */
export function rollUp(record: UsageRecord): Rollup {
  const rollup = emptyRollup(rollupPlace(record));
  addRecord(rollup, record, 1);
  return rollup;
}

/** Adds a finished record, or removes it with `times` -1. */
export function addRecord({ sums, firstBytes }: Rollup, record: UsageRecord, times: 1 | -1): void {
  const { end, status } = record;
  const metered = record.input_tokens !== null && record.output_tokens !== null;
  // Only requests that were not sent share a record. They have no tokens and no cost.
  const requests = record.requests * times;
  sums.requests += requests;
  if (end === "refused") sums.refused += requests;
  if (end === "gateway-failed" || (end === "complete" && status !== null && status >= 400))
    sums.failed += times;
  if (end === "client-left") sums.client_left += requests;
  if (end === "interrupted") sums.interrupted += times;
  if (!metered && mayCost(record)) sums.unmetered += times;
  if (metered && record.list_microdollars === null) sums.unpriced += times;
  sums.input_tokens += (record.input_tokens ?? 0) * times;
  sums.cache_read_tokens += (record.cache_read_tokens ?? 0) * times;
  sums.cache_write_tokens += (record.cache_write_tokens ?? 0) * times;
  sums.output_tokens += (record.output_tokens ?? 0) * times;
  sums.reasoning_tokens += (record.reasoning_tokens ?? 0) * times;
  sums.list_microdollars += (record.list_microdollars ?? 0) * times;
  sums.cost_microdollars += (record.cost_microdollars ?? 0) * times;
  sums.billed_microdollars += (record.billed_microdollars ?? 0) * times;
  if (record.billed_microdollars !== null) sums.billed_requests += times;
  if (record.first_byte_at !== null)
    addToBucket(firstBytes, bucketOf(record.first_byte_at - record.started_at), times);
}

export function emptySums(): Sums {
  return {
    requests: 0,
    refused: 0,
    failed: 0,
    client_left: 0,
    interrupted: 0,
    unmetered: 0,
    unpriced: 0,
    input_tokens: 0,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    output_tokens: 0,
    reasoning_tokens: 0,
    list_microdollars: 0,
    cost_microdollars: 0,
    billed_microdollars: 0,
    billed_requests: 0,
  };
}

/**
 * How long first bytes took: how many requests are in each bucket. Buckets are 5 % apart, which is exact enough for a
 * percentile. Stored as text, `bucket:count bucket:count …`, smallest first.
 */
export type Histogram = Map<number, number>;

const BUCKET_STEP = Math.log(1.05);
/** Longer than a day counts as a day: a wrong clock must not make more buckets. */
const MAX_FIRST_BYTE_MS = DAY_MS;

export function bucketOf(milliseconds: number): number {
  if (!(milliseconds >= 1)) return 0;
  return 1 + Math.round(Math.log(Math.min(milliseconds, MAX_FIRST_BYTE_MS)) / BUCKET_STEP);
}

/** The middle of a bucket. */
export function millisecondsOf(bucket: number): number {
  return bucket <= 0 ? 0 : Math.exp((bucket - 1) * BUCKET_STEP);
}

/** A loop, because a large report parses five million characters. A regular expression takes four times as long. */
export function parseHistogram(text: string): Histogram {
  const histogram: Histogram = new Map();
  let bucket = 0;
  let number = 0;
  for (let at = 0; at <= text.length; at += 1) {
    const character = text.charCodeAt(at);
    if (character >= ZERO && character <= NINE) {
      number = number * 10 + character - ZERO;
    } else if (character === COLON) {
      bucket = number;
      number = 0;
    } else {
      if (number > 0) addToBucket(histogram, bucket, number);
      number = 0;
    }
  }
  return histogram;
}

const ZERO = 48;
const NINE = 57;
const COLON = 58;

export function histogramText(histogram: Histogram): string {
  return [...histogram]
    .filter(([, count]) => count > 0)
    .sort(([a], [b]) => a - b)
    .map(([bucket, count]) => `${bucket}:${count}`)
    .join(" ");
}

export function addToBucket(histogram: Histogram, bucket: number, count: number): void {
  histogram.set(bucket, (histogram.get(bucket) ?? 0) + count);
}
