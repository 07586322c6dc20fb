import type Database from "libsql";
import { DAY_MS } from "../../core/units.ts";
import { quarterOf } from "../rollups.ts";
import { startOfDay } from "./calendar.ts";
import { median } from "./today.ts";

/** What the usage log has of a gateway, from before the start, too. Without refusals: these were not sent. */
export interface GatewayUse {
  /** Since midnight, local time. */
  readonly requests_today: number;
  /** null: it never got one. */
  readonly last_request_at: number | null;
}

/** Of this machine. Rollups and one seek, so the length of the log does not matter. */
export function readGatewayUse(db: Database.Database, gateway: string, now: number): GatewayUse {
  const [today] = db
    .prepare(
      `SELECT coalesce(sum(requests - refused), 0) FROM usage.rollups
       WHERE quarter >= ? AND gateway = ? AND machine = ''`,
    )
    .raw()
    .get(quarterOf(startOfDay(now)), gateway) as [number];
  const last = db
    .prepare(
      `SELECT started_at FROM usage.records
       WHERE gateway = ? AND "end" IS NOT NULL AND "end" <> 'refused' AND machine IS NULL
       ORDER BY started_at DESC LIMIT 1`,
    )
    .raw()
    .get(gateway) as [number] | undefined;
  return { requests_today: today, last_request_at: last?.[0] ?? null };
}

/** How long a gateway's first byte took lately, from when the request was sent. */
export interface GatewayFirstByte {
  readonly gateway: string;
  readonly median_ms: number;
  /** Of so many requests. */
  readonly requests: number;
}

/** The median is of this many requests, among the last ones of a day. */
const RECENT_REQUESTS = 50;
/** Refusals and failures have no first byte, and there may be many in a row. */
const SEARCHED_REQUESTS = 1000;

/** Of this machine. Gateways without a first byte in the last day are left out. */
export function readFirstBytes(db: Database.Database, now: number): GatewayFirstByte[] {
  const since = now - DAY_MS;
  const gateways = db
    .prepare(
      "SELECT DISTINCT gateway FROM usage.rollups WHERE quarter >= ? AND gateway <> '' ORDER BY gateway",
    )
    .raw()
    .all(quarterOf(since)) as [string][];
  const read = db
    .prepare(
      `SELECT first_byte_at - sent_at FROM (
         SELECT first_byte_at, sent_at, machine FROM usage.records
         WHERE gateway = ? AND started_at >= ? AND "end" IS NOT NULL ORDER BY started_at DESC LIMIT ${SEARCHED_REQUESTS}
       ) WHERE first_byte_at IS NOT NULL AND sent_at IS NOT NULL AND machine IS NULL LIMIT ${RECENT_REQUESTS}`,
    )
    .raw();
  const found: GatewayFirstByte[] = [];
  for (const [gateway] of gateways) {
    const times = (read.all(gateway, since) as [number][]).map(([ms]) => ms);
    if (times.length > 0) found.push({ gateway, median_ms: median(times), requests: times.length });
  }
  return found;
}
