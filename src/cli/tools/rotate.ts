import { setInTool } from "../../config/edit/splice.ts";
import { quotedName } from "../../config/edit/yaml-text.ts";
import { loadConfig } from "../../config/load.ts";
import { problemsInWords } from "../../config/problem.ts";
import type { Config, Gateway, Tool } from "../../config/shape.ts";
import { describeSource } from "../../key-source.ts";
import { forgetKey } from "../../keys/store.ts";
import { findPlaces, type Places } from "../../places.ts";
import type { Secret } from "../../secret.ts";
import { EXIT } from "../../start-failure.ts";
import { fail } from "../fail.ts";
import { editConfig } from "./edit.ts";
import { type Effect, whenInForce } from "./effect.ts";
import { fromConflict, readFrom, readNamed, readOwn } from "./from.ts";
import { keepKey } from "./keep-key.ts";
import { chooseStore, freePlace, isSameSource, ownPlace, sourceText } from "./key-place.ts";
import { type NewKey, newKey, tried } from "./new-key.ts";
import { type Inputs, readInputs } from "./stdin.ts";
import { tell } from "./tell.ts";
import { told } from "./told.ts";

export interface RotateOptions {
  readonly keyStdin?: boolean;
  readonly from?: string;
  readonly store?: string;
  readonly probe?: boolean;
  readonly yes?: boolean;
  readonly json?: boolean;
  readonly config?: string;
}

/** What is rotated: a tool of a configuration that is good. */
export interface Rotation {
  readonly places: Places;
  readonly config: Config;
  readonly tool: Tool;
  readonly gateway: Gateway;
  readonly options: RotateOptions;
}

export async function rotate(name: string, options: RotateOptions): Promise<void> {
  const rotation = await rotationOf(name, options);
  if (rotation === null) return;
  const flags = { key: options.keyStdin ?? false, token: false };
  const next = `keybearer tools rotate ${name} --key-stdin, or name where it lies: --from env:NAME`;
  const inputs = await readInputs({ key: options.from === undefined, token: false }, flags, next);
  if (inputs === null) return;
  try {
    await rotateKey(rotation, inputs);
  } finally {
    inputs.person?.close();
  }
}

async function rotationOf(name: string, options: RotateOptions): Promise<Rotation | null> {
  const places = findPlaces({ config: options.config });
  const conflict = fromConflict(options);
  if (conflict !== null) return told(conflict, EXIT.usage);
  const { config, problems, found } = await loadConfig(places.config, { home: places.home, strict: false });
  if (!found) return told(`there is no ${places.config} → keybearer init`, EXIT.failed);
  if (config === null) return told(problemsInWords(places.config, problems), EXIT.badConfig);
  const tool = config.tools[name];
  const gateway = config.gateways[tool?.gateway ?? ""];
  if (tool === undefined || gateway === undefined) {
    const names = Object.keys(config.tools).join(", ");
    return told(`there is no tool ${name} in config.yaml; its tools are ${names}`, EXIT.failed);
  }
  const elsewhere =
    options.from === undefined && options.store === undefined ? changeThere(tool, places) : null;
  return elsewhere === null ? { places, config, tool, gateway, options } : told(elsewhere, EXIT.failed);
}

/** What keybearer did not put there it does not change; null: it did. */
function changeThere({ name, key }: Tool, places: Places): string | null {
  if (key.kind === "literal" || ownPlace(key, places) !== null) return null;
  const instead = `or let keybearer keep it from now on: keybearer tools rotate ${name} --store keychain (or file)`;
  const where = describeSource(key);
  switch (key.kind) {
    case "env":
      return (
        `the key of ${name} comes from ${where}, which keybearer cannot change: set the new key there and start ` +
        `keybearer again, name another variable with --from env:NAME,\n${instead}`
      );
    case "file":
      return `the key of ${name} lies in a file of your own, ${where}: write the new key there, and it is used for the next request,\n${instead}`;
    default:
      return `the key of ${name} comes from ${where}: change it there, then let it be read again (kill -HUP, or any save of config.yaml),\n${instead}`;
  }
}

