import { setKey } from "../../config/edit-tools.ts";
import { loadConfig } from "../../config/load.ts";
import { parseConfig } from "../../config/parse.ts";
import { problemsInWords } from "../../config/problem.ts";
import type { Config, Gateway, Tool } from "../../config/shape.ts";
import { EXIT } from "../../core/errors.ts";
import { describeSource, type KeySource } from "../../core/key-source.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import type { KeyPlace } from "../../keys/store.ts";
import { fail } from "../fail.ts";
import { editConfig } from "./edit.ts";
import { whenInForce } from "./effect.ts";
import { fromConflict, readFrom, readNamed, readOwn } from "./from.ts";
import { holdInWords, holdOf, movedInWords, movedTool, originsFor } from "./hold.ts";
import { keepKey } from "./keep-key.ts";
import { chooseStore, freePlace, isSameSource, ownPlace, sourceText } from "./key-place.ts";
import { failed, newKey, strange, tried } from "./new-key.ts";
import { settleOld } from "./settle-old.ts";
import { type Inputs, readInputs } from "./stdin.ts";
import { tell } from "./tell.ts";
import { deferSignals } from "./to-the-end.ts";
import { stopped, told } from "./told.ts";

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
  if (conflict !== null) return told(conflict, EXIT.usage);
  const { config, problems, found } = await loadConfig(paths.config, { home: paths.home, strict: false });
  if (!found) return told(`there is no ${paths.config} → keybearer init`, EXIT.failed);
  if (config === null) return told(problemsInWords(paths.config, problems), EXIT.badConfig);
  const tool = config.tools[name];
  const gateway = config.gateways[tool?.gateway ?? ""];
  if (tool === undefined || gateway === undefined) {
    const names = Object.keys(config.tools).join(", ");
    return told(`there is no tool ${name} in config.yaml; its tools are ${names}`, EXIT.failed);
  }
  const elsewhere =
    options.from === undefined && options.store === undefined ? changeThere(tool, paths) : null;
  return elsewhere === null ? { paths, config, tool, gateway, options } : told(elsewhere, EXIT.failed);
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
    return told(`that is the key ${old.fingerprint} it has already. nothing was changed`, EXIT.failed);
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
  if ("fault" in named) return told(named.fault, EXIT.usage);
  const { source } = named;
  if (isSameSource(source, tool.key))
    return told(`the key of ${tool.name} comes from ${from} already`, EXIT.failed);
  const found = await readNamed(source, paths);
  // The tool has a key that may work: it is not given up for one that nobody has seen.
  if (!found.ok) return failed(found.reason);
  const { key } = found;
  if (old?.equals(key)) tell("it is the key that the tool had before");
  const fresh = { key, source, text: from, place: null };
  const origins = originsFor(config, tool.name, paths);
  const held = await holdOf(paths, { tool: tool.name, source, origins }, key);
  if (held?.known) return failed(strange(held));
  if (held !== null) {
    tell(`not tried: ${holdInWords(held)} → keybearer trust ${tool.name}`);
    return { ...fresh, accepted: false };
  }
  const outcome = await tried({ gateway, person, probe: options.probe ?? true }, key, false);
  if (typeof outcome === "string") return stopped();
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
    const effect = await whenInForce(
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
