import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Config, KeySource } from "../../config/schema.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { isInside, readKey } from "../../keys/sources.ts";
import { type KeyPlace, keychainThere, whyNotStored } from "../../keys/store.ts";
import { canceled, failNull, notice } from "../ui/messages.ts";
import type { Prompter } from "../ui/prompts.ts";

export type Store = KeyPlace["kind"];

export interface StoreOptions {
  readonly store?: string;
  readonly yes?: boolean;
}

/**
 * Where a new key is to lie: as the person says, else where it lay before, else in the keychain where there is one.
 * Asked before the key, so that nobody types one for a keychain that does not take it. null: told why not.
 */
export async function chooseStore(
  options: StoreOptions,
  person: Prompter | null,
  before: Store | null = null,
): Promise<Store | null> {
  if (options.store !== undefined && options.store !== "file" && options.store !== "keychain")
    return failNull("--store takes keychain or file", EXIT.usage);
  const wish = options.store ?? before;
  if (wish === "file") return "file";
  const { there, why } = await keychainThere({ env: process.env });
  if (!there && wish === null) return "file";
  const asked = person !== null && !options.yes ? person : null;
  if (there && wish === null && asked !== null) return askStore(asked, "keychain");
  const fault = there ? await whyNotStored({ env: process.env }) : (why ?? "there is no keychain here");
  if (fault === null) return "keychain";
  if (asked !== null && options.store === undefined) {
    notice(fault);
    return askStore(asked, "file");
  }
  return failNull(
    `${fault} → --store file keeps the key in a file of your own\nnothing was changed`,
    EXIT.failed,
  );
}

/** Until it is a place that takes a key. */
async function askStore(person: Prompter, usual: Store): Promise<Store | null> {
  const answer = await person.text(`where to keep the key, keychain or file [${usual}]: `);
  if (answer === null) return canceled();
  const said = answer.trim().toLowerCase() || usual;
  if (said === "file") return "file";
  if (said !== "keychain") return askStore(person, usual);
  const fault = await whyNotStored({ env: process.env });
  if (fault === null) return "keychain";
  notice(fault);
  return askStore(person, "file");
}

/**
 * A place that no tool's key has yet: <tool>, then <tool>-2. A new name each time, because what config.yaml does not
 * show is not seen to be reloaded. The names of other tools are theirs: without key: theirs lies under their name. Where
 * this very key lies already and nobody names it, as after a command that was killed, that is its place.
 */
export async function freePlace(
  store: Store,
  tool: string,
  config: Pick<Config, "tools">,
  paths: Paths,
  key: Secret,
): Promise<KeyPlace> {
  const folder = join(keyFolder(paths), "keys");
  const others = Object.keys(config.tools).filter((name) => name !== tool);
  const sources = Object.values(config.tools).map(({ key }) => key);
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? tool : `${tool}-${number}`;
    const place: KeyPlace =
      store === "keychain"
        ? { kind: "keychain", service: "keybearer", account: name }
        : { kind: "file", path: join(folder, name) };
    if (others.includes(name) || sources.some((source) => isSameSource(source, place))) continue;
    if (!(await isTaken(place, key))) return place;
  }
}

async function isTaken(place: KeyPlace, key: Secret): Promise<boolean> {
  if (place.kind === "file" && !existsSync(place.path)) return false;
  const found = await readKey(place, { env: process.env });
  // A file that cannot be read is one all the same.
  return found.ok ? !found.key.equals(key) || found.warning !== null : place.kind === "file";
}

/** The place of a tool's key, where keybearer put it and may take it away again; null: it is the person's own. */
export function ownPlace(source: KeySource, paths: Paths): KeyPlace | null {
  if (source.kind === "keychain") return source;
  if (source.kind !== "file" || !isInside(source.path, paths.own)) return null;
  // Only there does keybearer put keys: config.yaml itself lies in its folder, too.
  const ours =
    basename(dirname(source.path)) === "keys" && dirname(dirname(source.path)) === keyFolder(paths);
  return ours ? source : null;
}

/** As config.yaml writes it: `~/` keeps it right when the home folder moves. */
export function sourceText(place: KeyPlace, { home }: Paths): string {
  if (place.kind === "keychain") return `keychain:${place.service}/${place.account}`;
  return `file:${isInside(place.path, [home]) ? `~${place.path.slice(home.length)}` : place.path}`;
}

export function isSameSource(one: KeySource, other: KeySource): boolean {
  if (one.kind === "literal" && other.kind === "literal") return one.secret.equals(other.secret);
  return one.kind !== "literal" && isDeepStrictEqual(one, other);
}

function keyFolder(paths: Paths): string {
  return paths.own[0] ?? dirname(paths.config);
}
