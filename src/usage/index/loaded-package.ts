import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { readStamp } from "./usage-index.ts";

export const REPLACED = "keybearer was replaced on disk → restart it";

/**
 * The files that a new thread would load, as they were when this process loaded its own. If an update replaces them, a thread
 * would bring a second SQLite into this process. When one of the two closes a file, the locks of the other are gone: POSIX
 * keeps locks by process (SQLite's "How To Corrupt", 2.2.1).
 */
export class LoadedPackage {
  readonly #stamps: ReadonlyMap<string, string | null>;

  constructor(worker: URL) {
    const require = createRequire(import.meta.url);
    const native = Object.keys(require.cache).filter((path) => path.endsWith(".node"));
    const paths = [require.resolve("libsql"), fileURLToPath(worker), ...native];
    this.#stamps = new Map(paths.map((path) => [path, readStamp(path)]));
  }

  isReplaced(): boolean {
    return [...this.#stamps].some(([path, stamp]) => readStamp(path) !== stamp);
  }
}
