import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { loadConfig } from "../config/load.ts";
import { type Config, isSameSource, type KeySource, type Tool } from "../config/schema.ts";
import { secretSources } from "../config/snapshot.ts";
import type { Paths } from "../core/paths.ts";
import type { Secret } from "../core/secret.ts";
import { isInside, readKey } from "./sources.ts";
import type { KeyPlace } from "./store.ts";

export { isSameSource };

/* Where keybearer keeps the keys that it stores: in the keychain, or in files of its own. */

export type Store = KeyPlace["kind"];

interface PlaceRequest {
  readonly store: Store;
  readonly tool: string;
  /** Their keys' places are taken. */
  readonly tools: Config["tools"];
  readonly paths: Paths;
  /** null: not known yet. */
  readonly key: Secret | null;
  /** To find the keychain. */
  readonly env: NodeJS.ProcessEnv;
}

/**
 * A place that no tool's key has yet: <tool>, then <tool>-2. A new name each time, because the daemon only reloads what changes
 * in config.yaml. The names of other tools are reserved: without `key:` their keys are stored under these. A place that holds
 * this very key and is not named in config.yaml, as after a command that was killed, is used again.
 */
export async function freePlace({ store, tool, tools, paths, key, env }: PlaceRequest): Promise<KeyPlace> {
  const folder = join(keyFolder(paths), "keys");
  const others = Object.keys(tools).filter((name) => name !== tool);
  const sources = Object.values(tools).map(({ key }) => key);
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? tool : `${tool}-${number}`;
    const place: KeyPlace =
      store === "keychain"
        ? { kind: "keychain", service: "keybearer", account: name }
        : { kind: "file", path: join(folder, name) };
    if (others.includes(name) || sources.some((source) => isSameSource(source, place))) continue;
    if (!(await isTaken(place, key, env))) return place;
  }
}

async function isTaken(place: KeyPlace, key: Secret | null, env: NodeJS.ProcessEnv): Promise<boolean> {
  if (place.kind === "file" && !existsSync(place.path)) return false;
  const found = await readKey(place, { env });
  // A file that cannot be read takes the name, too.
  if (!found.ok) return place.kind === "file";
  return key === null || !found.key.equals(key) || found.warning !== null;
}

/** The place of a tool's key if keybearer stored it there and may delete it; null: it is the person's own. */
export function ownPlace(source: KeySource, paths: Paths): KeyPlace | null {
  if (source.kind === "keychain") return source;
  // Only in keys/: the folder also holds config.yaml.
  return source.kind === "file" && isInKeyFolder(source.path, paths) ? source : null;
}

/** Whether freePlace() could have made this place for the tool, or config.yaml names it for the tool. */
export function isPlaceFor(place: KeyPlace, tool: Tool, tools: Config["tools"], paths: Paths): boolean {
  if (ownPlace(tool.key, paths) !== null && isSameSource(tool.key, place)) return true;
  const isOurs = place.kind === "file" ? isInKeyFolder(place.path, paths) : place.service === "keybearer";
  const name = place.kind === "file" ? basename(place.path) : place.account;
  const suffix = name.startsWith(tool.name) ? name.slice(tool.name.length) : null;
  const isNumbered = suffix === "" || (suffix !== null && /^-[1-9]\d{0,5}$/.test(suffix));
  const isOthers = Object.values(tools).some((other) => other !== tool && isSameSource(other.key, place));
  return isOurs && isNumbered && !isOthers && (name === tool.name || !Object.hasOwn(tools, name));
}

function isInKeyFolder(path: string, paths: Paths): boolean {
  return isInside(path, paths.own) && dirname(path) === join(keyFolder(paths), "keys");
}

/** As config.yaml has it. `~/` stays right when the home folder moves. */
export function sourceText(place: KeyPlace, { home }: Paths): string {
  if (place.kind === "keychain") return `keychain:${place.service}/${place.account}`;
  return `file:${isInside(place.path, [home]) ? `~${place.path.slice(home.length)}` : place.path}`;
}

/** Whether config.yaml has a key or another secret there. A file with problems may name it, too. */
export async function isNamed(
  { config: file, home }: Pick<Paths, "config" | "home">,
  place: KeyPlace,
): Promise<boolean> {
  const { config, found } = await loadConfig(file, { home, strict: false });
  if (config === null) return found;
  return secretSources(config).some((source) => isSameSource(source, place));
}

function keyFolder(paths: Paths): string {
  return paths.own[0] ?? dirname(paths.config);
}
