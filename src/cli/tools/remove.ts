import { removeTool } from "../../config/edit-tools.ts";
import { loadConfig } from "../../config/load.ts";
import { type Config, describeSource, type KeySource } from "../../config/schema.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import { isSameSource, ownPlace } from "../../keys/places.ts";
import { forgetKey, type KeyPlace } from "../../keys/store.ts";
import { editConfig, endInFlight, waitUntilActive } from "../config-change.ts";
import { fail, printText } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { isInteractive } from "../ui/terminal.ts";

interface RemoveOptions {
  readonly now?: boolean;
  readonly keepKey?: boolean;
  readonly yes?: boolean;
  readonly config?: string;
}

export async function remove(name: string, options: RemoveOptions): Promise<void> {
  const paths = findPaths({ config: options.config });
  const { config: file, home } = paths;
  if (!options.yes && !isInteractive())
    return fail(
      `there is no terminal to ask at. if you are sure: keybearer tools remove ${name} --yes`,
      EXIT.usage,
    );
  // Read before the edit, and only for the key: a tool can also be removed from a file with problems.
  const { config } = await loadConfig(file, { home, strict: false });
  const edited = await editConfig(
    file,
    (text) => removeTool(text, name),
    options.yes ? undefined : () => confirmRemoval(name, file),
  );
  if (edited === null) return;
  printText(`${name} is removed from ${file}: its tokens have ended, its records stay in the usage log`);
  if (edited.result.commentAbove) printText("comments above it are still there");
  const effect = await waitUntilActive(paths, name, (tool) => tool === undefined);
  const place = effect.state === "not in force" ? null : storedPlace(config, name, paths);
  if (place === null || options.keepKey) printText(whereKeyIs(config, name));
  else await deleteKey(place, options.yes ?? false);
  await endInFlight(paths, name, effect, { now: options.now ?? false, cutLater: null });
}

async function confirmRemoval(name: string, file: string): Promise<boolean> {
  if (await confirm(`remove ${name} from ${file}?`)) return true;
  fail("not removed; nothing changed", EXIT.failed);
  return false;
}

/** Where keybearer stored the tool's key; null: it did not, or another tool uses the same key. */
function storedPlace(config: Config | null, name: string, paths: Paths): KeyPlace | null {
  const key = config?.tools[name]?.key;
  if (config === null || key === undefined || otherUser(config, name, key) !== null) return null;
  return ownPlace(key, paths);
}

async function deleteKey(place: KeyPlace, yes: boolean): Promise<void> {
  const where = describeSource(place);
  if (!yes && !(await confirm(`delete its key from ${where}, too?`)))
    return printText(`its key stays in ${where}: delete it in the gateway's console`);
  const deleted = await forgetKey(place, { env: process.env });
  if (deleted.ok) printText(`its key is deleted from ${where}: delete it in the gateway's console, too`);
  else printText(`its key was not deleted from ${where}: ${deleted.reason}`);
}

function otherUser(config: Config, name: string, key: KeySource): string | null {
  const other = Object.values(config.tools).find((tool) => tool.name !== name && isSameSource(tool.key, key));
  return other?.name ?? null;
}

function whereKeyIs(config: Config | null, name: string): string {
  const key = config?.tools[name]?.key;
  if (config === null || key === undefined)
    return "its key stays where it is: delete it there and in the gateway's console";
  const where = describeSource(key);
  const other = otherUser(config, name, key);
  if (other !== null) return `its key, ${where}, is also the key of ${other}`;
  return key.kind === "literal"
    ? `its key ${key.secret.fingerprint} was in config.yaml and is gone: delete it in the gateway's console, too`
    : `its key stays in ${where}: delete it there and in the gateway's console`;
}
