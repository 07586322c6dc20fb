import type { OurRequest } from "./context.ts";
import { earlierRecord, type Left, type Match, type Unit, unitOf } from "./units.ts";

/** The first tier: the id that the gateway handed out stands in both logs. However far apart in time they are. */
export function matchIds({ records, units }: Left): { matches: Match[]; left: Left } {
  const owners = ownersOf(records);
  const found = new Map<OurRequest, { unit: Unit; own: boolean }[]>();
  const others: Unit[] = [];
  for (const unit of units) {
    const own = unit.main.request_id === null ? undefined : owners.get(unit.main.request_id);
    const record = own ?? ownerBehind(unit, owners);
    if (record === undefined) {
      others.push(unit);
      continue;
    }
    const rows = found.get(record);
    if (rows === undefined) found.set(record, [{ unit, own: own !== undefined }]);
    else rows.push({ unit, own: own !== undefined });
  }
  const matches = [...found].map(([record, parts]): Match => {
    const unit = parts[0] !== undefined && parts.length === 1 ? parts[0].unit : joined(parts);
    const own = parts.some((part) => part.own);
    return {
      record,
      unit,
      how: "id",
      reason: own ? "the same request id" : "the same id, of the gateway behind",
    };
  });
  return { matches, left: { records: records.filter((record) => !found.has(record)), units: others } };
}

/** No two requests get one id; where they seem to, the one that ended first has it. */
function ownersOf(records: readonly OurRequest[]): Map<string, OurRequest> {
  const owners = new Map<string, OurRequest>();
  for (const record of records) {
    for (const id of record.ids) {
      const other = owners.get(id);
      if (other === undefined || endsBefore(record, other)) owners.set(id, record);
    }
  }
  return owners;
}

function endsBefore(a: OurRequest, b: OurRequest): boolean {
  if ((a.ended_at === null) !== (b.ended_at === null)) return a.ended_at !== null;
  return earlierRecord(a, b) < 0;
}

function ownerBehind({ rows }: Unit, owners: ReadonlyMap<string, OurRequest>): OurRequest | undefined {
  for (const { upstream_id } of rows) {
    const owner = upstream_id === null ? undefined : owners.get(upstream_id);
    if (owner !== undefined) return owner;
  }
  return undefined;
}

/** A record can have two ids, and so two units. What has its own id tells its tokens, not what stands behind. */
function joined(parts: readonly { readonly unit: Unit; readonly own: boolean }[]): Unit {
  const own = parts.filter((part) => part.own);
  const first = unitOf((own.length > 0 ? own : parts).flatMap(({ unit }) => unit.rows));
  const rest = own.length === 0 ? [] : parts.filter((part) => !part.own).flatMap(({ unit }) => unit.rows);
  return { ...first, rows: [...first.rows, ...rest] };
}
