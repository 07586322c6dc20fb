import { askDaemon } from "../../control/client.ts";
import type { ComparedRow } from "../../mirror/report/shape.ts";
import { findPlaces } from "../../places.ts";
import { EXIT } from "../../start-failure.ts";
import { fail } from "../fail.ts";
import { comparedInWords, nameOf } from "./compared-words.ts";

const MOST_SHOWN = 10;

export async function show(text: string, options: { json?: boolean }): Promise<void> {
  const what = text.trim();
  if (what === "") return fail("say which row: keybearer mirror diff names them", EXIT.usage);
  const asked = await askDaemon<ComparedRow[]>(findPlaces().socket, "POST", "/compared", { what });
  if (!asked.ok) return fail(asked.reason, EXIT.failed);
  const [only, ...others] = asked.value;
  if (only === undefined)
    return fail(
      `there is no row or record ${what} → keybearer mirror diff, or keybearer usage tail`,
      EXIT.failed,
    );
  if (options.json) return void process.stdout.write(`${JSON.stringify(asked.value, null, 2)}\n`);
  if (others.length === 0) return void process.stdout.write(comparedInWords(only));
  const lines = asked.value
    .slice(0, MOST_SHOWN)
    .map((row) => `${nameOf(row)}  ${row.verdict}, ${row.reason}`);
  const more = asked.value.length > MOST_SHOWN ? "\n…" : "";
  fail(`${what} fits several; write one of these:\n${lines.join("\n")}${more}`, EXIT.failed);
}
