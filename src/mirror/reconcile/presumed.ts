import type { Context, OurRequest, TheirRow } from "./context.ts";
import { grouped } from "./grouped.ts";
import { beganWith, sentAt } from "./start.ts";
import { agree, rowTokens } from "./tokens.ts";
import { contradict, type Left, type Match, modelsOf, type Unit, without } from "./units.ts";

/** Clocks are compared to about a second. */
const EARLY_MS = 2000;
/** Where a console does not tell when a request began, its row must end this soon after the request. */
const LATE_MS = 30_000;
/** Two starts that are closer than this cannot be told apart. */
const CLOSE_MS = 50;
/** Fewer requests than this say nothing about what a console lists. */
const ENOUGH = 5;

const ALIKE =
  "several requests without an id and their rows began together: which is which cannot be told, their number agrees";

/**
 * The fourth tier: a record without an id (left before the response began, a crash, a timeout) takes the row of its key and
 * model that began when it did. Where several are too close together, only their number is compared; and where that
 * differs, none is taken: one of the rows may not be ours.
 */
export function matchPresumed(left: Left, context: Context): { matches: Match[]; left: Left } {
  let matches: Match[] = [];
  let rest = left;
  // A use before an error, which tells no tokens. Records that know their model before those that may take any.
  for (const kind of ["use", "error"] as const) {
    for (const named of [true, false]) {
      const found = takeRows(rest, kind, named, context);
      matches = matches.concat(found);
      rest = without(rest, found);
    }
  }
  return { matches, left: rest };
}

/** A record that may take a row of this kind. */
export function mayTake(
  record: OurRequest,
  kind: TheirRow["kind"],
  context: Pick<Context, "bills_failures">,
): boolean {
  const { billable, running, upgraded, key, own_id, failed } = record;
  if (!billable || running || upgraded || key === null || own_id) return false;
  return kind !== "use" || !failed || context.bills_failures;
}

/**
 * Whether a console lists requests that their caller left before the answer began depends on the gateway, its version and
 * the endpoint: sub2api 0.1.27 lists none of them, 0.1.135 lists streams. Where most of them have no row that began with them, a row that did
 * proves nothing. Returns the names of those keys and models, streams apart.
 */
export function findUnlisted(
  records: readonly OurRequest[],
  units: readonly Unit[],
  context: Pick<Context, "start" | "bills_failures">,
): Set<string> {
  const leftEarly = records.filter((record) => record.status === null && mayTake(record, "use", context));
  const uses = grouped(
    units.filter(({ main }) => main.kind === "use"),
    ({ key }) => key,
  );
  const unlisted = new Set<string>();
  for (const [name, group] of grouped(leftEarly, groupOf)) {
    const candidates = candidatesOf(group, uses.get(group[0]?.key ?? null) ?? [], context);
    const listed = new Set(candidates.map(({ record }) => record)).size;
    if (group.length >= ENOUGH && listed < group.length / 2) unlisted.add(name);
  }
  return unlisted;
}

/** After a crash it is not known whether a stream was asked for: then both must be listed. */
function isUnlisted(record: OurRequest, { unlisted }: Context): boolean {
  if (record.status !== null) return false;
  const streams = record.stream === null ? [null, true, false] : [record.stream];
  return streams.some((stream) => unlisted.has(groupOf({ ...record, stream })));
}

function groupOf({ key, model, stream }: OurRequest): string {
  return `${key}|${model?.toLowerCase()}|${stream}`;
}

/** Whether nothing but the time speaks against it. */
export function isAlike(record: OurRequest, unit: Unit): boolean {
  const { main, key } = unit;
  if (key !== record.key || contradict(record, unit)) return false;
  if (record.stream !== null && main.stream !== null && record.stream !== main.stream) return false;
  const models = modelsOf(record);
  if (models.length > 0 && main.model !== null && !models.includes(main.model.toLowerCase())) return false;
  if (main.kind !== "use" || record.tokens === null || !record.exact) return true;
  const theirs = rowTokens(main);
  return theirs === null || agree(record.tokens, theirs);
}

interface Candidate {
  readonly record: OurRequest;
  readonly unit: Unit;
  readonly distance: number;
}

function takeRows(
  { records, units }: Left,
  kind: "use" | "error",
  named: boolean,
  context: Context,
): Match[] {
  const seekers = records.filter(
    (record) =>
      mayTake(record, kind, context) && modelsOf(record).length > 0 === named && !isUnlisted(record, context),
  );
  if (seekers.length === 0) return [];
  const byKey = grouped(
    units.filter(({ key, main }) => key !== null && main.kind === kind),
    ({ key }) => key,
  );
  const seekersByKey = grouped(seekers, ({ key }) => key);
  const candidates = [...seekersByKey].flatMap(([key, list]) =>
    candidatesOf(list, byKey.get(key) ?? [], context),
  );
  return clustersOf(candidates).flatMap((cluster) => assign(cluster, context));
}

