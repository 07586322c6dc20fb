import { removeTool } from "../../config/edit-tools.ts";
import { readText } from "../../config/load.ts";
import { type NewTool, planTool, type ToolOptions } from "../../config/new-tool.ts";
import { moment, parseDollars, withDollarSign } from "../../config/values.ts";
import { startCommand } from "../../control/client.ts";
import { advice } from "../../core/advice.ts";
import { failed, type Problem } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { DAY_MS, dayName } from "../../core/units.ts";
import { freePlace, sourceText } from "../../keys/stored-keys.ts";
import type { KeyChange } from "../../lifecycle/lifecycle.ts";
import type { KeySettings } from "../../mirror/consoles/console.ts";
import { type Effect, editConfig, reportEffect, waitUntilActive } from "../config-change.ts";
import { type Answer, checkConsoleAccess, requestChange } from "../console-changes.ts";
import { canceled, fail, failNull, notice, printJson } from "../ui/messages.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";
import { fromConflict, readFrom, readNamed } from "./key-source.ts";
import { describeHold, findHold, movedTool, originsFor } from "./key-trust.ts";
import { type Inputs, readInputs } from "./secret-inputs.ts";
import { chooseStore, storeNamedKey } from "./store-key.ts";
import { newKey, tryKey } from "./take-key.ts";
import { tokenFor } from "./token.ts";

interface AddOptions extends ToolOptions {
  readonly keyStdin?: boolean;
  readonly key?: "-";
  readonly from?: string;
  readonly store?: string;
  readonly create?: boolean;
  readonly account?: string;
  readonly rate?: string;
  readonly models?: string;
  readonly tokenStdin?: boolean;
  readonly probe?: boolean;
  readonly yes?: boolean;
  readonly json?: boolean;
  readonly config?: string;
}

/** `keybearer tools add` */
export async function add(name: string, given: AddOptions): Promise<void> {
  const paths = commandPaths(given.config);
  const options = { ...given, ...readExpiry(given), keyStdin: given.keyStdin === true || given.key === "-" };
  const conflict = createConflict(options) ?? fromConflict(options);
  if (conflict !== null) return fail(conflict, EXIT.usage);
  if (options.create === true) return addCreated(paths, name, options);
  const plan = await readPlan(paths, name, options);
  if (plan === null) return;
  const flags = { key: options.keyStdin ?? false, token: options.tokenStdin ?? false };
  const next = `${advice.addToolWithKey(name, options.gateway ?? null)}, or name its source: --from env:NAME`;
  const inputs = await readInputs({ key: options.from === undefined, token: flags.token }, flags, next);
  if (inputs === null) return;
  try {
    await addPlanned(paths, name, plan, options, inputs);
  } finally {
    inputs.prompter?.close();
  }
}

async function readPlan(paths: Paths, name: string, options: AddOptions): Promise<NewTool | null> {
  const read = await readText(paths.config);
  if (read.text === null)
    return failNull({ problem: read.problem, next: read.found ? null : advice.init() }, EXIT.failed);
  const plan = planTool(read.text, paths.home, name, options);
  if (plan.ok) return plan;
  return failNull(plan, plan.bad === "options" ? EXIT.usage : EXIT.failed);
}

/** `90d` is the day in 90 days. */
function readExpiry({ expires }: AddOptions): { expires?: string } {
  if (expires === undefined || !/^\d+d$/.test(expires)) return {};
  return { expires: dayName(Date.now() + Number.parseInt(expires, 10) * DAY_MS) };
}

/** Whether other options contradict `--create`, or need it; null: they do not. */
function createConflict(options: AddOptions): string | null {
  const { create, account, rate, models, from, keyStdin, probe } = options;
  if (create !== true) {
    const isFree = account === undefined && rate === undefined && models === undefined;
    return isFree ? null : "--account, --rate and --models need --create";
  }
  if (from !== undefined || keyStdin || probe === false)
    return "with --create the console makes the key, and it is always tried: leave --from, --key-stdin and --no-probe out";
  return null;
}

const RATE_HELP = "--rate takes dollars per 5h, 1d or 7d, more than 0, such as 5/5h,20/1d";

const MODELS_HELP = "--models takes names with commas between them, such as gpt-5.1,gpt-5.1-mini";

