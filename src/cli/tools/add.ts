import { readText } from "../../config/load.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { canceled, fail, failNull, notice } from "../ui/messages.ts";
import type { Prompter } from "../ui/prompts.ts";
import { editConfig, waitUntilActive } from "./config-change.ts";
import { holdInWords, holdOf, movedInWords, movedTool, originsFor } from "./hold.ts";
import { type Inputs, type NewKey, newKey, readInputs, tried } from "./key-input.ts";
import {
  chooseStore,
  freePlace,
  fromConflict,
  keepKey,
  readFrom,
  readNamed,
  sourceText,
} from "./key-store.ts";
import { type MadeToken, tokenFor } from "./token.ts";
import { type Planned, planTool, type ToolOptions } from "./tool-settings.ts";

export interface AddOptions extends ToolOptions {
  readonly keyStdin?: boolean;
  readonly from?: string;
  readonly store?: string;
  readonly tokenStdin?: boolean;
  readonly probe?: boolean;
  readonly yes?: boolean;
  readonly json?: boolean;
  readonly config?: string;
}

type Plan = Extract<Planned, { readonly ok: true }>;

/** What was added, for words and for --json. */
interface Added {
  readonly source: string;
  /** null: the key could not be had from here. */
  readonly key: NewKey | null;
  readonly token: MadeToken;
}

export async function add(name: string, options: AddOptions): Promise<void> {
  const paths = findPaths({ config: options.config });
  const plan = await planned(paths, name, options);
  if (plan === null) return;
  const flags = { key: options.keyStdin ?? false, token: options.tokenStdin ?? false };
  const next = `keybearer tools add ${name} --key-stdin, or name where it lies: --from env:NAME`;
  const inputs = await readInputs({ key: options.from === undefined, token: flags.token }, flags, next);
  if (inputs === null) return;
  try {
    await addPlanned(paths, name, plan, options, inputs);
  } finally {
    inputs.person?.close();
  }
}

async function planned(paths: Paths, name: string, options: AddOptions): Promise<Plan | null> {
  const conflict = fromConflict(options);
  if (conflict !== null) return failNull(conflict, EXIT.usage);
  const read = await readText(paths.config);
  if (read.text === null)
    return failNull(read.found ? read.fault : `${read.fault} → keybearer init`, EXIT.failed);
  const plan = planTool(read.text, paths.home, name, options);
  if (plan.ok) return plan;
  return failNull(plan.reason, plan.bad === "options" ? EXIT.usage : EXIT.failed);
}

/** With the settings known to be good: the token, the key, and one save. */
export async function addPlanned(
  paths: Paths,
  name: string,
  plan: Plan,
  options: AddOptions,
  inputs: Inputs,
): Promise<boolean> {
  const { person } = inputs;
  const beside = (tool: string) => tool !== name && plan.config.tools[tool]?.gateway === plan.gateway.name;
  const moved = await movedTool(paths, plan.config, beside);
  if (moved !== null) {
    fail(movedInWords(moved), EXIT.failed);
    return false;
  }
  const token = await tokenFor(name, options.tokenStdin ?? false, inputs.token, person);
  if (token === null) return false;
  const write = async (source: string) => {
    const secrets = { key: source, token: token.entry };
    return (await editConfig(paths.config, (text) => plan.splice(text, secrets))) !== null;
  };
  const added =
    options.from === undefined
      ? await addStored(paths, name, plan, options, inputs, write)
      : await addFrom(paths, plan, { from: options.from, probe: options.probe ?? true }, person, write);
  if (added === null) return false;
  await report(paths, name, plan, { ...added, token }, options.json ?? false);
  return true;
}

type Write = (source: string) => Promise<boolean>;

async function addStored(
  paths: Paths,
  tool: string,
  { gateway, config }: Plan,
  options: AddOptions,
  { person, key: given }: Inputs,
  write: Write,
): Promise<Omit<Added, "token"> | null> {
  const store = await chooseStore(options, person);
  if (store === null) return null;
  // Without the new tool, whose name is meant to be free for its key.
  const { [tool]: _itself, ...others } = config.tools;
  const placeOf = (key: Secret) => freePlace(store, tool, { tools: others }, paths, key);
  const origins = originsFor(config, tool, paths);
  const holdOn = async (key: Secret) => holdOf(paths, { tool, source: await placeOf(key), origins }, key);
  const key = await newKey({ tool, gateway, person, given, probe: options.probe ?? true, holdOn });
  if (key === null) return null;
  const place = await placeOf(key.key);
  const source = sourceText(place, paths);
  return (await keepKey(paths, place, key.key, () => write(source))) ? { source, key } : null;
}

async function addFrom(
  paths: Paths,
  { gateway, config, tool: { name } }: Plan,
  { from, probe }: { readonly from: string; readonly probe: boolean },
  person: Prompter | null,
  write: Write,
): Promise<Omit<Added, "token"> | null> {
  const named = readFrom(from, paths.home);
  if ("fault" in named) return failNull(named.fault, EXIT.usage);
  const { source } = named;
  const found = await readNamed(source, paths);
  if (!found.ok) {
    // A variable may be set for the service only; then the person says so.
    const next = source.kind === "env" ? ". if it is set for the service only: --no-probe" : "";
    if (probe) return failNull(`${found.reason}${next}\nnothing was changed`, EXIT.failed);
    return (await write(from)) ? { source: from, key: null } : null;
  }
  const origins = originsFor(config, name, paths);
  const held = await holdOf(paths, { tool: name, source, origins }, found.key);
  if (held !== null) {
    // The tool may be written down: the daemon holds its key as well, until a person says yes.
    notice(`not tried: ${holdInWords(held)} → keybearer trust ${name}`);
    return (await write(from)) ? { source: from, key: { key: found.key, models: null } } : null;
  }
  const outcome = await tried({ gateway, person, probe }, found.key, false);
  if (typeof outcome === "string") return canceled();
  if (outcome === null) return null;
  return (await write(from)) ? { source: from, key: outcome } : null;
}

async function report(paths: Paths, name: string, plan: Plan, added: Added, json: boolean): Promise<void> {
  const { token, key, source } = added;
  if (json) {
    const data = {
      tool: name,
      gateway: plan.gateway.name,
      group: plan.tool.group,
      key: key?.key.fingerprint ?? null,
    };
    const rest = { source, token: token.made, models: key?.models ?? null };
    process.stdout.write(`${JSON.stringify({ ...data, ...rest }, null, 2)}\n`);
  } else if (token.made !== null) process.stdout.write(`${token.made}\n`);
  notice(
    `${name} is added to ${paths.config}; its key${key === null ? "" : ` ${key.key.fingerprint}`}: ${source}`,
  );
  if (plan.newGroup !== null)
    notice(
      `group ${plan.newGroup} is new there: multiplier 1 and all models, until you write what the console shows ` +
        `→ gateways.${plan.gateway.name}.groups.${plan.newGroup}`,
    );
  if (token.made !== null) notice("its token is the line above, shown this once; config.yaml holds its hash");
  const effect = await waitUntilActive(paths, name, (tool) => tool !== undefined);
  if (effect.state === "not in force") return fail(`but ${effect.reason}`, EXIT.failed);
  if (effect.state === "in force" && effect.tool?.why) notice(`but ${effect.tool.why} → ${effect.tool.next}`);
  notice(`next: keybearer use ${name}${effect.state === "not running" ? ", and keybearer run" : ""}`);
}
