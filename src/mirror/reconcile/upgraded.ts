import type { Context, OurRequest } from "./context.ts";
import { grouped } from "./grouped.ts";
import { firstAtOrAfter } from "./presumed.ts";
import { earlierRow, type Left, type Match, type Unit } from "./units.ts";

const REASON = "it was billed to the key of a WebSocket in its time, which can hold any number of requests";

/** Clocks are compared to about a second, and consoles write late. */
const EARLY_MS = 5000;
const LATE_MS = 10 * 60_000;

/** By their starts, and how long the longest of those so far lasts. */
interface Sockets {
  readonly records: readonly OurRequest[];
  readonly starts: readonly number[];
  readonly lasting: readonly number[];
}

/** A WebSocket has one record and any number of rows, with ids that nobody was told: all of its key in its time. */
export function matchUpgraded(
  { records, units }: Left,
  { hands_out_ids, socket_rows_have_ids }: Context,
): { matches: Match[]; left: Left } {
  const sockets = socketsOf(records);
  if (sockets.size === 0) return { matches: [], left: { records, units } };
  const owned = new Map<OurRequest, Unit[]>();
  const others: Unit[] = [];
  for (const unit of units) {
    // What has an id was answered with it, and so did not come through a socket.
    const isAnswered = hands_out_ids && !socket_rows_have_ids && unit.main.request_id !== null;
    const owner = ownerOf(unit, unit.key === null || isAnswered ? undefined : sockets.get(unit.key));
    const rows = owner && owned.get(owner);
    if (owner === undefined) others.push(unit);
    else if (rows === undefined) owned.set(owner, [unit]);
    else rows.push(unit);
  }
  const matches = [...owned].map(([record, parts]): Match => {
    const [first] = parts;
    if (first === undefined) throw new Error("a match without rows");
    const rows = parts.flatMap((unit) => unit.rows).sort(earlierRow);
    const rest = rows.filter((row) => row !== first.main);
    return { record, unit: { ...first, rows: [first.main, ...rest] }, how: "presumed", reason: REASON };
  });
  return { matches, left: { records: records.filter((record) => !owned.has(record)), units: others } };
}

function socketsOf(records: readonly OurRequest[]): Map<string, Sockets> {
  const ended = records.filter(({ upgraded, running, key }) => upgraded && !running && key !== null);
  const byKey = grouped(ended, ({ key }) => key ?? "");
  return new Map(
    [...byKey].map(([key, list]) => {
      const sorted = list.sort((a, b) => a.started_at - b.started_at || (a.id < b.id ? -1 : 1));
      let longest = 0;
      const lasting = sorted.map((record) => {
        longest = Math.max(longest, lastOf(record));
        return longest;
      });
      return [key, { records: sorted, starts: sorted.map(({ started_at }) => started_at), lasting }];
    }),
  );
}

/** The one that was opened last before it. */
function ownerOf({ main }: Unit, sockets: Sockets | undefined): OurRequest | undefined {
  if (sockets === undefined) return undefined;
  const { records, starts, lasting } = sockets;
  let index = firstAtOrAfter(starts, main.at + EARLY_MS + 1) - 1;
  for (; index >= 0 && (lasting[index] ?? 0) >= main.at; index -= 1) {
    const record = records[index];
    if (record !== undefined && lastOf(record) >= main.at) return record;
  }
  return undefined;
}

function lastOf({ ended_at, started_at }: OurRequest): number {
  return (ended_at ?? started_at) + LATE_MS;
}
