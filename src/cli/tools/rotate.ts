import { setKey } from "../../config/edit-tools.ts";
import { loadConfig } from "../../config/load.ts";
import { parseConfig } from "../../config/parse.ts";
import { formatProblems } from "../../config/problems.ts";
import { type Config, describeSource, type Gateway, type KeySource, type Tool } from "../../config/schema.ts";
import { quoteForShell } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { forgetKey, type KeyPlace } from "../../keys/store.ts";
import { canceled, fail, failNull, notice } from "../ui/messages.ts";
import { type Effect, editConfig, waitUntilActive } from "./config-change.ts";
import { holdInWords, holdOf, movedInWords, movedTool, originsFor } from "./hold.ts";
import { failed, type Inputs, newKey, readInputs, strange, tried } from "./key-input.ts";
import {
  chooseStore,
  deferSignals,
  freePlace,
  fromConflict,
  isNamed,
  isSameSource,
  keepKey,
  ownPlace,
  readFrom,
  readNamed,
  readOwn,
  sourceText,
} from "./key-store.ts";

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
  readonly paths: Paths;
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
  const paths = findPaths({ config: options.config });
  const conflict = fromConflict(options);
  if (conflict !== null) return failNull(conflict, EXIT.usage);
  const { config, problems, found } = await loadConfig(paths.config, { home: paths.home, strict: false });
  if (!found) return failNull(`there is no ${paths.config} → keybearer init`, EXIT.failed);
  if (config === null) return failNull(formatProblems(paths.config, problems), EXIT.badConfig);
  const tool = config.tools[name];
  const gateway = config.gateways[tool?.gateway ?? ""];
  if (tool === undefined || gateway === undefined) {
    const names = Object.keys(config.tools).join(", ");
    return failNull(`there is no tool ${name} in config.yaml; its tools are ${names}`, EXIT.failed);
  }
  const elsewhere =
    options.from === undefined && options.store === undefined ? changeThere(tool, paths) : null;
  return elsewhere === null ? { paths, config, tool, gateway, options } : failNull(elsewhere, EXIT.failed);
}

/** What keybearer did not put there it does not change; null: it did. */
function changeThere({ name, key }: Tool, paths: Paths): string | null {
  if (key.kind === "literal" || ownPlace(key, paths) !== null) return null;
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
  const { paths, config, tool } = rotation;
  const old = await readOwn(tool.key, paths);
  // A tool that has no key is not held by the daemon either, so nobody could say yes to it: its new key is then stored,
  // sent nowhere, and held.
  const lacksKey = old !== null && !old.ok;
  const moved = await movedTool(paths, config, (name) => name === tool.name);
  if (moved !== null && !lacksKey) {
    fail(movedInWords(moved), EXIT.failed);
    return false;
  }
  const fresh = await freshKey(rotation, inputs, old?.ok ? old.key : null);
  return fresh !== null && putInForce(rotation, fresh, old?.ok ? old.key : null);
}

/** A key for the tool, and where it lies or is to lie. */
interface Fresh {
  readonly key: Secret;
  readonly source: KeySource;
  /** As config.yaml is to write it. */
  readonly text: string;
  /** It is keybearer that puts it there; null: it lies there. */
  readonly place: KeyPlace | null;
  /** The gateway takes it. */
  readonly accepted: boolean;
}

function freshKey(rotation: Rotation, inputs: Inputs, old: Secret | null): Promise<Fresh | null> {
  const { from } = rotation.options;
  return from === undefined ? typedKey(rotation, inputs, old) : namedKey(rotation, from, inputs, old);
}

async function typedKey(rotation: Rotation, inputs: Inputs, old: Secret | null): Promise<Fresh | null> {
  const { paths, config, tool, gateway, options } = rotation;
  const { person, key: given } = inputs;
  const store = await chooseStore(options, person, ownPlace(tool.key, paths)?.kind ?? null);
  if (store === null) return null;
  const placeOf = (key: Secret) => freePlace(store, tool.name, config, paths, key);
  const origins = originsFor(config, tool.name, paths);
  const holdOn = async (key: Secret) =>
    holdOf(paths, { tool: tool.name, source: await placeOf(key), origins }, key);
  const wish = { tool: tool.name, gateway, person, given, probe: options.probe ?? true, holdOn };
  const found = await newKey(wish);
  if (found === null) return null;
  const { key, models } = found;
  if (old?.equals(key))
    return failNull(`that is the key ${old.fingerprint} it has already. nothing was changed`, EXIT.failed);
  const place = await placeOf(key);
  return { key, source: place, text: sourceText(place, paths), place, accepted: models !== null };
}

