import { statSync } from "node:fs";
import { openForSalvage } from "../connect.ts";
import { faultOf, LedgerFault } from "../fault.ts";

/** Throws where the file is damaged. Reads all of it, and changes nothing. */
export function checkIntegrity(file: string): void {
  try {
    const { db, close } = openForSalvage(file);
    try {
      const row = db.prepare("PRAGMA log.quick_check(1)").raw().get();
      const words = Array.isArray(row) ? String(row[0]) : "ok";
      if (words !== "ok") throw new LedgerFault("corrupt", `it is damaged (${words.split("\n", 1)[0]})`);
      // SQLite reads zeroes there and says nothing. With a WAL it may be a checkpoint that a crash cut short.
      const page = db.prepare("PRAGMA log.page_size").raw().get();
      const cut = Array.isArray(page) && sizeOf(file) % Number(page[0]) !== 0 && sizeOf(`${file}-wal`) === 0;
      if (cut) throw new LedgerFault("corrupt", "its end is cut off");
    } finally {
      close();
    }
  } catch (error) {
    // Why else it cannot be read is for whoever opens it next to say.
    if (faultOf(error).kind === "corrupt") throw error;
  }
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
