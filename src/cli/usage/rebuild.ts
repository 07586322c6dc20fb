import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import { journalFiles } from "../../usage/journal/files.ts";
import { fail } from "../ui/messages.ts";
import { rebuildIndex } from "./log-file.ts";

/** Reads the whole journal into a new index. */
export async function rebuild(): Promise<void> {
  const paths = findPaths();
  const days = journalFiles(paths.usage).length;
  if (days === 0) return fail(`there is no usage log in ${paths.usage}`, EXIT.failed);
  const missing = await rebuildIndex(paths);
  if (missing !== null) return fail(missing, EXIT.failed);
  process.stdout.write(
    `the index was rebuilt from ${days} ${days === 1 ? "day" : "days"} of the usage log\n`,
  );
}
