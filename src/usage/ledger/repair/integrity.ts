import { openForSalvage } from "../connect.ts";
import { faultOf, LedgerFault } from "../fault.ts";
import { sizeOf } from "../on-disk.ts";
import { answerOf } from "../raw-row.ts";

/** Throws where the file is damaged. Reads all of it, and changes nothing. */
export function checkIntegrity(file: string): void {
  try {
    const { db, close } = openForSalvage(file);
    try {
      const words = String(answerOf(db, "PRAGMA log.quick_check(1)") ?? "ok");
      if (words !== "ok") throw new LedgerFault("corrupt", `it is damaged (${words.split("\n", 1)[0]})`);
      // SQLite reads zeroes there and says nothing. With a WAL it may be a checkpoint that a crash cut short.
      const rest = (sizeOf(file) ?? 0) % Number(answerOf(db, "PRAGMA log.page_size"));
      if (rest !== 0 && !sizeOf(`${file}-wal`)) throw new LedgerFault("corrupt", "its end is cut off");
    } finally {
      close();
    }
  } catch (error) {
    // Why else it cannot be read is for whoever opens it next to say.
    if (faultOf(error).kind === "corrupt") throw error;
  }
}
