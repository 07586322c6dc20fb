import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Aside } from "../state.ts";
import type { Progress } from "./progress.ts";

/** The damaged logs that lie in the folder, by name. */
export function asideIn(folder: string, known: ReadonlyMap<string, Progress>): readonly Aside[] {
  return (
    [...known]
      .filter(([, { deleted }]) => deleted === null)
      .map(([name, { salvage, saved, unreadable }]) => ({
        file: join(folder, name),
        salvage,
        saved,
        unreadable,
      }))
      // Once its owner has put it away there is nothing left to say about it.
      .filter(({ salvage, file }) => salvage === "under way" || existsSync(file))
  );
}

/** What a person should know about a log that was deleted while it was open. */
export function deletedInWords({ deleted, salvage, saved, unreadable }: Progress): string {
  const begun = `${deleted}: a new one was begun`;
  if (salvage === "under way")
    return `${begun}, and ${saved} earlier records are saved in it so far → let keybearer run until all are`;
  if (salvage === "not possible")
    return `${begun}. ${saved} earlier records were saved in it, the others are gone with the file`;
  const rest = unreadable > 0 ? `; ${unreadable} places could not be read` : "";
  return `${begun}, and the earlier records were saved in it (${saved})${rest}. to begin without them, stop keybearer before you delete it`;
}
