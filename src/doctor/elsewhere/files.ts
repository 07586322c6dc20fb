import { constants } from "node:fs";
import { lstat, open, readdir, realpath } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { settingsFiles, WRITABLE } from "../../clients/settings-files.ts";
import { CLIENTS } from "../../clients/table.ts";
import { errorMessage, hasCode } from "../../core/errors.ts";

/** One file that may hold settings. */
export interface Place {
  readonly path: string;
  /** Whose file it is; null: of a shell or of the session, so of every program. */
  readonly client: string | null;
}

export interface Around {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly cwd: string;
  readonly platform: NodeJS.Platform;
}

const START_UP = [
  ".profile",
  ".bashrc",
  ".bash_profile",
  ".bash_login",
  ".bash_aliases",
  ".zshrc",
  ".zshenv",
  ".zprofile",
  ".zlogin",
  ".kshrc",
  ".xprofile",
  ".xsessionrc",
  ".pam_environment",
  ".config/fish/config.fish",
  ".config/fish/fish_variables",
  ".config/nushell/env.nu",
  ".config/nushell/config.nu",
  ".config/powershell/profile.ps1",
  ".config/powershell/Microsoft.PowerShell_profile.ps1",
  ".config/systemd/user.conf",
];

/** Folders of which every file counts. */
const FOLDERS = [
  { folder: ".config/fish/conf.d", ending: ".fish" },
  { folder: ".config/environment.d", ending: ".conf" },
  { folder: ".config/systemd/user", ending: ".service" },
];
const MAC_FOLDERS = [{ folder: "Library/LaunchAgents", ending: ".plist" }];

/** Beside the files that the table of clients names: where clients keep what was typed into them. */
const ALSO: readonly (readonly [client: string, path: string])[] = [
  ["claude-code", ".claude/settings.local.json"],
  ["claude-code", ".claude.json"],
  ["codex", ".codex/auth.json"],
  ["codex", ".codex/.env"],
  ["opencode", ".local/share/opencode/auth.json"],
  ["gemini-cli", ".gemini/.env"],
  ["qwen-code", ".qwen/.env"],
  ["cline-cli", ".cline/data/globalState.json"],
  ["cline-cli", ".cline/data/secrets.json"],
  ["continue", ".continue/config.json"],
  ["continue", ".continue/.env"],
  ["goose", ".config/goose/config.yaml"],
  ["goose", ".config/goose/secrets.yaml"],
  ["crush", ".local/share/crush/crush.json"],
  ["llm", ".config/io.datasette.llm/keys.json"],
  ["llm", ".config/io.datasette.llm/extra-openai-models.yaml"],
];

/** In the folder where doctor is asked: a project's own settings win over the person's. */
const HERE: readonly (readonly [client: string | null, path: string])[] = [
  [null, ".env"],
  [null, ".env.local"],
  ["claude-code", ".claude/settings.json"],
  ["claude-code", ".claude/settings.local.json"],
  ["opencode", "opencode.json"],
  ["aider", ".aider.conf.yml"],
];

const MOST_IN_FOLDER = 50;

/** Every file to look at, each once. */
export async function placesToLook(around: Around): Promise<Place[]> {
  const { env, home, cwd, platform } = around;
  const config = env.XDG_CONFIG_HOME;
  const below = (path: string) =>
    path.startsWith(".config/") && config !== undefined && isAbsolute(config)
      ? join(config, path.slice(".config/".length))
      : join(home, path);
  const named = CLIENTS.flatMap(({ id, setups }) =>
    setups
      .flat()
      .flatMap((part) =>
        part.kind === "file" && part.path.startsWith("~/") ? [[id, part.path] as const] : [],
      ),
  );
  const folders = [...FOLDERS, ...(platform === "darwin" ? MAC_FOLDERS : [])];
  const listed = await Promise.all(folders.map(({ folder, ending }) => filesIn(below(folder), ending)));
  const all: Place[] = [
    ...[...START_UP.map(below), ...listed.flat()].map((path) => ({ path, client: null })),
    ...WRITABLE.flatMap((id) => settingsFiles(id, around).map((path) => ({ path, client: id }))),
    ...named.map(([client, path]) => ({ client, path: below(path.slice(2)) })),
    ...ALSO.map(([client, path]) => ({ client, path: below(path) })),
    ...HERE.map(([client, path]) => ({ client, path: join(cwd, path) })),
  ];
  return all.filter(({ path }, at) => all.findIndex((other) => other.path === path) === at);
}

async function filesIn(folder: string, ending: string): Promise<string[]> {
  const names = await readdir(folder).catch(() => []);
  return names
    .filter((name) => name.endsWith(ending))
    .toSorted()
    .slice(0, MOST_IN_FOLDER)
    .map((name) => join(folder, name));
}

export type Text = { readonly text: string } | { readonly why: string } | null;

const MOST_BYTES = 1_000_000;

/** null: there is no such file. */
export async function textOf(path: string): Promise<Text> {
  try {
    const target = await realpath(path);
    // Before it is opened: opening alone already does something to some devices.
    const before = await lstat(target);
    if (!before.isFile()) return { why: "is not a file" };
    if (before.uid !== (process.getuid?.() ?? before.uid)) return { why: "belongs to another user" };
    const handle = await open(
      target,
      constants.O_RDONLY | constants.O_NONBLOCK | (constants.O_NOFOLLOW ?? 0),
    );
    try {
      const stat = await handle.stat();
      if (!stat.isFile() || stat.uid !== before.uid) return { why: "changed meanwhile" };
      if (stat.size > MOST_BYTES) return { why: "is larger than 1 MB" };
      return { text: (await handle.readFile()).toString("utf8") };
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return null;
    return { why: hasCode(error, "EACCES") ? "may not be read" : errorMessage(error) };
  }
}
