import type { Surroundings } from "../../clients/description.ts";
import { UndoStore } from "../../clients/undo-store.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { fail } from "../ui/messages.ts";
import { canConfirm } from "../ui/prompts.ts";
import { takeBackRecord } from "../use/write.ts";
import type { AdoptOptions } from "./search.ts";

/** `keybearer adopt --undo [client]`: takes back what --write changed, the newest first, where it is still as that left it. */
export async function undoAdoption(paths: Paths, where: Surroundings, options: AdoptOptions): Promise<void> {
  const store = new UndoStore(paths, where);
  const { records, problems } = store.all(typeof options.undo === "string" ? options.undo : null);
  for (const problem of problems) fail(problem, EXIT.failed);
  const adopted = records.filter(({ by }) => by === "adopt");
  if (adopted.length === 0) return fail("there is nothing to undo", EXIT.failed);
  if (!canConfirm(advice.adoptUndo(), options)) return;
  const { yes = false, force = false } = options;
  const how = { yes, force, command: advice.adoptUndo(), isRenewed: true };
  for (const record of adopted) await takeBackRecord(paths, where, store, record, how);
}
