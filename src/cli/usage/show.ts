import { EXIT } from "../../core/errors.ts";
import type { Connection } from "../../usage/index/database.ts";
import { jsonText } from "../../usage/reports/format.ts";
import { exportedRecord, findRecords } from "../../usage/reports/records.ts";
import { exitOnClosedOutput, fail } from "../ui/messages.ts";
import { withLog } from "./log-file.ts";
import { recordInWords } from "./record-words.ts";
import { tailLine } from "./tail-line.ts";

const MOST_SHOWN = 10;
const SHORTEST = 4;

export async function show(text: string, options: { json?: boolean }): Promise<void> {
  const wanted = text.trim();
  if (wanted.length < SHORTEST)
    return fail(`"${wanted}" is too short: at least ${SHORTEST} characters of the id, or last`, EXIT.usage);
  exitOnClosedOutput();
  await withLog(
    (db) => {
      const [record, ...others] = findRecords(db, wanted, MOST_SHOWN + 1);
      if (record === undefined) return fail(absent(wanted, db), EXIT.failed);
      if (others.length > 0) {
        const found = [record, ...others];
        const lines = found.slice(0, MOST_SHOWN).map((one) => `${one.id}  ${tailLine(one)}`);
        const more = found.length > MOST_SHOWN ? "\n…" : "";
        return fail(
          `${wanted} fits several records; write more of the id:\n${lines.join("\n")}${more}`,
          EXIT.failed,
        );
      }
      process.stdout.write(options.json ? `${jsonText(exportedRecord(record), 2)}\n` : recordInWords(record));
    },
    (words) => fail(words, EXIT.failed),
  );
}

function absent(wanted: string, db: Connection["db"]): string {
  return findRecords(db, "last", 1).length === 0
    ? "nothing was recorded yet, so there is no record to show → keybearer run, and send a request"
    : `there is no record ${wanted} → keybearer usage tail shows the last ones`;
}
