import { setKey } from "../config/edit-tools.ts";
import { parseConfig } from "../config/parse.ts";
import { changeConfig } from "../config/save.ts";
import { describeSource, isSameSource, type Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { failed } from "../core/display.ts";
import type { Paths } from "../core/paths.ts";
import type { Secret } from "../core/secret.ts";
import { readKey } from "../keys/sources.ts";
import {
  forgetKey,
  freePlace,
  isNamed,
  isPlaceFor,
  type KeyPlace,
  ownPlace,
  type Store,
  sourceText,
  storeKey,
} from "../keys/stored-keys.ts";
import { Refused } from "./refused.ts";

/** Where the keys of tools are, and how a tool comes to use one. Methods throw Refused. */
export interface KeyStorage {
  /** Where keybearer stored the tool's key; null: it did not. */
  placeOf(tool: Tool): KeyPlace | null;
  /** Whether this is a place that keybearer makes for the tool's keys. */
  isPlaceFor(place: KeyPlace, tool: Tool): boolean;
  /** Whether keybearer stores keys there. */
  isOwn(place: KeyPlace): boolean;
  /** A free place for the tool's next key. */
  nextPlace(tool: Tool, store: Store): Promise<KeyPlace>;
  /** null: there is none. */
  read(place: KeyPlace): Promise<Secret | null>;
  write(place: KeyPlace, key: Secret): Promise<void>;
  /**
   * The tool uses the key at this place from its next request on.
   * @param before how its source was described until now: if it is another one meanwhile, nothing is changed
   */
  use(tool: string, place: KeyPlace, before: string): Promise<void>;
  /** Whether a tool has its key there. */
  isNamed(place: KeyPlace): Promise<boolean>;
  remove(place: KeyPlace): Promise<void>;
}

interface ConfigStorageDeps {
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly snapshot: () => Snapshot;
  readonly reload: { refresh(force: boolean): Promise<void>; takeKeys(): Promise<void> };
  readonly keyring: { rereadAt(place: KeyPlace): Promise<void> };
}

/** Keys in the keychain or in keybearer's own files, named in config.yaml. */
export class ConfigStorage implements KeyStorage {
  readonly #deps: ConfigStorageDeps;

  constructor(deps: ConfigStorageDeps) {
    this.#deps = deps;
  }

  placeOf({ key }: Tool): KeyPlace | null {
    return ownPlace(key, this.#deps.paths);
  }

  isPlaceFor(place: KeyPlace, tool: Tool): boolean {
    const { paths, snapshot } = this.#deps;
    return isPlaceFor(place, tool, snapshot().config.tools, paths);
  }

  isOwn(place: KeyPlace): boolean {
    return ownPlace(place, this.#deps.paths) !== null;
  }

  nextPlace({ name }: Tool, store: Store): Promise<KeyPlace> {
    const { paths, env, snapshot } = this.#deps;
    return freePlace({ store, tool: name, tools: snapshot().config.tools, paths, key: null, env });
  }

  async read(place: KeyPlace): Promise<Secret | null> {
    const { env, paths } = this.#deps;
    const found = await readKey(place, { env, home: paths.own, notKeys: paths.notKeys });
    if (found.ok) return found.key;
    if (found.absent === true) return null;
    throw new Refused(`the key in ${describeSource(place)} cannot be read: ${found.problem}`, found.next);
  }

  async write(place: KeyPlace, key: Secret): Promise<void> {
    const stored = await storeKey(place, key, { env: this.#deps.env });
    if (!stored.ok) throw new Refused(`the new key could not be stored: ${stored.problem}`, stored.next);
  }

  async use(tool: string, place: KeyPlace, before: string): Promise<void> {
    const { paths, reload, keyring } = this.#deps;
    const edited = await changeConfig(paths, (text) => {
      const current = parseConfig(text, paths.home).config?.tools[tool]?.key;
      if (current !== undefined && isSameSource(current, place)) return { ok: true, text };
      if (current !== undefined && describeSource(current) === before)
        return setKey(text, tool, sourceText(place, paths));
      const problem =
        current === undefined
          ? `config.yaml has problems, or no tool ${tool} any more`
          : `the key of ${tool} in config.yaml was changed in the meantime`;
      return failed(problem);
    });
    if (!edited.ok) throw new Refused(edited.problem, edited.next);
    await reload.refresh(false);
    // A keychain may answer later than a reload waits, and a place that was empty is not read again by itself.
    await keyring.rereadAt(place);
    await reload.takeKeys();
  }

  isNamed(place: KeyPlace): Promise<boolean> {
    return isNamed(this.#deps.paths, place);
  }

  async remove(place: KeyPlace): Promise<void> {
    const deleted = await forgetKey(place, { env: this.#deps.env });
    if (!deleted.ok)
      throw new Refused(
        `the key in ${describeSource(place)} was not deleted: ${deleted.problem}`,
        deleted.next,
      );
  }
}
