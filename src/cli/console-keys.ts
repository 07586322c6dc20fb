import { loadConfig } from "../config/load.ts";
import type { Changed } from "../control/routes.ts";
import { advice } from "../core/advice.ts";
import { EXIT } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import type { KeyAction } from "../lifecycle/lifecycle.ts";
import type { KeyReport } from "../mirror/report/shape.ts";
import { ask, whyNotHere, withNext } from "./tools/at-console.ts";
import { fail, failNull } from "./ui/messages.ts";
import { confirm } from "./ui/prompts.ts";
import { isInteractive } from "./ui/terminal.ts";

/* What the commands share that disable, enable or delete a key at the console of a gateway. */

export const PAST = { disable: "disabled", enable: "enabled", delete: "deleted" } as const;

/** …a1b2 (codex-k3v9x2) */
export function describeKey({ key, name }: KeyReport): string {
  return key === null ? name : `${key} (${name})`;
}

/** False: there is no person to ask and no --yes, and that was printed. */
export function canConfirm(command: string, options: { readonly yes?: boolean }): boolean {
  if (options.yes || isInteractive()) return true;
  fail(`there is no terminal to ask at. if you are sure: ${command} --yes`, EXIT.usage);
  return false;
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
      `the key of ${tool} cannot be ${PAST[action]} at the gateway: ${withNext(found)}\n` +
        `nothing was changed. by hand: ${action} the key in the gateway's console, and type ${command}`,
      EXIT.failed,
    );
  }
  const { value: key } = found;
  if (options.yes) return key;
  const { config } = await loadConfig(paths.config, { home: paths.home, strict: false });
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
  const why = await whyNotHere(paths, tool);
  if (why === null) return ask(paths, `/consolekey/${encodeURIComponent(tool)}`, { action });
  const problem = why === "no-console" ? "its gateway has no console in config.yaml" : why;
  return { ok: false, problem, next: null };
}
