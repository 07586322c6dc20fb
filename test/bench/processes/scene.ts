import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Children } from "./children.ts";

/** Where a run takes place. */
export interface Scene {
  readonly children: Children;
  /** A temporary folder of this run, removed at its end. */
  readonly folder: string;
  /** Words for whoever waits. */
  readonly say: (words: string) => void;
}

/** The bench as it was built: its scripts are started from here. */
export function builtScript(name: string): string {
  return join(dirname(fileURLToPath(import.meta.url)), "..", name);
}

/** test/bench/ itself, where package.json and the rivals are: above .built/test/bench/processes/. */
export function benchFolder(): string {
  return join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..", "..");
}

export function projectFolder(): string {
  return join(benchFolder(), "..", "..");
}

/** Where a program lies that the machine may have. */
export function programPath(name: string, path: string, exists: (file: string) => boolean): string | null {
  // nginx lies in sbin, which is not in everybody's PATH.
  const folders = [...path.split(":"), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"];
  return folders.map((folder) => join(folder, name)).find(exists) ?? null;
}