/** null: it cannot be understood. */
function keyWindows(text: string): KeySettings["windows"] | null {
  const windows = text.split(",").map((part) => {
    const [amount = "", window = "", ...rest] = part.trim().split("/");
    const most = parseDollars(withDollarSign(amount));
    const isWindow = ["5h", "1d", "7d"].includes(window) && rest.length === 0;
    return isWindow && "value" in most ? { window, most: most.value } : null;
  });
  return windows.includes(null) ? null : windows.filter((window) => window !== null);
}

/** The key's own settings, which the console enforces, or what is wrong with the options. */
function keySettings({ quota, expires, rate, models, group }: AddOptions): KeySettings | Problem {
  const money = quota === undefined ? null : parseDollars(withDollarSign(quota));
  if (money !== null && "problem" in money) return { ...money, problem: `--quota: ${money.problem}` };
  if (money?.value === 0)
    return { problem: "--quota: a key that may spend nothing is of no use", next: "--quota 20" };
  const end = expires === undefined ? null : moment(expires);
  if (end !== null && "problem" in end) return { ...end, problem: `--expires: ${end.problem}` };
  if (end !== null && end.value <= Date.now())
    return { problem: "--expires: this is in the past", next: "--expires 90d" };
  const windows = rate === undefined ? [] : keyWindows(rate);
  if (windows === null || windows.some(({ most }) => most === 0)) return { problem: RATE_HELP, next: null };
  const names = models?.split(",").map((name) => name.trim()) ?? [];
  if (names.includes("")) return { problem: MODELS_HELP, next: null };
  const limits = { quota: money?.value ?? null, windows, expires_at: end?.value ?? null };
  return { group: group ?? null, ...limits, models: names };
}

/**
 * The tool is saved first, with a place for its key that is still empty. Then the daemon has the console make the key. If
 * that fails, the tool is removed again.
 */
async function addCreated(paths: Paths, name: string, options: AddOptions): Promise<void> {
  const { quota: _quota, expires: _expires, ...own } = options;
  const settings = keySettings(options);
  if ("problem" in settings) return fail(settings, EXIT.usage);
  const plan = await readPlan(paths, name, own);
  if (plan === null) return;
  const { config, gateway } = plan;
  if (gateway.console === null)
    return fail(`gateway ${gateway.name} has no console in config.yaml: it cannot make a key`, EXIT.failed);
  const access = await checkConsoleAccess(paths, null);
  if (!access.ok && access.hasConsole) return fail(access, EXIT.failed);
  const flags = { key: false, token: options.tokenStdin ?? false };
  const inputs = await readInputs(flags, flags, "");
  if (inputs === null) return;
  const store = await chooseStore(options, inputs.prompter);
  const token = store === null ? null : await tokenFor(name, flags.token, inputs);
  inputs.prompter?.close();
  if (store === null || token === null) return;
  const { [name]: _itself, ...tools } = config.tools;
  const place = await freePlace({ store, tool: name, tools, paths, key: null, env: stdio().env });
  const source = sourceText(place, paths);
  const secrets = { key: source, token: token.entry };
  if ((await editConfig(paths, (text) => plan.insert(text, secrets))) === null) return;
  const effect = await waitUntilActive(paths, name, (status) => status !== undefined);
  notice(`the console of ${gateway.name} makes a key for ${name} …`);
  const body = { account: options.account ?? null, ...settings };
  const created =
    effect.state === "in force"
      ? await requestChange<KeyChange>(paths, `/createkey/${encodeURIComponent(name)}`, body)
      : notInForce(effect);
  if (!created.ok && created.isLost) {
    // The key may exist already: without its tool nothing would name it.
    if (token.made !== null) stdio().stdout.write(`${token.made}\n`);
    const again = `if ${name} has no key then: ${advice.remove(name)}, and add it again`;
    return fail(
      [{ problem: `${name} is added. ${created.problem}`, next: created.next }, again],
      EXIT.failed,
    );
  }
  if (!created.ok) {
    await editConfig(paths, (text) => removeTool(text, name));
    return fail([created, `${name} was not added`], EXIT.failed);
  }
  const added = { source, key: created.value.new, models: null };
  await report(paths, plan, added, token.made, options.json ?? false);
}

function notInForce(effect: Effect): Answer<KeyChange> {
  if (effect.state !== "not in force") return { ...failed("keybearer is not running"), isLost: false };
  return { ...failed(effect.problem, effect.next), isLost: false };
}

