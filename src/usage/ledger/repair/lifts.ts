import type Database from "libsql";
import { faultOf } from "../fault.ts";
import { columnsOf } from "../raw-row.ts";

/** One extra allowance as it stands in a log that is no longer in use; nobody has looked whether it makes sense. */
export type LiftRow = readonly unknown[];

const COLUMNS = "tool, kind, amount, given_at, until, given_by";

/** Throws where they cannot be read, also where a log is too old to have any. */
export function liftsIn(db: Database.Database): LiftRow[] {
  return db.prepare(`SELECT ${COLUMNS} FROM log.lifts ORDER BY seq`).raw().all().map(columnsOf);
}

export function writeLifts(db: Database.Database, lifts: readonly LiftRow[]): void {
  const write = db.prepare(`INSERT INTO log.lifts (${COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)`);
  for (const lift of lifts) {
    try {
      write.run(...lift);
    } catch (error) {
      // What damage has made of it is no allowance, and must not keep the records from being saved.
      if (faultOf(error).kind !== "row") throw error;
    }
  }
}
