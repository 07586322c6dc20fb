import type { OurRequest } from "./context.ts";
import { mayPair } from "./pairs.ts";
import { rowTokens, theirWholeInput, wholeInput } from "./tokens.ts";
import { contradict, type Left, type Match, modelsOf, type Unit, without } from "./units.ts";

const HOUR = 3_600_000;
const SUMMED =
  "the rows of this key, model and hour are as many as the requests, with the same tokens in all";

interface Hour {
  readonly units: Unit[];
  readonly records: OurRequest[];
}

/** What cannot be told apart one by one can still agree in all: by key, model and hour. */
export function matchSums(left: Left): { matches: Match[]; left: Left } {
  const matches: Match[] = [];
  for (const { units, records } of hoursOf(left).values()) {
    if (idsContradict(units, records) || !sameSums(units, records)) continue;
    for (const [index, unit] of units.entries()) {
      const record = records[index];
      if (record !== undefined) matches.push({ record, unit, how: "sum", reason: SUMMED });
    }
  }
  return { matches, left: without(left, matches) };
}

function hoursOf({ records, units }: Left): Map<string, Hour> {
  const hours = new Map<string, Hour>();
  for (const unit of units) {
    const { key, main } = unit;
    if (key === null || main.model === null || main.kind !== "use") continue;
    // What tells when it began was compared by that.
    if (main.began !== null) continue;
    const name = `${key}|${main.model.toLowerCase()}|${Math.floor(main.at / HOUR)}`;
    const hour = hours.get(name);
    if (hour === undefined) hours.set(name, { units: [unit], records: [] });
    else hour.units.push(unit);
  }
  for (const record of records) {
    if (!record.expected || record.running || record.ended_at === null) continue;
    const at = Math.floor(record.ended_at / HOUR);
    const names = modelsOf(record).map((model) => `${record.key}|${model}|${at}`);
    const name = names.find((one) => hours.has(one));
    if (name !== undefined) hours.get(name)?.records.push(record);
  }
  return hours;
}

function idsContradict(units: readonly Unit[], records: readonly OurRequest[]): boolean {
  const other = units.find(({ main }) => main.request_id !== null);
  return other !== undefined && records.some((record) => contradict(record, other));
}

function sameSums(units: readonly Unit[], records: readonly OurRequest[]): boolean {
  // One whose tokens nobody knows leaves the sum unknown.
  if (units.length !== records.length || !records.every(mayPair)) return false;
  const theirs = units.map(({ main }) => rowTokens(main));
  const known = theirs.flatMap((tokens) => (tokens === null ? [] : [tokens]));
  if (known.length < theirs.length) return false;
  const ours = records.flatMap(({ tokens }) => (tokens === null ? [] : [tokens]));
  const same = (left: readonly number[], right: readonly number[]) => sum(left) === sum(right);
  const apart = known.flatMap(({ cache }) => (cache === null ? [] : [cache]));
  if (
    !same(
      ours.map(({ output }) => output),
      known.map(({ output }) => output),
    )
  )
    return false;
  if (!same(ours.map(wholeInput), known.map(theirWholeInput))) return false;
  // Where one of the rows has cache and input in one, the parts cannot be compared.
  if (apart.length < known.length) return true;
  return (
    same(
      ours.map(({ cache_read }) => cache_read),
      apart.map(({ read }) => read),
    ) &&
    same(
      ours.map(({ cache_write }) => cache_write),
      apart.map(({ write }) => write),
    )
  );
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
