import { resolve } from "node:path";
import type { KeySource } from "../config/schema.ts";
import { Secret } from "../core/secret.ts";
import { liesIn } from "./sources/file.ts";

/** Under which digests a tool and its source are pinned. Digests, because an argument may hold what it should not. */
interface Pinned {
  readonly name: string;
  readonly source: KeySource;
  readonly home: readonly string[];
}

/** null: the source needs no yes. The exact argv, the variable, or the path as it is written, made straight. */
export function sourceId({ source, home }: Pinned, salt: string): string | null {
  if (source.kind === "command") return digest(salt, "command", ...source.argv);
  if (source.kind === "env") return digest(salt, "env", source.name);
  if (source.kind !== "file" || liesIn(source.path, home)) return null;
  return digest(salt, "file", resolve(source.path));
}

/** The tool by its name, and its source where that needs no yes. A literal is nowhere but in the tool itself. */
export function useIds({ name, source }: Pinned, salt: string): string[] {
  const tool = digest(salt, "tool", name);
  switch (source.kind) {
    case "env":
      return [tool, digest(salt, "env", source.name)];
    case "file":
      return [tool, digest(salt, "file", resolve(source.path))];
    case "keychain":
      return [tool, digest(salt, "keychain", source.service, source.account)];
    case "command":
    case "literal":
      return [tool];
  }
}

/** As a list in JSON, so that no two argv are one. */
function digest(salt: string, ...parts: readonly string[]): string {
  return new Secret(JSON.stringify(parts)).digest(salt);
}
