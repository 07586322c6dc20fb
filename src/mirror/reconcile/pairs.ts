import type { Context, OurRequest } from "./context.ts";
import { grouped } from "./grouped.ts";
import { sentAt } from "./start.ts";
import { agree, rowTokens, theirWholeInput, wholeInput } from "./tokens.ts";
import { contradict, isModelOf, type Left, type Match, type Unit, without } from "./units.ts";

/**
 * How far a request and its row may be apart: their beginnings, or their ends where the console tells no beginning. Of
 * several alike the near ones come first, so that one that is missing does not shift all that follow it.
 */
const NEAR_FIRST_MS = { beginnings: [25, 100, 500, 5000], ends: [1000, 5000, 15_000, 30_000] } as const;

/** How far apart their ends may be where their beginnings agree. */
const END_WITHIN_MS = 60 * 60_000;

const PAIRED = "the only row with this key, model and these tokens at that time";
const ALIKE =
  "several requests and rows are alike at that time: which is which cannot be told, their number agrees";

interface Rough {
  readonly units: Unit[];
  readonly records: OurRequest[];
}

/** What can be taken for each other: everything but the time is the same. Both lists are in the order of their times. */
interface Alike {
  readonly units: readonly Timed<Unit>[];
  readonly records: readonly Timed<OurRequest>[];
  readonly near: readonly number[];
}

interface Timed<T> {
  readonly item: T;
  readonly time: number;
}

/** The second tier, for what has no id in common: only where one row and one record have no other choice. */
export function matchPairs(left: Left, context: Context): { matches: Match[]; left: Left } {
  const alike = alikeOf(left, context);
  const pairs = uniquePairs(alike);
  const matches = [...pairs, ...countAlike(alike, pairs)];
  return { matches, left: without(left, matches) };
}

/** A record can stand in several: under two names of its model. */
function alikeOf({ records, units }: Left, context: Context): Alike[] {
  const rough = new Map<string, Rough>();
  for (const unit of units) {
    const tokens = unit.main.kind === "use" && unit.key !== null ? rowTokens(unit.main) : null;
    if (tokens === null) continue;
    const name = roughly(unit.key, theirWholeInput(tokens), tokens.output);
    const same = rough.get(name);
    if (same === undefined) rough.set(name, { units: [unit], records: [] });
    else same.units.push(unit);
  }
  for (const record of records) {
    if (record.tokens === null || record.key === null || !mayPair(record)) continue;
    rough.get(roughly(record.key, wholeInput(record.tokens), record.tokens.output))?.records.push(record);
  }
  return [...rough.values()].flatMap((same) => (same.records.length === 0 ? [] : exactly(same, context)));
}

/** Few say the same even roughly, so that the rest is looked at only for those. */
function roughly(key: string | null, input: number, output: number): string {
  return `${input} ${output} ${key}`;
}

function exactly({ units, records }: Rough, context: Context): Alike[] {
  const kinds = units.length === 1 ? [units] : [...grouped(units, sayingOf).values()];
  return kinds.flatMap((same): Alike[] => {
    const [example] = same;
    if (example === undefined) return [];
    const fitting = records.filter((record) => fits(record, example));
    return fitting.length === 0 ? [] : [inTime(same, fitting, context)];
  });
}

/** All of these rows tell when they began, or none does. */
function inTime(units: readonly Unit[], records: readonly OurRequest[], { start }: Context): Alike {
  const tellsBeginning = units[0]?.main.began != null;
  const timeOfRecord = ({ sent_at, ended_at }: OurRequest) => (tellsBeginning ? sent_at : (ended_at ?? 0));
  return {
    units: timed(units, ({ main }) => sentAt(main, start) ?? main.at),
    records: timed(records, timeOfRecord),
    near: tellsBeginning ? NEAR_FIRST_MS.beginnings : NEAR_FIRST_MS.ends,
  };
}

function timed<T>(items: readonly T[], timeOf: (item: T) => number): Timed<T>[] {
  return items.map((item) => ({ item, time: timeOf(item) })).sort((a, b) => a.time - b.time);
}

