import { removeTool } from "../../config/edit-tools.ts";
import { loadConfig } from "../../config/load.ts";
import { type Config, describeSource } from "../../config/schema.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import { fail, printText } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { isInteractive } from "../ui/terminal.ts";
import { printable } from "../ui/text.ts";
import { editConfig } from "./edit.ts";
import { whenInForce } from "./effect.ts";
import { isSameSource } from "./key-place.ts";
import { endInFlight } from "./under-way.ts";

interface RemoveOptions {
  readonly now?: boolean;
  readonly yes?: boolean;
  readonly config?: string;
}

export async function remove(name: string, options: RemoveOptions): Promise<void> {
  const paths = findPaths({ config: options.config });
  const { config: file, home } = paths;
  if (!options.yes && !isInteractive())
    return fail(`nobody is here to ask. if you are sure: keybearer tools remove ${name} --yes`, EXIT.usage);
  // Read before it goes; and only for the words at the end, so that a file with problems can be edited as well.
  const { config } = await loadConfig(file, { home, strict: false });
  const edited = await editConfig(
    file,
    (text) => removeTool(text, name),
    options.yes ? undefined : () => saysRemove(name, file),
  );
  if (edited === null) return;
  const { commentAbove } = edited.result;
  printText(
    `${name} is removed from ${file}: its tokens are dead, its records stay in the usage log`,
    ...(commentAbove ? ["comments that stood above it are still there"] : []),
    whereTheKeyIs(config, name),
  );
  const effect = await whenInForce(paths, name, (tool) => tool === undefined);
  await endInFlight(paths, name, effect, { now: options.now ?? false, again: null });
}

async function saysRemove(name: string, file: string): Promise<boolean> {
  if (await confirm(printable(`remove ${name} from ${file}?`))) return true;
  fail("not removed; nothing changed", EXIT.failed);
  return false;
}

/** keybearer takes no key away from where it lies: it may not be the only one who reads it there. */
function whereTheKeyIs(config: Config | null, name: string): string {
  const key = config?.tools[name]?.key;
  if (config === null || key === undefined)
    return "its key stays where it is: delete it there and in the gateway's console";
  const other = Object.values(config.tools).find((tool) => tool.name !== name && isSameSource(tool.key, key));
  const where = describeSource(key);
  if (other !== undefined) return `its key, ${where}, is also that of ${other.name}`;
  return key.kind === "literal"
    ? `its key ${key.secret.fingerprint} went with it: delete it in the gateway's console too`
    : `its key stays in ${where}: delete it there and in the gateway's console`;
}
