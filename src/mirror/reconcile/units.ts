import type { OurRequest, TheirRow } from "./context.ts";
import { grouped } from "./grouped.ts";

/** The rows of one request at the gateway: several attempts and a refund can carry the same request id. */
export interface Unit {
  /** The row that tells its tokens. */
  readonly main: TheirRow;
  /** All of them, the main one first. */
  readonly rows: readonly TheirRow[];
  readonly key: string | null;
}

/** What no tier has found a counterpart for yet, in the order of time. */
export interface Left {
  readonly records: readonly OurRequest[];
  readonly units: readonly Unit[];
}

/** What a tier found. */
export interface Match {
  readonly record: OurRequest;
  readonly unit: Unit;
  readonly how: "id" | "pair" | "presumed" | "sum";
  readonly reason: string;
}

export function unitsOf(rows: readonly TheirRow[]): Unit[] {
  const single = rows.filter(({ request_id }) => request_id === null).map((row) => [row]);
  const byId = grouped(
    rows.filter(({ request_id }) => request_id !== null),
    ({ request_id }) => request_id,
  );
  const units = [...single, ...byId.values()].map(unitOf);
  return units.sort((a, b) => earlierRow(a.main, b.main));
}

/** Of rows that belong together, be it by more than one id. */
export function unitOf(rows: readonly TheirRow[]): Unit {
  const sorted = rows.length === 1 ? rows : [...rows].sort(mainFirst);
  const [main] = sorted;
  if (main === undefined) throw new Error("a request without rows");
  return { main, rows: sorted, key: main.key ?? sorted.find(({ key }) => key !== null)?.key ?? null };
}

/** A use, then errors, then refunds; of uses the one with most money, of the others the first. */
function mainFirst(a: TheirRow, b: TheirRow): number {
  return (
    rankOf(a) - rankOf(b) ||
    (a.kind === "use" ? (b.billed_microdollars ?? 0) - (a.billed_microdollars ?? 0) : a.at - b.at) ||
    (a.identity < b.identity ? -1 : 1)
  );
}

function rankOf({ kind }: TheirRow): number {
  if (kind === "use") return 0;
  return kind === "error" ? 1 : 2;
}

export function without({ records, units }: Left, found: readonly Match[]): Left {
  if (found.length === 0) return { records, units };
  const recordsTaken = new Set(found.map(({ record }) => record));
  const unitsTaken = new Set(found.map(({ unit }) => unit));
  return {
    records: records.filter((record) => !recordsTaken.has(record)),
    units: units.filter((unit) => !unitsTaken.has(unit)),
  };
}

export function earlierRow(a: TheirRow, b: TheirRow): number {
  return a.at - b.at || (a.identity < b.identity ? -1 : a.identity > b.identity ? 1 : 0);
}

/** By their ends; what has none, a crash or a request that runs, stands where it started. */
export function earlierRecord(a: OurRequest, b: OurRequest): number {
  return placeOf(a) - placeOf(b) || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
}

/** Where a record stands in time: consoles write at the end of a request. */
export function placeOf({ ended_at, started_at }: OurRequest): number {
  return ended_at ?? started_at;
}

/** Both have an id of this gateway, and not the same one: whatever else agrees, it is not the same request. */
export function contradict({ own_id, upgraded }: OurRequest, { main }: Unit): boolean {
  return own_id && !upgraded && main.request_id !== null;
}

/** The names under which a console may list its model. None: nobody knows which it was. */
export function modelsOf({ model, model_answered }: OurRequest): string[] {
  const names = [model, model_answered].flatMap((name) => (name === null ? [] : [name.toLowerCase()]));
  return names[0] === names[1] ? names.slice(0, 1) : names;
}

export function isModelOf({ model, model_answered }: OurRequest, name: string | null): boolean {
  if (name === null) return false;
  if (name === model || name === model_answered) return true;
  const lower = name.toLowerCase();
  return lower === model?.toLowerCase() || lower === model_answered?.toLowerCase();
}
