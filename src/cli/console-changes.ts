import { noSuchTool } from "../config/edit-tools.ts";
import { type Asked, askDaemon } from "../control/client.ts";
import type { Changed } from "../control/routes.ts";
import type { Status } from "../control/status.ts";
import { advice } from "../core/advice.ts";
import { failed, type Problem } from "../core/display.ts";
import { EXIT } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import { type KeyAction, PAST } from "../lifecycle/key-action.ts";
import type { KeyReport } from "../mirror/report/shape.ts";
import { askConsoles } from "./ask-consoles.ts";
import { isSameFile } from "./config-change.ts";
import { loadHere } from "./config-here.ts";
import { failNull } from "./ui/messages.ts";
import { confirm } from "./ui/prompts.ts";

/* What the commands share that have a key made, rotated, disabled, enabled or deleted at the console of a gateway. */

/** …a1b2 (codex-k3v9x2) */
export function describeKey({ key, name }: KeyReport): string {
  return key === null ? name : `${key} (${name})`;
}

/**
 * Makes sure that a tool's key can be changed at its console, and asks the person. null: it cannot, or they said no, and
 * that was printed.
 */
export async function confirmAtConsole(
  paths: Paths,
  tool: string,
  action: KeyAction,
  options: { readonly yes?: boolean },
): Promise<KeyReport | null> {
  const found = await findConsoleKey(paths, tool, action);
  if (!found.ok) {
    const command = action === "delete" ? advice.remove(tool) : advice[action](tool);
    return failNull(
      [
        {
          problem: `the key of ${tool} cannot be ${PAST[action]} at the gateway: ${found.problem}`,
          next: found.next,
        },
        `nothing was changed. by hand: ${action} the key in the gateway's console, and type ${command}`,
      ],
      EXIT.failed,
    );
  }
  const { value: key } = found;
  if (options.yes) return key;
  const { config } = await loadHere(paths, { strict: false });
  const stops = action !== "enable" && config?.tools[tool]?.keysElsewhere === true;
  const warning = stops ? ", which is also used on other machines (keys_elsewhere)," : "";
  const question =
    action === "delete"
      ? `remove ${tool} from ${paths.config}, and delete its key ${describeKey(key)}${warning} at the console of ${key.gateway}?`
      : `${action} key ${describeKey(key)}${warning} at the console of ${key.gateway}, too?`;
  const isYes = await confirm(question, action === "delete" ? "no" : "yes");
  return isYes ? key : failNull("nothing was changed", EXIT.failed);
}

async function findConsoleKey(paths: Paths, tool: string, action: KeyAction): Promise<Changed<KeyReport>> {
  const access = await checkConsoleAccess(paths, tool);
  return access.ok ? requestChange(paths, `/consolekey/${encodeURIComponent(tool)}`, { action }) : access;
}

/** Whether the daemon can be asked for a change at the console. */
type ConsoleAccess =
  | { readonly ok: true }
  | ({
      readonly ok: false;
      /** false: config.yaml names no console, so keys are changed by hand. */
      readonly hasConsole: boolean;
    } & Problem);

/** @param name null: of any tool */
export async function checkConsoleAccess(paths: Paths, name: string | null): Promise<ConsoleAccess> {
  const noConsole = name === null ? "no gateway has a console" : "its gateway has no console in config.yaml";
  const { config, found } = await loadHere(paths, { strict: false });
  if (found && config === null) return noAccess(`${paths.config} has problems`, advice.check());
  if (config !== null) {
    const tool = name === null ? null : config.tools[name];
    if (tool === undefined) return noAccess(noSuchTool(name ?? "", Object.keys(config.tools)));
    const gateways = tool === null ? Object.values(config.gateways) : [config.gateways[tool.gateway]];
    if (!gateways.some((gateway) => gateway?.console != null))
      return { ...noAccess(noConsole), hasConsole: false };
  }
  const status = await askDaemon<Status>(paths, "GET", "/status");
  // Without a file only the sandbox could be there.
  if (!status.ok)
    return status.running || found
      ? noAccess(status.problem, status.next)
      : { ...noAccess(noConsole), hasConsole: false };
  const { path } = status.value.config;
  if (await isSameFile(path, paths.config)) return { ok: true };
  return noAccess(`the running keybearer uses another file, ${path}`);
}

function noAccess(problem: string, next: string | null = null): ConsoleAccess & { readonly ok: false } {
  return { ok: false, hasConsole: true, problem, next };
}

export type Answer<Value> =
  | { readonly ok: true; readonly value: Value }
  | ({
      readonly ok: false;
      /** The daemon ended in the middle: the change may have been made. */
      readonly isLost: boolean;
    } & Problem);

/** Asks the daemon for a change. It answers when the change is made, or says why it is not. */
export async function requestChange<Value>(paths: Paths, path: string, body: object): Promise<Answer<Value>> {
  const asked: Asked<Changed<Value>> = await askConsoles(paths, "POST", path, body);
  if (asked.ok) return asked.value.ok ? asked.value : { ...asked.value, isLost: false };
  if (!asked.running) return { ...failed(asked.problem, asked.next), isLost: false };
  const problem = `the daemon's answer was lost (${asked.problem}). what has begun, its next start finishes`;
  return { ok: false, problem, next: advice.status(), isLost: true };
}
