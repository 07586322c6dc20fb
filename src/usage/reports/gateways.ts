import type Database from "libsql";
import { quarterOf } from "../rollups.ts";
import { startOfDay } from "./calendar.ts";

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
