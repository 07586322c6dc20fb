import { removeTool } from "../../config/edit-tools.ts";
import { type Config, describeSource, isSameSource, type KeySource } from "../../config/schema.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { forgetKey, type KeyPlace, ownPlace } from "../../keys/stored-keys.ts";
import type { KeyChange } from "../../lifecycle/lifecycle.ts";
import type { KeyReport } from "../../mirror/report/shape.ts";
import { editConfig, endInFlight, waitUntilActive } from "../config-change.ts";
import { loadHere } from "../config-here.ts";
import { confirmAtConsole, describeKey, requestChange } from "../console-changes.ts";
import { fail, printText } from "../ui/messages.ts";
import { agrees, canConfirm, confirm } from "../ui/prompts.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";

interface RemoveOptions {
  readonly now?: boolean;
  readonly keepKey?: boolean;
  readonly atGateway?: boolean;
  readonly yes?: boolean;
  readonly config?: string;
}

export async function remove(name: string, options: RemoveOptions): Promise<void> {
  const paths = commandPaths(options.config);
  const { config: file } = paths;
  const { atGateway = false, yes = false } = options;
  if (!canConfirm(`${advice.remove(name)}${atGateway ? " --at-gateway" : ""}`, options)) return;
  // Read before the edit, and only for the key: a tool can also be removed from a file with problems.
  const { config } = await loadHere(paths, { strict: false });
  const edited = await editConfig(
    paths,
    (text) => removeTool(text, name),
    confirmation(paths, name, options),
  );
  if (edited === null) return;
  printText(`${name} is removed from ${file}: its tokens have ended, its records stay in the usage log`);
  if (edited.result.commentAbove) printText("comments above it are still there");
  const effect = await waitUntilActive(paths, name, (tool) => tool === undefined);
  const place = effect.state === "not in force" ? null : storedPlace(config, name, paths);
  if (place === null || options.keepKey) printText(whereKeyIs(config, name, atGateway));
  else if (atGateway) await deleteKey(place, "");
  else if (yes || (await confirmDeletion(place)))
    await deleteKey(place, ": delete it in the gateway's console, too");
  if (!atGateway && config !== null && hasOwnConsoleKey(config, name)) printText(AT_CONSOLE);
  await endInFlight(paths, name, effect, { now: options.now ?? false, cutLater: null });
}

/** What has to happen before the tool is removed; undefined: nothing. */
function confirmation(
  paths: Paths,
  name: string,
  options: RemoveOptions,
): (() => Promise<boolean>) | undefined {
  if (options.atGateway)
    return async () => {
      const key = await confirmAtConsole(paths, name, "delete", options);
      return key !== null && (await deleteAtConsole(paths, name, key));
    };
  return options.yes ? undefined : () => agrees(`remove ${name} from ${paths.config}?`, "no", "removed");
}

/** False: it was not deleted, and the reason was printed. */
async function deleteAtConsole(paths: Paths, name: string, key: KeyReport): Promise<boolean> {
  const deleted = await requestChange<KeyChange>(paths, `/deletekey/${encodeURIComponent(name)}`, {});
  if (!deleted.ok) {
    fail(
      [
        {
          problem: `the key of ${name} was not deleted at the gateway: ${deleted.problem}`,
          next: deleted.next,
        },
        `${name} is not removed`,
      ],
      EXIT.failed,
    );
    return false;
  }
  const { state, why } = deleted.value;
  printText(
    state === "done"
      ? `key ${describeKey(key)} is deleted at the console of ${key.gateway}`
      : {
          problem: `key ${describeKey(key)} is not deleted yet: ${why ?? "the gateway still accepts it"}. keybearer tries again every minute`,
          next: advice.status(),
        },
  );
  return true;
}

/** Where keybearer stored the tool's key; null: it did not, or another tool uses the same key. */
function storedPlace(config: Config | null, name: string, paths: Paths): KeyPlace | null {
  const key = config?.tools[name]?.key;
  if (config === null || key === undefined || otherUser(config, name, key) !== null) return null;
  return ownPlace(key, paths);
}

/** False: the person keeps it. */
async function confirmDeletion(place: KeyPlace): Promise<boolean> {
  const where = describeSource(place);
  if (await confirm(`delete its key from ${where}, too?`, "no")) return true;
  printText(`its key stays in ${where}: delete it in the gateway's console`);
  return false;
}

/** @param next what is left to do, after the sentence */
async function deleteKey(place: KeyPlace, next: string): Promise<void> {
  const where = describeSource(place);
  const deleted = await forgetKey(place, { env: stdio().env });
  if (deleted.ok) printText(`its key is deleted from ${where}${next}`);
  else printText({ ...deleted, problem: `its key was not deleted from ${where}: ${deleted.problem}` });
}

function otherUser(config: Config, name: string, key: KeySource): string | null {
  const other = Object.values(config.tools).find((tool) => tool.name !== name && isSameSource(tool.key, key));
  return other?.name ?? null;
}

const AT_CONSOLE = `from here: ${advice.deleteKey("<key>")}, as ${advice.keys()} lists it; --at-gateway does both at once`;

/** The key was the tool's alone, and its gateway has a console. */
function hasOwnConsoleKey(config: Config, name: string): boolean {
  const tool = config.tools[name];
  if (tool === undefined || otherUser(config, name, tool.key) !== null) return false;
  return (config.gateways[tool.gateway]?.console ?? null) !== null;
}

function whereKeyIs(config: Config | null, name: string, isDeleted: boolean): string {
  const key = config?.tools[name]?.key;
  const there = isDeleted ? "" : " and in the gateway's console";
  if (config === null || key === undefined) return `its key stays where it is: delete it there${there}`;
  const where = describeSource(key);
  const other = otherUser(config, name, key);
  if (other !== null) return `its key, ${where}, is also the key of ${other}`;
  if (key.kind !== "literal") return `its key stays in ${where}: delete it there${there}`;
  const next = isDeleted ? "" : ": delete it in the gateway's console, too";
  return `its key ${key.secret.fingerprint} was in config.yaml and is gone${next}`;
}