/** Both lists belong to one key. */
function candidatesOf(
  records: readonly OurRequest[],
  units: readonly Unit[],
  context: Pick<Context, "start">,
): Candidate[] {
  const timeOf = ({ main }: Unit) => sentAt(main, context.start) ?? main.at;
  const sorted = units.toSorted((a, b) => timeOf(a) - timeOf(b));
  const times = sorted.map(timeOf);
  const found: Candidate[] = [];
  for (const record of records) {
    const first = record.sent_at - Math.max(EARLY_MS, context.start.within);
    const last = (record.ended_at ?? record.sent_at) + LATE_MS;
    for (let index = firstAtOrAfter(times, first); index < sorted.length; index += 1) {
      const unit = sorted[index];
      if (unit === undefined || (times[index] ?? 0) > last) break;
      if (!isAlike(record, unit)) continue;
      if (unit.main.began !== null && !beganWith(record, unit.main, context.start)) continue;
      const place = unit.main.began === null ? (record.ended_at ?? record.sent_at) : record.sent_at;
      found.push({ record, unit, distance: Math.abs((times[index] ?? 0) - place) });
    }
  }
  return found;
}

/** Records and rows that can be taken for each other, directly or through others. */
function clustersOf(candidates: readonly Candidate[]): Candidate[][] {
  const clusterOf = new Map<OurRequest | Unit, Candidate[]>();
  for (const candidate of candidates) {
    const ofRecord = clusterOf.get(candidate.record);
    const ofUnit = clusterOf.get(candidate.unit);
    const larger = (ofRecord?.length ?? 0) >= (ofUnit?.length ?? 0) ? ofRecord : ofUnit;
    const smaller = larger === ofRecord ? ofUnit : ofRecord;
    const cluster = larger ?? [];
    cluster.push(candidate);
    if (smaller !== undefined && smaller !== cluster) {
      for (const one of smaller) {
        cluster.push(one);
        clusterOf.set(one.record, cluster).set(one.unit, cluster);
      }
    }
    clusterOf.set(candidate.record, cluster).set(candidate.unit, cluster);
  }
  return [...new Set(clusterOf.values())];
}

function assign(all: readonly Candidate[], context: Context): Match[] {
  const close = Math.max(CLOSE_MS, context.start.within / 2);
  const nearest = nearestOf(all);
  const clear = all.filter((candidate) => isClear(candidate, nearest, close));
  const done = new Set<OurRequest | Unit>(clear.flatMap(({ record, unit }) => [record, unit]));
  const matches = clear.map(
    ({ record, unit }): Match => ({ record, unit, how: "presumed", reason: reasonOf(record, unit, context) }),
  );
  const rest = all.filter(({ record, unit }) => !done.has(record) && !done.has(unit));
  return [...matches, ...clustersOf(rest).flatMap(count)];
}

/** As many rows as records: then all of them are ours, and only which is which cannot be told. */
function count(cluster: readonly Candidate[]): Match[] {
  const records = new Set(cluster.map(({ record }) => record));
  const units = new Set(cluster.map(({ unit }) => unit));
  if (units.size !== records.size) return [];
  const taken = new Set<OurRequest | Unit>();
  const matches: Match[] = [];
  for (const candidate of cluster.toSorted(nearestFirst)) {
    const { record, unit } = candidate;
    if (taken.has(record) || taken.has(unit)) continue;
    taken.add(record).add(unit);
    matches.push({ record, unit, how: "sum", reason: ALIKE });
  }
  return matches;
}

/** By record and by row: the distances of the two nearest on the other side. */
function nearestOf(all: readonly Candidate[]): Map<OurRequest | Unit, readonly [number, number]> {
  const nearest = new Map<OurRequest | Unit, readonly [number, number]>();
  for (const { record, unit, distance } of all) {
    for (const side of [record, unit]) {
      const [first, second] = nearest.get(side) ?? [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
      if (distance < first) nearest.set(side, [distance, first]);
      else if (distance < second) nearest.set(side, [first, distance]);
    }
  }
  return nearest;
}

/** No other record or row is nearly as close. */
function isClear(
  { record, unit, distance }: Candidate,
  nearest: ReadonlyMap<OurRequest | Unit, readonly [number, number]>,
  close: number,
): boolean {
  return [record, unit].every((side) => {
    const [first, second] = nearest.get(side) ?? [0, 0];
    return distance === first && second > 2 * distance + close;
  });
}

function nearestFirst(a: Candidate, b: Candidate): number {
  if (a.distance !== b.distance) return a.distance - b.distance;
  if (a.record.id !== b.record.id) return a.record.id < b.record.id ? -1 : 1;
  return a.unit.main.identity < b.unit.main.identity ? -1 : 1;
}

export function firstAtOrAfter(times: readonly number[], time: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function reasonOf({ ended_at, status }: OurRequest, { main }: Unit, { hands_out_ids }: Context): string {
  const fits =
    main.began === null
      ? "this row of its key and model ended when it did"
      : "this row of its key and model began when it did";
  if (ended_at === null) return `keybearer never saw an id: it was stopped while this ran; ${fits}`;
  if (status === null) return `keybearer never saw an id: it was left before the answer began; ${fits}`;
  if (hands_out_ids) return `the answer had no id that the console knows; ${fits}`;
  return `this gateway hands out no ids; ${fits}`;
}
