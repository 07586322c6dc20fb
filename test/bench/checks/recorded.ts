import { join } from "node:path";
import { openForReading } from "../../../src/usage/ledger/connect.ts";
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
  const { records, metered } = recorded(join(scene.folder, `kb-${port}`, "state", "usage.db"));
  const found = `keybearer recorded ${records} requests, ${metered} with tokens and price, of at least ${sent} sent`;
  if (records < sent || metered < sent) throw new Error(found);
  scene.say(found);
}

/** That everything was really on: what keybearer's own usage log holds of the requests that were sent. */
function recorded(file: string): Recorded {
  const opened = openForReading(file);
  if (!opened.ok) throw new Error(opened.words);
  const { db, close } = opened.connection;
  const count = (where: string) =>
    Number((db.prepare(`SELECT count(*) FROM records WHERE ${where}`).raw().get() as number[])[0]);
  const found = {
    records: count("1"),
    metered: count("tokens_from = 'reported' AND cost_microdollars > 0"),
  };
  close();
  return found;
}
