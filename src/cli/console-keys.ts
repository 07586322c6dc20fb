import { loadConfig } from "../config/load.ts";
import { askDaemon } from "../control/client.ts";
import type { Changed } from "../control/routes.ts";
import type { Status } from "../control/status.ts";
import { EXIT } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import type { KeyAction } from "../lifecycle/lifecycle.ts";
import type { KeyReport } from "../mirror/report/shape.ts";
import { isSameFile } from "./config-change.ts";
import { fail, failNull } from "./ui/messages.ts";
import { confirm } from "./ui/prompts.ts";
import { isInteractive } from "./ui/terminal.ts";

/* Keys at the consoles of gateways. The daemon has the logins, so it makes every change. */

/** A change needs several answers of a console, up to 30 s each, and then up to 30 s until the gateway has forgotten a key. */
const CHANGE_TIMEOUT_MS = 180_000;

/** Asks the daemon for a change of a key. Never rejects. */
export async function changeAtConsole<Value>(
  socket: string,
  path: string,
  body: unknown,
): Promise<Changed<Value>> {
  const asked = await askDaemon<Changed<Value>>(socket, "POST", path, body, CHANGE_TIMEOUT_MS);
  return asked.ok ? asked.value : { ok: false, problem: asked.reason, next: null };
}

/** …a1b2 (codex-k3v9x2) */
export function describeKey({ key, name }: KeyReport): string {
  return key === null ? name : `${key} (${name})`;
}

export function describeRefusal({ problem, next }: Extract<Changed<unknown>, { ok: false }>): string {
  return next === null ? problem : `${problem} → ${next}`;
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
    const isRemoval = action === "delete";
    const command = `keybearer tools ${isRemoval ? "remove" : action} ${tool}`;
    return failNull(
      `the key of ${tool} cannot be ${PAST[action]} at the gateway: ${describeRefusal(found)}\n` +
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

export const PAST = { disable: "disabled", enable: "enabled", delete: "deleted" } as const;

/** The daemon may use another file, in which a tool of this name has another key. */
async function findConsoleKey(
  { socket, config: file }: Paths,
  tool: string,
  action: KeyAction,
): Promise<Changed<KeyReport>> {
  const asked = await askDaemon<Status>(socket, "GET", "/status");
  if (!asked.ok) return { ok: false, problem: asked.reason, next: null };
  const { path } = asked.value.config;
  if (!(await isSameFile(path, file)))
    return { ok: false, problem: `the running keybearer uses another file, ${path}`, next: null };
  return changeAtConsole(socket, `/consolekey/${encodeURIComponent(tool)}`, { action });
}
