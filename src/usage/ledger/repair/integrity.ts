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
    } finally {
      close();
    }
  } catch (error) {
    // Why else it cannot be read is for whoever opens it next to say.
    if (faultOf(error).kind === "corrupt") throw error;
  }
}
