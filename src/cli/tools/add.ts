import { readText } from "../../config/load.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { sourceText } from "../../keys/places.ts";
import { editConfig, reportEffect, waitUntilActive } from "../config-change.ts";
import { canceled, fail, failNull, notice } from "../ui/messages.ts";
import { chooseStore, fromConflict, readFrom, readNamed, storeNamedKey } from "./key-store.ts";
import {
  describeHold,
  holdOf,
  type Inputs,
  movedTool,
  newKey,
  originsFor,
  readInputs,
  tryKey,
} from "./new-key.ts";
import { type NewTool, planTool, type ToolOptions } from "./new-tool.ts";
import { tokenFor } from "./token.ts";

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

/** `keybearer tools add` */
export async function add(name: string, options: AddOptions): Promise<void> {
  const paths = findPaths({ config: options.config });
  const plan = await readPlan(paths, name, options);
  if (plan === null) return;
  const flags = { key: options.keyStdin ?? false, token: options.tokenStdin ?? false };
  const next = `keybearer tools add ${name} --key-stdin, or name its source: --from env:NAME`;
  const inputs = await readInputs({ key: options.from === undefined, token: flags.token }, flags, next);
  if (inputs === null) return;
  try {
    await addPlanned(paths, name, plan, options, inputs);
  } finally {
    inputs.prompter?.close();
  }
}

async function readPlan(paths: Paths, name: string, options: AddOptions): Promise<NewTool | null> {
  const conflict = fromConflict(options);
  if (conflict !== null) return failNull(conflict, EXIT.usage);
  const read = await readText(paths.config);
  if (read.text === null)
    return failNull(read.found ? read.fault : `${read.fault} → keybearer init`, EXIT.failed);
  const plan = planTool(read.text, paths.home, name, options);
  if (plan.ok) return plan;
  return failNull(plan.reason, plan.bad === "options" ? EXIT.usage : EXIT.failed);
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
  if (moved !== null) return fail(moved, EXIT.failed);
  const token = await tokenFor(name, options.tokenStdin ?? false, inputs);
  if (token === null) return;
  const save = async (source: string) => {
    const secrets = { key: source, token: token.entry };
    return (await editConfig(paths.config, (text) => plan.insert(text, secrets))) !== null;
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
  /** null: it cannot be read from here. */
  readonly key: Secret | null;
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
  return (await storeNamedKey(paths, place, key, () => save(source))) ? { source, key, models } : null;
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
  if ("fault" in named) return failNull(named.fault, EXIT.usage);
  const { source } = named;
  const found = await readNamed(source, paths);
  if (!found.ok) {
    // A variable may be set for the service only.
    const next = source.kind === "env" ? ". if it is set for the service only: --no-probe" : "";
    if (probe) return failNull(`${found.reason}${next}\nnothing was changed`, EXIT.failed);
    return (await save(from)) ? { source: from, key: null, models: null } : null;
  }
  const { key } = found;
  const hold = await holdOf(paths, { tool: name, source, origins: originsFor(config, name, paths) }, key);
  if (hold !== null) {
    // The tool may be saved: the daemon holds its key as well, until a person trusts it.
    notice(`not tried: ${describeHold(hold)} → keybearer trust ${name}`);
    return (await save(from)) ? { source: from, key, models: null } : null;
  }
  const tried = await tryKey({ gateway, inputs, probe, paths }, key, false);
  if (typeof tried === "string") return canceled();
  if (tried === null) return null;
  return (await save(from)) ? { source: from, key, models: tried.models } : null;
}

async function report(
  paths: Paths,
  { gateway, tool, newGroup }: NewTool,
  { source, key, models }: Added,
  token: string | null,
  json: boolean,
): Promise<void> {
  const { name, group } = tool;
  const fingerprint = key?.fingerprint ?? null;
  if (json) {
    const result = { tool: name, gateway: gateway.name, group, key: fingerprint, source, token, models };
    process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
  } else if (token !== null) process.stdout.write(`${token}\n`);
  notice(
    `${name} is added to ${paths.config}; its key${fingerprint === null ? "" : ` ${fingerprint}`}: ${source}`,
  );
  if (newGroup !== null)
    notice(
      `group ${newGroup} is new there: multiplier 1 and all models, until you write what the console shows ` +
        `→ gateways.${gateway.name}.groups.${newGroup}`,
    );
  if (token !== null) notice("its token is the line above, shown this once; config.yaml holds its hash");
  const effect = await waitUntilActive(paths, name, (status) => status !== undefined);
  if (reportEffect(effect, notice))
    notice(`next: keybearer use ${name}${effect.state === "not running" ? ", and keybearer run" : ""}`);
}