/** Whatever of a row decides whose it can be, but for its time. */
function sayingOf({ main }: Unit): string {
  const { model, stream, input_tokens, cache_read_tokens, cache_write_tokens, request_id, began } = main;
  return [
    model?.toLowerCase(),
    stream,
    input_tokens,
    cache_read_tokens,
    cache_write_tokens,
    request_id !== null,
    began !== null,
  ].join();
}

function fits(record: OurRequest, unit: Unit): boolean {
  const { main } = unit;
  const theirs = rowTokens(main);
  if (record.tokens === null || theirs === null || !agree(record.tokens, theirs)) return false;
  if (record.stream !== null && main.stream !== null && record.stream !== main.stream) return false;
  return isModelOf(record, main.model) && !contradict(record, unit);
}

export function mayPair({ ended_at, exact, tokens, billable, running, upgraded }: OurRequest): boolean {
  return billable && exact && tokens !== null && !running && !upgraded && ended_at !== null;
}

function uniquePairs(alike: readonly Alike[]): Match[] {
  const unitOfRecord = new Map<OurRequest, Unit | null>();
  const recordOfUnit = new Map<Unit, OurRequest | null>();
  for (const { units, records, near } of alike) {
    const within = near.at(-1) ?? 0;
    for (const { item: record, time } of records) {
      for (const unit of firstTwo(units, time, within, (unit) => mayEnd(record, unit))) {
        unitOfRecord.set(record, unitOfRecord.has(record) ? null : unit);
      }
    }
    for (const { item: unit, time } of units) {
      for (const record of firstTwo(records, time, within, (record) => mayEnd(record, unit))) {
        recordOfUnit.set(unit, recordOfUnit.has(unit) ? null : record);
      }
    }
  }
  const pairs: Match[] = [];
  for (const [record, unit] of unitOfRecord) {
    if (unit === null || recordOfUnit.get(unit) !== record) continue;
    pairs.push({ record, unit, how: "pair", reason: PAIRED });
  }
  return pairs;
}

/** Two are enough to know that there is not only one. */
function firstTwo<T>(
  sorted: readonly Timed<T>[],
  at: number,
  within: number,
  isPossible: (item: T) => boolean,
): T[] {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle]?.time ?? 0) < at - within) low = middle + 1;
    else high = middle;
  }
  const found: T[] = [];
  for (let index = low; index < sorted.length && found.length < 2; index += 1) {
    const next = sorted[index];
    if (next === undefined || next.time > at + within) break;
    if (isPossible(next.item)) found.push(next.item);
  }
  return found;
}

/** A row is written at the end of its request, or soon after it. */
function mayEnd({ ended_at }: OurRequest, { main }: Unit): boolean {
  return Math.abs(main.at - (ended_at ?? 0)) <= END_WITHIN_MS;
}

/** What is alike is not told apart, only counted: as many as there are of both. */
function countAlike(alike: readonly Alike[], pairs: readonly Match[]): Match[] {
  const taken = new Set<OurRequest | Unit>(pairs.flatMap(({ record, unit }) => [record, unit]));
  const sums: Match[] = [];
  for (const step of NEAR_FIRST_MS.ends.keys()) {
    for (const { units, records, near } of alike) {
      for (const [record, unit] of sideBySide(units, records, near[step] ?? 0, taken)) {
        taken.add(record).add(unit);
        sums.push({ record, unit, how: "sum", reason: ALIKE });
      }
    }
  }
  return sums;
}

function sideBySide(
  units: readonly Timed<Unit>[],
  records: readonly Timed<OurRequest>[],
  within: number,
  taken: ReadonlySet<OurRequest | Unit>,
): [OurRequest, Unit][] {
  const found: [OurRequest, Unit][] = [];
  const freeUnits = units.filter(({ item }) => !taken.has(item));
  const freeRecords = records.filter(({ item }) => !taken.has(item));
  let nextUnit = 0;
  let nextRecord = 0;
  for (;;) {
    const unit = freeUnits[nextUnit];
    const record = freeRecords[nextRecord];
    if (unit === undefined || record === undefined) return found;
    const ahead = unit.time - record.time;
    if (Math.abs(ahead) <= within && mayEnd(record.item, unit.item)) found.push([record.item, unit.item]);
    if (ahead <= within) nextUnit += 1;
    if (ahead >= -within) nextRecord += 1;
  }
}
