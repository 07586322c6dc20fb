import { findPlaces } from "../../places.ts";
import { EXIT } from "../../start-failure.ts";
import { screenOf } from "../columns.ts";
import { NO_CONSOLE, readMirror } from "./consoles.ts";
import { mirrorInWords } from "./report-words.ts";

export async function report(options: { json?: boolean }): Promise<void> {
  const reports = await readMirror(findPlaces().socket);
  if (reports === null) return;
  if (options.json) process.stdout.write(`${JSON.stringify(reports, null, 2)}\n`);
  else if (reports.length === 0) process.stdout.write(`${NO_CONSOLE}\n`);
  else {
    const screen = screenOf(process.env, process.stdout.columns);
    process.stdout.write(mirrorInWords(reports, Date.now(), screen));
  }
  // For scripts: it stays so until a person has acknowledged it.
  if (reports.some(({ alarms }) => alarms.length > 0)) process.exitCode = EXIT.failed;
}
