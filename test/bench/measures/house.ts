import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { JournalTimes } from "../house/journal-appends.ts";
import type { MatchTimes } from "../house/mirror-match.ts";
import type { SyncTimes } from "../house/mirror-sync.ts";
import type { LookupTimes } from "../house/peer-lookup.ts";
import type { ReportTimes } from "../house/usage-reports.ts";
import { runScript } from "../load/scripts.ts";
import type { Plan } from "../plan.ts";
import type { Scene } from "../processes/scene.ts";

/** What keybearer does besides passing requests on, for which there is nobody to be compared with. */
export interface House {
  readonly reports: ReportTimes | null;
  readonly journal: JournalTimes | null;
  readonly sync: SyncTimes | null;
  readonly match: readonly MatchTimes[];
  readonly lookups: readonly LookupTimes[];
}

export async function measureHouse(scene: Scene, { records, consoleRows }: Plan): Promise<House> {
  const size = String(consoleRows);
  const told = async <T>(words: string, wanted: number, run: () => Promise<T>): Promise<T | null> => {
    if (wanted === 0) return null;
    scene.say(words);
    return await run();
  };
  return {
    reports: await told(`reports over ${records} records`, records, () =>
      runScript<ReportTimes>(scene, "house/usage-reports.js", [folderIn(scene, "reports"), String(records)]),
    ),
    journal: await told("writing records", records, () =>
      runScript<JournalTimes>(scene, "house/journal-appends.js", [folderIn(scene, "appends")]),
    ),
    sync: await told(`sync of ${consoleRows} console rows`, consoleRows, () =>
      runScript<SyncTimes>(scene, "house/mirror-sync.js", [size], ["--expose-gc"]),
    ),
    match:
      (await told(`comparing ${consoleRows} console rows`, consoleRows, () =>
        runScript<MatchTimes[]>(scene, "house/mirror-match.js", [size], ["--expose-gc"]),
      )) ?? [],
    lookups:
      (await told("looking up whose a connection is", records, () =>
        runScript<LookupTimes[]>(scene, "house/peer-lookup.js", []),
      )) ?? [],
  };
}

/** A state folder of its own. */
function folderIn({ folder }: Scene, name: string): string {
  const path = join(folder, name);
  mkdirSync(path, { recursive: true, mode: 0o700 });
  return path;
}
