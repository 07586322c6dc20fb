import { addSameModel } from "../../config/edit-models.ts";
import { activeRevision, editChecked, waitUntilActive } from "../config-change.ts";
import { notice, printText } from "../ui/messages.ts";
import { commandPaths } from "../ui/stdio.ts";

export interface AckModelOptions {
  readonly config?: string;
}

/** `keybearer usage ack-model` */
export async function ackModel(asked: string, answered: string, options: AckModelOptions): Promise<void> {
  const paths = commandPaths(options.config);
  const before = await activeRevision(paths);
  const isChanged = await editChecked(paths, (text) => addSameModel(text, asked, answered));
  if (isChanged === null) return;
  if (!isChanged) return printText(`${answered} already counts as ${asked}`);
  printText(`${answered} counts as ${asked} from now on, in older records too`);
  const effect = await waitUntilActive(paths, "", (_tool, revision) => revision > before);
  if (effect.state === "not in force") notice({ ...effect, problem: `but ${effect.problem}` });
}
