import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Config } from "../../config/shape.ts";
import type { KeySource } from "../../key-source.ts";
import { readKey } from "../../keys/read.ts";
import { liesIn } from "../../keys/sources/file.ts";
import { type KeyPlace, keychainThere } from "../../keys/store.ts";
import type { Places } from "../../places.ts";
import { EXIT } from "../../start-failure.ts";
import type { Answers } from "../ask.ts";
import { stopped, told } from "./told.ts";

export type Store = KeyPlace["kind"];

export interface StoreOptions {
  readonly store?: string;
  readonly yes?: boolean;
}

/** Where a new key is to lie: as the person says, else in the keychain where there is one. null: told why not. */
export async function chooseStore(options: StoreOptions, person: Answers | null): Promise<Store | null> {
  if (options.store === "file") return "file";
  const { there, why } = await keychainThere({ env: process.env });
  switch (options.store) {
    case "keychain":
      if (there) return "keychain";
      return told(
        `${why ?? "there is no keychain here"} → --store file keeps it in a file of your own`,
        EXIT.failed,
      );
    case undefined:
      break;
    default:
      return told("--store takes keychain or file", EXIT.usage);
  }
  if (!there) return "file";
  if (person === null || options.yes) return "keychain";
  const answer = await person.plain("where to keep it, keychain or file [keychain]: ");
  if (answer === null) return stopped();
  const said = answer.trim().toLowerCase();
  if (said === "" || said === "keychain") return "keychain";
  if (said === "file") return "file";
  return chooseStore(options, person);
}

/**
 * A place that no tool's key has yet: <tool>, then <tool>-2. A new name each time, because what config.yaml does not
 * show is not seen to be reloaded. The names of other tools are theirs: without key: theirs lies under their name.
 */
export async function freePlace(
  store: Store,
  tool: string,
  config: Pick<Config, "tools">,
  places: Places,
): Promise<KeyPlace> {
  const folder = join(keyFolder(places), "keys");
  const others = Object.keys(config.tools).filter((name) => name !== tool);
  const sources = Object.values(config.tools).map(({ key }) => key);
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? tool : `${tool}-${number}`;
    const place: KeyPlace =
      store === "keychain"
        ? { kind: "keychain", service: "keybearer", account: name }
        : { kind: "file", path: join(folder, name) };
    if (others.includes(name) || sources.some((source) => isSameSource(source, place))) continue;
    if (!(await isTaken(place))) return place;
  }
}

async function isTaken(place: KeyPlace): Promise<boolean> {
  if (place.kind === "file") return existsSync(place.path);
  return (await readKey(place, { env: process.env })).ok;
}

/** The place of a tool's key, where keybearer put it and may take it away again; null: it is the person's own. */
export function ownPlace(source: KeySource, places: Places): KeyPlace | null {
  if (source.kind === "keychain") return source;
  if (source.kind !== "file" || !liesIn(source.path, places.own)) return null;
  // Only there does keybearer put keys: config.yaml itself lies in its folder, too.
  const ours =
    basename(dirname(source.path)) === "keys" && dirname(dirname(source.path)) === keyFolder(places);
  return ours ? source : null;
}

/** As config.yaml writes it: `~/` keeps it right when the home folder moves. */
export function sourceText(place: KeyPlace, { home }: Places): string {
  if (place.kind === "keychain") return `keychain:${place.service}/${place.account}`;
  return `file:${liesIn(place.path, [home]) ? `~${place.path.slice(home.length)}` : place.path}`;
}

export function isSameSource(one: KeySource, other: KeySource): boolean {
  if (one.kind === "literal" && other.kind === "literal") return one.secret.equals(other.secret);
  return one.kind !== "literal" && isDeepStrictEqual(one, other);
}

function keyFolder(places: Places): string {
  return places.own[0] ?? dirname(places.config);
}
