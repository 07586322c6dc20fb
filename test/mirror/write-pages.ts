import { writePage } from "../../src/mirror/store/rows.ts";
import { openMirror, row } from "./mirror-file.ts";

/** Writes pages of fifty rows until it is killed, and prints a line for each. The cursor is the number of pages. */
const database = openMirror(process.argv[2] ?? "");
for (let number = 0; ; ) {
  const rows = Array.from({ length: 50 }, (_, at) => row(number * 50 + at));
  const page = { rows, cursor: String(number + 1), gap: null };
  // null: the test reads at the same time.
  if (database.ask((db) => writePage(db, "main", page)) === null) continue;
  process.stdout.write(`${number}\n`);
  number += 1;
  // Lets the output go out, and the kill come in.
  await new Promise((done) => setTimeout(done, 5));
}