/** The new key is tried before anything is changed; then one save names it, and the old one goes when it is unused. */
export async function rotateKey(rotation: Rotation, inputs: Inputs): Promise<boolean> {
  const { places, tool, options } = rotation;
  const old = await readOwn(tool.key, places);
  const oldKey = old?.ok ? old.key : null;
  const done =
    options.from === undefined
      ? await toStore(rotation, inputs, oldKey)
      : await toSource(rotation, options.from, inputs, oldKey);
  if (done === null) return false;
  const { key, source } = done;
  const fingerprint = key?.fingerprint ?? null;
  const effect = await whenInForce(
    places,
    tool.name,
    (now) =>
      now !== undefined && (fingerprint === null || now.key === fingerprint || now.state === "needs-trust"),
  );
  const words = { tool: tool.name, old: oldKey?.fingerprint ?? null, new: fingerprint, source };
  if (options.json) process.stdout.write(`${JSON.stringify({ ...words, effect: effect.state }, null, 2)}\n`);
  else
    process.stdout.write(
      `${tool.name}: key ${words.old ?? "(none)"} → ${words.new ?? "(not read)"}, ${source}\n`,
    );
  const ended = oldKey !== null && key !== null && !key.equals(oldKey);
  await settle(rotation, effect, oldKey, ended);
  return true;
}

interface Rotated {
  /** null: it could not be had from here. */
  readonly key: Secret | null;
  readonly source: string;
}

async function toStore(rotation: Rotation, inputs: Inputs, old: Secret | null): Promise<Rotated | null> {
  const { places, config, tool, gateway, options } = rotation;
  const { person, key: given } = inputs;
  const found = await newKey({ tool: tool.name, gateway, person, given, probe: options.probe ?? true });
  if (found === null || isTheSame(found, old)) return null;
  const own = ownPlace(tool.key, places);
  const store = options.store === undefined && own !== null ? own.kind : await chooseStore(options, person);
  if (store === null) return null;
  const place = await freePlace(store, tool.name, config, places);
  const source = sourceText(place, places);
  return (await keepKey(place, found.key, () => save(rotation, source))) ? { key: found.key, source } : null;
}

async function toSource(
  rotation: Rotation,
  from: string,
  { person }: Inputs,
  old: Secret | null,
): Promise<Rotated | null> {
  const { places, tool, gateway, options } = rotation;
  const probe = options.probe ?? true;
  const named = readFrom(from, places.home);
  if ("fault" in named) return told(named.fault, EXIT.usage);
  const { source } = named;
  if (isSameSource(source, tool.key))
    return told(`the key of ${tool.name} comes from ${from} already`, EXIT.failed);
  const found = await readNamed(source, places);
  if (!found.ok && source.kind !== "env") return told(`${found.reason}\nnothing was changed`, EXIT.failed);
  if (!found.ok) {
    // A variable may be set for the daemon alone.
    tell(`not tried: ${found.reason}`);
    return (await save(rotation, from)) ? { key: null, source: from } : null;
  }
  const outcome = await tried({ gateway, person, probe }, found.key, false);
  if (outcome === null || typeof outcome === "string") return null;
  if (old?.equals(outcome.key)) tell("it is the key that the tool had before");
  return (await save(rotation, from)) ? { key: outcome.key, source: from } : null;
}

async function save({ places, tool }: Rotation, source: string): Promise<boolean> {
  const text = quotedName(source);
  return (await editConfig(places.config, (from) => setInTool(from, tool.name, "key", text))) !== null;
}

function isTheSame({ key }: NewKey, old: Secret | null): boolean {
  if (old === null || !key.equals(old)) return false;
  fail(`that is the key ${old.fingerprint} it has already. nothing was changed`, EXIT.failed);
  return true;
}

/** The old key is taken from its place only when nobody reads it there any more. */
async function settle(
  { places, config, tool }: Rotation,
  effect: Effect,
  old: Secret | null,
  ended: boolean,
): Promise<void> {
  const place = ownPlace(tool.key, places);
  const shared = Object.values(config.tools).find(
    (other) => other.name !== tool.name && isSameSource(other.key, tool.key),
  );
  const where = describeSource(tool.key);
  if (effect.state === "not in force") {
    const kept = place === null ? "" : `. the old key stays in ${where}`;
    return fail(`but ${effect.reason}${kept}`, EXIT.failed);
  }
  if (effect.state === "in force") {
    if (effect.tool?.state === "needs-trust") tell(`but ${effect.tool.why} → ${effect.tool.next}`);
    else
      tell("the running keybearer uses it from the next request on; those under way finish with the old one");
  }
  if (shared !== undefined) tell(`the old key stays in ${where}: it is also that of ${shared.name}`);
  else if (place !== null && old !== null) {
    const gone = await forgetKey(place, { env: process.env });
    if (!gone.ok) tell(`the old key is still in ${where}: ${gone.reason}`);
  }
  if (old !== null && ended)
    tell(
      `now delete the old key ${old.fingerprint} in the gateway's console: until then whoever has it can spend, ` +
        "and the mirror raises an alarm when somebody does",
    );
}
