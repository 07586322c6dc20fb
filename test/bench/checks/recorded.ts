import { join } from "node:path";
import { journalFiles, readLines } from "../../../src/usage/journal/files.ts";
import { parseLine } from "../../../src/usage/journal/lines.ts";
import type { Candidate } from "../candidates/candidate.ts";
import type { Scene } from "../processes/scene.ts";

interface Recorded {
  readonly records: number;
  /** With tokens as the upstream reported them, and a price. */
  readonly metered: number;
}

/** No speed counts that was bought with a missing record. */
export function proveRecorded(scene: Scene, { ways }: Candidate, sent: number): void {
  const { port } = new URL(ways.plain.url);
  const { records, metered } = recorded(join(scene.folder, `kb-${port}`, "state", "usage"));
  const found = `keybearer recorded ${records} requests, ${metered} with tokens and price, of at least ${sent} sent`;
  if (records < sent || metered < sent) throw new Error(found);
  scene.say(found);
}

/** That everything was really on: what keybearer's own usage log holds of the requests that were sent. */
function recorded(folder: string): Recorded {
  let records = 0;
  let metered = 0;
  for (const file of journalFiles(folder)) {
    for (const { texts } of readLines(file, 0, true)) {
      for (const text of texts) {
        const line = parseLine(text);
        if (line?.kind !== "close") continue;
        records += 1;
        if (line.tokens_from === "reported" && (line.cost_microdollars ?? 0) > 0) metered += 1;
      }
    }
  }
  return { records, metered };
}
