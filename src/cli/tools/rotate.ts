import { setKey } from "../../config/edit-tools.ts";
import { parseConfig } from "../../config/parse.ts";
import {
  type Config,
  describeSource,
  type Gateway,
  isSameSource,
  type KeySource,
  type Tool,
} from "../../config/schema.ts";
import { askDaemon, typedCommand } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import { failed, quoteForShell } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import {
  forgetKey,
  isNamed,
  keychainThere,
  ownPlace,
  type Store,
  sourceText,
} from "../../keys/stored-keys.ts";
import { type Effect, editConfig, findTool, readConfig, waitUntilActive } from "../config-change.ts";
import { canceled, fail, failNull, notice, printJson } from "../ui/messages.ts";
import { deferSignals } from "../ui/signals.ts";
import { commandPaths, isOwners, stdio } from "../ui/stdio.ts";
import { joinNames } from "../ui/units.ts";
import { fromConflict, readFrom, readNamed, readOwn } from "./key-source.ts";
import { describeHold, findHold, foreignKey, movedTool, originsFor } from "./key-trust.ts";
import { type ConsoleRotation, rotateAtConsole, rotateSeveral } from "./rotate-at-console.ts";
import { type Inputs, readInputs } from "./secret-inputs.ts";
import { chooseStore, storeNamedKey } from "./store-key.ts";
import { failUnchanged, type NewKey, newKey, tryKey } from "./take-key.ts";

export interface RotateOptions {
  readonly all?: boolean;
  readonly olderThan?: string;
  readonly force?: boolean;
  readonly manual?: boolean;
  readonly keyStdin?: boolean;
  readonly key?: "-";
  readonly from?: string;
  readonly store?: string;
  readonly probe?: boolean;
  readonly yes?: boolean;
  readonly json?: boolean;
  readonly config?: string;
}

interface Rotation {
  readonly paths: Paths;
  readonly config: Config;
  readonly tool: Tool;
  readonly gateway: Gateway;
  readonly options: RotateOptions;
}

const STORES: readonly Store[] = ["keychain", "file"];

/** `keybearer tools rotate` */
export async function rotate(name: string | undefined, options: RotateOptions): Promise<void> {
  const isSeveral = options.all === true || options.olderThan !== undefined;
  if (isSeveral === (name !== undefined))
    return fail("name one tool, or choose several with --all or --older-than", EXIT.usage);
  const store = STORES.find((one) => one === options.store) ?? null;
  if (store === null && options.store !== undefined)
    return fail("--store takes keychain or file", EXIT.usage);
  const paths = commandPaths(options.config);
  const rotation: ConsoleRotation = {
    store,
    force: options.force ?? false,
    yes: options.yes ?? false,
    json: options.json ?? false,
  };
  if (name === undefined) return rotateSeveral(paths, options.olderThan, rotation);
  const isManual =
    options.manual ||
    options.keyStdin ||
    options.key === "-" ||
    options.from !== undefined ||
    options.probe === false;
  if (!isManual && (await rotateAtConsole(paths, name, rotation)) !== "manual") return;
  await rotateByHand(name, options);
}

/** A person types the new key, pipes it in, or names its source. */
async function rotateByHand(name: string, options: RotateOptions): Promise<void> {
  if (isOwners(commandPaths(options.config)))
    return fail(
      {
        problem: "the console cannot make a key here, and only root may give one to the system service",
        next: advice.asRoot(typedCommand()),
      },
      EXIT.failed,
    );
  const rotation = await readRotation(name, options);
  if (rotation === null) return;
  const flags = { key: options.keyStdin === true || options.key === "-", token: false };
  const next = `${advice.rotateWithKey(name)}, or name its source: --from env:NAME`;
  const inputs = await readInputs({ key: options.from === undefined, token: false }, flags, next);
  if (inputs === null) return;
  try {
    await rotateKey(rotation, inputs);
  } finally {
    inputs.prompter?.close();
  }
}

async function readRotation(name: string, options: RotateOptions): Promise<Rotation | null> {
  const paths = commandPaths(options.config);
  const conflict = fromConflict(options);
  if (conflict !== null) return failNull(conflict, EXIT.usage);
  const config = await readConfig(paths);
  const tool = config === null ? null : findTool(config, name);
  const gateway = config?.gateways[tool?.gateway ?? ""];
  if (config === null || tool === null || gateway === undefined) return null;
  const isMoved = options.from !== undefined || options.store !== undefined;
  const instead = isMoved ? null : await whereToChange(tool, paths);
  return instead === null ? { paths, config, tool, gateway, options } : failNull(instead, EXIT.failed);
}