async function namedKey(
  { paths, config, tool, gateway, options }: Rotation,
  from: string,
  { person }: Inputs,
  old: Secret | null,
): Promise<Fresh | null> {
  const named = readFrom(from, paths.home);
  if ("fault" in named) return failNull(named.fault, EXIT.usage);
  const { source } = named;
  if (isSameSource(source, tool.key))
    return failNull(`the key of ${tool.name} comes from ${from} already`, EXIT.failed);
  const found = await readNamed(source, paths);
  // The tool has a key that may work: it is not given up for one that nobody has seen.
  if (!found.ok) return failed(found.reason);
  const { key } = found;
  if (old?.equals(key)) notice("it is the key that the tool had before");
  const fresh = { key, source, text: from, place: null };
  const origins = originsFor(config, tool.name, paths);
  const held = await holdOf(paths, { tool: tool.name, source, origins }, key);
  if (held?.known) return failed(strange(held));
  if (held !== null) {
    notice(`not tried: ${holdInWords(held)} → keybearer trust ${tool.name}`);
    return { ...fresh, accepted: false };
  }
  const outcome = await tried({ gateway, person, probe: options.probe ?? true }, key, false);
  if (typeof outcome === "string") return canceled();
  return outcome === null ? null : { ...fresh, accepted: outcome.models !== null };
}

/** From the save on it goes to its end: Ctrl-C must not leave an old key behind that nobody speaks of. */
function putInForce(rotation: Rotation, fresh: Fresh, old: Secret | null): Promise<boolean> {
  const { paths, tool, options } = rotation;
  const { key, text, place } = fresh;
  return deferSignals(async () => {
    const named = () => save(rotation, text);
    if (!(await (place === null ? named() : keepKey(paths, place, key, named)))) return false;
    const { fingerprint } = key;
    const effect = await waitUntilActive(
      paths,
      tool.name,
      (now) => now !== undefined && (now.key === fingerprint || now.state === "needs-trust"),
    );
    const words = { tool: tool.name, old: old?.fingerprint ?? null, new: fingerprint, source: text };
    if (options.json)
      process.stdout.write(`${JSON.stringify({ ...words, effect: effect.state }, null, 2)}\n`);
    else process.stdout.write(`${tool.name}: key ${words.old ?? "(none)"} → ${words.new}, ${text}\n`);
    await settleOld({ ...rotation, fresh, effect, old });
    return true;
  });
}

/** Another rotation may have been faster: its key is not replaced by one that was chosen without knowing of it. */
async function save({ paths, tool }: Rotation, source: string): Promise<boolean> {
  const edited = await editConfig(paths.config, (from) => {
    const now = parseConfig(from, paths.home).config?.tools[tool.name]?.key;
    if (now !== undefined && isSameSource(now, tool.key)) return setKey(from, tool.name, source);
    const reason = `the key of ${tool.name} in config.yaml was changed in the meantime: it was left as it is. look at it, then run this again`;
    return { ok: false, reason };
  });
  return edited !== null;
}

interface Rotated extends Rotation {
  readonly fresh: { readonly key: Secret; readonly source: KeySource; readonly accepted: boolean };
  readonly effect: Effect;
  /** The key it had; null: it could not be had from here. */
  readonly old: Secret | null;
}

/** What became of the rotation, and of the old key: it is the only one that is known to work until another does. */
async function settleOld(rotated: Rotated): Promise<void> {
  const { effect, fresh, old, gateway } = rotated;
  const isHeld = effect.state === "in force" && effect.tool?.state === "needs-trust";
  if (effect.state === "not in force") fail(`but ${effect.reason}`, EXIT.failed);
  else if (isHeld) fail(`but ${effect.tool?.why} → ${effect.tool?.next}`, EXIT.failed);
  else if (effect.state === "in force")
    notice("the running keybearer uses it from the next request on; those under way finish with the old one");
  const doubt = doubtIn(rotated, isHeld);
  await clearPlace(rotated, doubt);
  if (old === null || doubt !== null || fresh.key.equals(old)) return;
  notice(
    `now delete the old key ${old.fingerprint} in the gateway's console: until then whoever has it can spend` +
      (gateway.console === null ? "" : ", and the mirror raises an alarm when somebody does"),
  );
}

/** Why the new key may not do yet; null: the gateway takes it, and the daemon has it or will find it. */
function doubtIn({ effect, fresh }: Rotated, isHeld: boolean): string | null {
  if (isHeld) return "the new one is held";
  if (effect.state === "not in force") return "the new one is not in use yet";
  if (!fresh.accepted) return "the gateway has not accepted the new one";
  // The shell's variable is not the service's.
  if (effect.state === "not running" && fresh.source.kind === "env")
    return "whether keybearer will see the new one shows when it runs";
  return null;
}

async function clearPlace({ paths, tool, old }: Rotated, doubt: string | null): Promise<void> {
  const place = ownPlace(tool.key, paths);
  if (place === null || old === null) return;
  const where = describeSource(tool.key);
  if (await isNamed(paths, place))
    return notice(`the old key stays in ${where}: another tool has it from there`);
  if (doubt !== null) {
    const away =
      place.kind === "file"
        ? `rm ${quoteForShell(place.path)}`
        : "delete that entry in the keychain's own program";
    return notice(`the old key stays in ${where}: ${doubt}. once it works → ${away}`);
  }
  const gone = await forgetKey(place, { env: process.env });
  if (!gone.ok) notice(`the old key is still in ${where}: ${gone.reason}`);
}