/** The settings are valid: takes token and key, and saves them together. */
async function addPlanned(
  paths: Paths,
  name: string,
  plan: NewTool,
  options: AddOptions,
  inputs: Inputs,
): Promise<void> {
  const isBeside = (tool: string) => tool !== name && plan.config.tools[tool]?.gateway === plan.gateway.name;
  const moved = await movedTool(paths, plan.config, isBeside);
  if (moved !== null) return fail([moved, "nothing was changed"], EXIT.failed);
  const token = await tokenFor(name, options.tokenStdin ?? false, inputs);
  if (token === null) return;
  const save = async (source: string) => {
    const secrets = { key: source, token: token.entry };
    return (await editConfig(paths, (text) => plan.insert(text, secrets))) !== null;
  };
  const added =
    options.from === undefined
      ? await addStored(paths, plan, options, inputs, save)
      : await addFrom(paths, plan, options.from, options.probe ?? true, inputs, save);
  if (added === null) return;
  await report(paths, plan, added, token.made, options.json ?? false);
}

interface Added {
  /** As config.yaml has it. */
  readonly source: string;
  /** Fingerprint; null: it cannot be read from here. */
  readonly key: string | null;
  readonly models: readonly string[] | null;
}

type Save = (source: string) => Promise<boolean>;

async function addStored(
  paths: Paths,
  { gateway, config, tool: { name } }: NewTool,
  options: AddOptions,
  inputs: Inputs,
  save: Save,
): Promise<Added | null> {
  const store = await chooseStore(options, inputs.prompter);
  if (store === null) return null;
  // Without the new tool, whose name is meant to be free for its key.
  const { [name]: _itself, ...tools } = config.tools;
  const origins = originsFor(config, name, paths);
  const probe = options.probe ?? true;
  const taken = await newKey({ paths, tool: name, gateway, tools, origins, inputs, store, probe });
  if (taken === null) return null;
  const { key, place, models } = taken;
  const source = sourceText(place, paths);
  return (await storeNamedKey(paths, taken, () => save(source)))
    ? { source, key: key.fingerprint, models }
    : null;
}

async function addFrom(
  paths: Paths,
  { gateway, config, tool: { name } }: NewTool,
  from: string,
  probe: boolean,
  inputs: Inputs,
  save: Save,
): Promise<Added | null> {
  const named = readFrom(from, paths.home);
  if ("problem" in named) return failNull(named, EXIT.usage);
  const { source } = named;
  const found = await readNamed(source, paths);
  if (!found.ok) {
    // A variable may be set for the service only.
    const next = source.kind === "env" ? "if it is set for the service only: --no-probe" : found.next;
    if (probe) return failNull([{ problem: found.problem, next }, "nothing was changed"], EXIT.failed);
    return (await save(from)) ? { source: from, key: null, models: null } : null;
  }
  const { key } = found;
  const hold = await findHold(paths, { tool: name, source, origins: originsFor(config, name, paths) }, key);
  if (hold !== null) {
    // The tool may be saved: the daemon holds its key as well, until a person trusts it.
    notice({ problem: `not tried: ${describeHold(hold)}`, next: advice.trust(name) });
    return (await save(from)) ? { source: from, key: key.fingerprint, models: null } : null;
  }
  const tried = await tryKey({ gateway, inputs, probe, paths }, key, false);
  if (typeof tried === "string") return canceled();
  if (tried === null) return null;
  return (await save(from)) ? { source: from, key: key.fingerprint, models: tried.models } : null;
}

async function report(
  paths: Paths,
  { gateway, tool, newGroup }: NewTool,
  { source, key: fingerprint, models }: Added,
  token: string | null,
  json: boolean,
): Promise<void> {
  const { name, group } = tool;
  if (json) {
    const result = { tool: name, gateway: gateway.name, group, key: fingerprint, source, token, models };
    printJson(result);
  } else if (token !== null) stdio().stdout.write(`${token}\n`);
  notice(
    `${name} is added to ${paths.config}; its key${fingerprint === null ? "" : ` ${fingerprint}`}: ${source}`,
  );
  if (newGroup !== null)
    notice({
      problem: `group ${newGroup} is new there: multiplier 1 and all models, until you write what the console shows`,
      next: `gateways.${gateway.name}.groups.${newGroup}`,
    });
  if (token !== null) notice("its token is the line above, shown this once; config.yaml holds its hash");
  const effect = await waitUntilActive(paths, name, (status) => status !== undefined);
  if (reportEffect(effect, notice))
    notice(
      `next: ${advice.use(name)}${effect.state === "not running" ? `, and ${startCommand(paths)}` : ""}`,
    );
}