/** Where the person changes a key that keybearer did not store; null: keybearer stored it. */
async function whereToChange({ name, key }: Tool, paths: Paths): Promise<string | null> {
  if (key.kind === "literal" || ownPlace(key, paths) !== null) return null;
  const hasKeychain = paths.mode === "user" && (await keychainThere({ env: stdio().env })).there;
  const instead = `or let keybearer keep it from now on: ${advice.rotateInto(name, hasKeychain ? "keychain" : "file")}`;
  const source = describeSource(key);
  switch (key.kind) {
    case "env":
      return (
        `the key of ${name} comes from ${source}, which keybearer cannot change: set the new key there and start ` +
        `keybearer again, name another variable with --from env:NAME,\n${instead}`
      );
    case "file":
      return `the key of ${name} is in a file of your own, ${source}: write the new key there, and it is used for the next request,\n${instead}`;
    case "credential":
      return `the key of ${name} is ${source}, which systemd gives the service: replace it there, then ${advice.systemService("restart")},\n${instead}`;
    default:
      return `the key of ${name} comes from ${source}: change it there, then let it be read again (kill -HUP, or any save of config.yaml),\n${instead}`;
  }
}

/** Tries the new key before anything is changed. One save names it, and the old one is deleted once it is unused. */
export async function rotateKey(rotation: Rotation, inputs: Inputs): Promise<boolean> {
  const { paths, config, tool, options } = rotation;
  const read = await readOwn(tool.key, paths);
  const old = read?.ok ? read.key : null;
  // The daemon does not hold a tool without a key, so `trust` could not release it. Its new key is stored, held and not sent.
  const lacksKey = read !== null && !read.ok;
  const moved = await movedTool(paths, config, (name) => name === tool.name);
  if (moved !== null && !lacksKey) {
    fail([moved, "nothing was changed"], EXIT.failed);
    return false;
  }
  const taken =
    options.from === undefined
      ? await takeKey(rotation, inputs, old)
      : await takeKeyFrom(rotation, options.from, inputs, old);
  return taken !== null && saveKey(rotation, taken, old);
}

/** The new key, and where it is or will be stored. */
interface TakenKey {
  readonly key: Secret;
  readonly source: KeySource;
  /** The source as config.yaml will have it. */
  readonly text: string;
  /** What keybearer stores; null: it is there already. */
  readonly stored: NewKey | null;
  /** By the gateway. */
  readonly accepted: boolean;
}

async function takeKey(rotation: Rotation, inputs: Inputs, old: Secret | null): Promise<TakenKey | null> {
  const { paths, config, tool, gateway, options } = rotation;
  const store = await chooseStore(options, inputs.prompter, ownPlace(tool.key, paths)?.kind ?? null);
  if (store === null) return null;
  const origins = originsFor(config, tool.name, paths);
  const { tools } = config;
  const probe = options.probe ?? true;
  const taken = await newKey({ paths, tool: tool.name, gateway, tools, origins, inputs, store, probe });
  if (taken === null) return null;
  const { key, place, models } = taken;
  if (old?.equals(key))
    return failNull(`the tool already has this key, ${old.fingerprint}. nothing was changed`, EXIT.failed);
  return { key, source: place, text: sourceText(place, paths), stored: taken, accepted: models !== null };
}

async function takeKeyFrom(
  { paths, config, tool, gateway, options }: Rotation,
  from: string,
  inputs: Inputs,
  old: Secret | null,
): Promise<TakenKey | null> {
  const named = readFrom(from, paths.home);
  if ("problem" in named) return failNull(named, EXIT.usage);
  const { source } = named;
  if (isSameSource(source, tool.key))
    return failNull(`the key of ${tool.name} comes from ${from} already`, EXIT.failed);
  const found = await readNamed(source, paths);
  // The tool has a key that may work, so it is not replaced by one that cannot be read.
  if (!found.ok) return failUnchanged(found);
  const { key } = found;
  if (old?.equals(key)) notice("the tool had this key before");
  const taken = { key, source, text: from, stored: null };
  const origins = originsFor(config, tool.name, paths);
  const hold = await findHold(paths, { tool: tool.name, source, origins }, key);
  if (hold?.known) return failUnchanged(foreignKey(hold));
  if (hold !== null) {
    notice({ problem: `not tried: ${describeHold(hold)}`, next: advice.trust(tool.name) });
    return { ...taken, accepted: false };
  }
  const tried = await tryKey({ gateway, inputs, probe: options.probe ?? true, paths }, key, false);
  if (typeof tried === "string") return canceled();
  return tried === null ? null : { ...taken, accepted: tried.models !== null };
}

