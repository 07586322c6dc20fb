import { isAbsolute, join, resolve } from "node:path";
import type { Writable } from "./settings.ts";

/** What decides where a client looks for its settings. */
export interface Surroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** A relative OPENCODE_CONFIG counts from here. */
  readonly cwd: string;
}

/**
 * The files in which a client looks for user-level settings, the one that counts most first. The first that is there
 * is written; where none is, the last is made.
 */
export function settingsFiles(
  client: Writable,
  { env, home, cwd }: Surroundings,
): readonly [string, ...string[]] {
  const named = (name: string) => env[name] || null;
  if (client === "claude-code") {
    return [join(named("CLAUDE_CONFIG_DIR") ?? join(home, ".claude"), "settings.json")];
  }
  if (client === "codex") return [join(named("CODEX_HOME") ?? join(home, ".codex"), "config.toml")];
  const own = named("OPENCODE_CONFIG");
  if (own !== null) return [resolve(cwd, own)];
  // XDG says that a relative path in its variables is to be ignored.
  const xdg = named("XDG_CONFIG_HOME");
  const folder = join(xdg !== null && isAbsolute(xdg) ? xdg : join(home, ".config"), "opencode");
  // opencode reads both, and what the second one says wins.
  return [join(folder, "opencode.jsonc"), join(folder, "opencode.json")];
}
