import { grouped } from "./grouped.ts";
import type { OurRequest, Scene } from "./scene.ts";
import { agree, rowTokens, theirWholeInput, wholeInput } from "./tokens.ts";
import { contradict, isModelOf, type Left, type Match, type Unit, without } from "./units.ts";

/** How far the end of a request and its row may be apart. */
export const PAIR_WITHIN_MS = 30_000;
/** Of several alike the near ones first, so that one that is missing does not shift all that follow it. */
const NEAR_FIRST_MS = [1000, 5000, PAIR_WITHIN_MS] as const;

const PAIRED = "the only row with this key, model and these tokens within 30 s";
const ALIKE =
  "several requests and rows are alike within 30 s: which is which cannot be told, their number agrees";

/** What can be taken for each other: everything but the time is the same. */
interface Alike {
  readonly units: Unit[];
  readonly records: OurRequest[];
}

/** The second tier, for what has no id in common: only where one row and one record have no other choice. */
export function matchPairs(left: Left, scene: Scene): { matches: Match[]; left: Left } {
  const alike = alikeOf(left, scene);
  const pairs = uniquePairs(alike);
  const matches = [...pairs, ...countAlike(alike, pairs)];
  return { matches, left: without(left, matches) };
}

/** Both lists in the order of time. A record can stand in several: under two names of its model. */
function alikeOf({ records, units }: Left, { ids_are_own }: Scene): Alike[] {
  const rough = new Map<string, Alike>();
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
  return [...rough.values()].flatMap((same) => (same.records.length === 0 ? [] : exactly(same, ids_are_own)));
}

/** Few say the same even roughly, so that the rest is looked at only for those. */
function roughly(key: string | null, input: number, output: number): string {
  return `${input} ${output} ${key}`;
}

function exactly({ units, records }: Alike, idsAreOwn: boolean): Alike[] {
  const kinds = units.length === 1 ? [units] : [...grouped(units, sayingOf).values()];
  return kinds.flatMap((same): Alike[] => {
    const [example] = same;
    if (example === undefined) return [];
    const fitting = records.filter((record) => fits(record, example, idsAreOwn));
    return fitting.length === 0 ? [] : [{ units: same, records: fitting }];
  });
}

/** Whatever of a row decides whose it can be, but for its time. */
function sayingOf({ main }: Unit): string {
  const { model, stream, input_tokens, cache_read_tokens, cache_write_tokens, request_id } = main;
  return [
    model?.toLowerCase(),
    stream,
    input_tokens,
    cache_read_tokens,
    cache_write_tokens,
    request_id !== null,
  ].join();
}

function fits(record: OurRequest, unit: Unit, idsAreOwn: boolean): boolean {
  const { main } = unit;
  const theirs = rowTokens(main);
  if (record.tokens === null || theirs === null || !agree(record.tokens, theirs)) return false;
  if (record.stream !== null && main.stream !== null && record.stream !== main.stream) return false;
  return isModelOf(record, main.model) && !contradict(record, unit, idsAreOwn);
}

export function mayPair({ ended_at, exact, tokens, billable, running, upgraded }: OurRequest): boolean {
  return billable && exact && tokens !== null && !running && !upgraded && ended_at !== null;
}

function uniquePairs(alike: readonly Alike[]): Match[] {
  const unitOfRecord = new Map<OurRequest, Unit | null>();
  const recordOfUnit = new Map<Unit, OurRequest | null>();
  for (const { units, records } of alike) {
    for (const record of records) {
      const end = record.ended_at ?? 0;
      for (const unit of firstTwo(units, end, ({ main }) => main.at)) {
        unitOfRecord.set(record, unitOfRecord.has(record) ? null : unit);
      }
    }
    for (const unit of units) {
      for (const record of firstTwo(records, unit.main.at, ({ ended_at }) => ended_at ?? 0)) {
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
function firstTwo<T>(sorted: readonly T[], at: number, timeOf: (item: T) => number): T[] {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const item = sorted[middle];
    if (item !== undefined && timeOf(item) < at - PAIR_WITHIN_MS) low = middle + 1;
    else high = middle;
  }
  return sorted.slice(low, low + 2).filter((item) => timeOf(item) <= at + PAIR_WITHIN_MS);
}

/** What is alike is not told apart, only counted: as many as there are of both. */
function countAlike(alike: readonly Alike[], pairs: readonly Match[]): Match[] {
  const taken = new Set<OurRequest | Unit>(pairs.flatMap(({ record, unit }) => [record, unit]));
  const sums: Match[] = [];
  for (const within of NEAR_FIRST_MS) {
    for (const { units, records } of alike) {
      for (const [record, unit] of sideBySide(units, records, within, taken)) {
        taken.add(record).add(unit);
        sums.push({ record, unit, how: "sum", reason: ALIKE });
      }
    }
  }
  return sums;
}

function sideBySide(
  units: readonly Unit[],
  records: readonly OurRequest[],
  within: number,
  taken: ReadonlySet<OurRequest | Unit>,
): [OurRequest, Unit][] {
  const found: [OurRequest, Unit][] = [];
  const freeUnits = units.filter((unit) => !taken.has(unit));
  const freeRecords = records.filter((record) => !taken.has(record));
  let [next, other] = [0, 0];
  for (;;) {
    const [unit, record] = [freeUnits[next], freeRecords[other]];
    if (unit === undefined || record === undefined) return found;
    const ahead = unit.main.at - (record.ended_at ?? 0);
    if (Math.abs(ahead) <= within) found.push([record, unit]);
    if (ahead <= within) next += 1;
    if (ahead >= -within) other += 1;
  }
}