/** Ctrl-C has no effect from the save on: an old key must not stay unmentioned. */
function saveKey(rotation: Rotation, taken: TakenKey, old: Secret | null): Promise<boolean> {
  const { paths, tool, options } = rotation;
  const { key, text, stored } = taken;
  return deferSignals(async () => {
    const save = () => nameInConfig(rotation, text);
    const isSaved = stored === null ? await save() : await storeNamedKey(paths, stored, save);
    if (!isSaved) return false;
    const { fingerprint } = key;
    const effect = await waitUntilActive(
      paths,
      tool.name,
      (status) => status !== undefined && (status.key === fingerprint || status.state === "needs-trust"),
    );
    const before = old?.fingerprint ?? null;
    if (options.json) {
      const result = { tool: tool.name, old: before, new: fingerprint, source: text, effect: effect.state };
      printJson(result);
    } else stdio().stdout.write(`${tool.name}: key ${before ?? "(none)"} → ${fingerprint}, ${text}\n`);
    await settleOldKey(rotation, taken, effect, old);
    return true;
  });
}

/** Another rotation may have been faster. Its key is not replaced. */
async function nameInConfig({ paths, tool }: Rotation, source: string): Promise<boolean> {
  const edited = await editConfig(paths, (text) => {
    const current = parseConfig(text, paths.home).config?.tools[tool.name]?.key;
    if (current !== undefined && isSameSource(current, tool.key)) return setKey(text, tool.name, source);
    const problem = `the key of ${tool.name} in config.yaml was changed in the meantime and was left as it is`;
    return failed(problem, "check it, then run this again");
  });
  return edited !== null;
}

/** Prints the result and deletes the old key, unless the new one may not work yet. */
async function settleOldKey(
  rotation: Rotation,
  taken: TakenKey,
  effect: Effect,
  old: Secret | null,
): Promise<void> {
  const held = effect.state === "in force" && effect.tool?.state === "needs-trust" ? effect.tool : null;
  if (effect.state === "not in force") fail({ ...effect, problem: `but ${effect.problem}` }, EXIT.failed);
  else if (held !== null)
    fail({ problem: `but ${held.why ?? "the key is held"}`, next: held.next }, EXIT.failed);
  else if (effect.state === "in force")
    notice("the running keybearer uses it from the next request on; those in flight finish with the old one");
  const doubt = held !== null ? "the new one is held" : doubtAbout(taken, effect);
  if (old === null) return;
  await deleteOldKey(rotation, doubt);
  if (doubt !== null || taken.key.equals(old)) return;
  const alarm = rotation.gateway.console === null ? "" : ", and the mirror raises an alarm when it is used";
  const users = await otherUsers(rotation.paths, old);
  const first =
    users.length === 0
      ? "now delete"
      : `also used on ${joinNames(users)}: give each of these machines a key of its own first, then delete`;
  notice(
    `${first} the old key ${old.fingerprint} in the gateway's console: until then anyone who has it can spend${alarm}`,
  );
}

/** The other machines that use the key, as far as they share limits or records with this one. */
async function otherUsers(paths: Paths, key: Secret): Promise<string[]> {
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  const machines = asked.ok ? (asked.value.shared?.machines ?? []) : [];
  // The status of an older daemon has no keys.
  const users = machines.filter(
    ({ self, lost, keys = [] }) => !self && !lost && keys.includes(key.fingerprint),
  );
  return users.map(({ name }) => name);
}

/** Why the new key may not work yet; null: the gateway accepts it, and the daemon has it or will find it. */
function doubtAbout({ source, accepted }: TakenKey, effect: Effect): string | null {
  if (effect.state === "not in force") return "the new one is not in use yet";
  if (!accepted) return "the gateway has not accepted the new one";
  // The shell's variable is not the service's.
  if (effect.state === "not running" && source.kind === "env")
    return "keybearer is not running, so it is not known whether it sees the new one";
  return null;
}

async function deleteOldKey({ paths, tool }: Rotation, doubt: string | null): Promise<void> {
  const place = ownPlace(tool.key, paths);
  if (place === null) return;
  const where = describeSource(tool.key);
  if (await isNamed(paths, place))
    return notice(`the old key stays in ${where}, because another tool uses it`);
  if (doubt !== null) {
    const next =
      place.kind === "file"
        ? `rm ${quoteForShell(place.path)}`
        : "delete that entry in the keychain's own program";
    return notice({ problem: `the old key stays in ${where}: ${doubt}. once it works`, next });
  }
  const deleted = await forgetKey(place, { env: stdio().env });
  if (!deleted.ok) notice({ ...deleted, problem: `the old key is still in ${where}: ${deleted.problem}` });
}
