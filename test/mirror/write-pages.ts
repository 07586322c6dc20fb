import { writePage } from "../../src/mirror/store/rows.ts";
import { openForWriting } from "../../src/usage/ledger/connect.ts";
import { row } from "./mirror-file.ts";

/** Writes pages of fifty rows for ever, until it is killed, and says each. The mark is how many there are. */
const { db } = openForWriting(process.argv[2] ?? "", { sync: "normal" });
for (let number = 0; ; number += 1) {
  const rows = Array.from({ length: 50 }, (_, at) => row(number * 50 + at));
  try {
    writePage(db, "main", { rows, mark: String(number + 1), gap: null });
  } catch {
    // The test reads at the same time.
    number -= 1;
    continue;
  }
  process.stdout.write(`${number}\n`);
  // What was said goes out, and the kill may come in.
  await new Promise((done) => setTimeout(done, 5));
}
