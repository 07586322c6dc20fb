import { basename, dirname, isAbsolute, join } from "node:path";

/* Where copies of a key stay behind. People do not edit these files, so a key found there needs a rotation. */

/** history: of a shell or another program with a prompt. session: of a client. switcher: another program's store of keys. */
export type TraceKind = "history" | "switcher" | "backup" | "git" | "session";

/** A file, or a folder with everything in it. It need not exist. */
export interface Place {
  readonly kind: TraceKind;
  readonly path: string;
  /** The names of the files that count in a folder; null: all. */
  readonly names: RegExp | null;
  /** Whether a folder's own folders count. */
  readonly isDeep: boolean;
  /** Files that are counted together; null: each is named by its path. */
  readonly group: Group | null;
  /** The file whose copies are searched for in the folder; null: none. */
  readonly copiesOf: string | null;
}

export interface Group {
  readonly one: string;
  readonly many: string;
}

export interface PlaceDeps {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly cwd: string;
  readonly platform: NodeJS.Platform;
  /** The settings files in which keys were found. */
  readonly files: readonly string[];
}

/** In the order in which they are searched: what is small and likely first, years of sessions last. */
export function tracePlaces(deps: PlaceDeps): Place[] {
  return [...histories(deps), ...switchers(deps), ...backups(deps), ...editors(deps), ...sessions(deps)];
}

interface Folders {
  readonly config: string;
  readonly data: string;
  readonly state: string;
  /** Of programs with windows: ~/.config, on a Mac ~/Library/Application Support. */
  readonly apps: string;
}

function foldersOf({ env, home, platform }: PlaceDeps): Folders {
  // The XDG specification says that a relative path is to be ignored.
  const xdg = (name: string, usual: string) => {
    const value = env[name] ?? "";
    return isAbsolute(value) ? value : join(home, usual);
  };
  const config = xdg("XDG_CONFIG_HOME", ".config");
  return {
    config,
    data: xdg("XDG_DATA_HOME", ".local/share"),
    state: xdg("XDG_STATE_HOME", ".local/state"),
    apps: platform === "darwin" ? join(home, "Library/Application Support") : config,
  };
}

function file(kind: TraceKind, path: string): Place {
  return { kind, path, names: null, isDeep: false, group: null, copiesOf: null };
}

function folder(kind: TraceKind, path: string, more: Partial<Place> = {}): Place {
  return { kind, path, names: null, isDeep: true, group: null, copiesOf: null, ...more };
}

function histories(deps: PlaceDeps): Place[] {
  const { env, home } = deps;
  const { config, data, state } = foldersOf(deps);
  const named = ["HISTFILE", "PYTHON_HISTORY", "NODE_REPL_HISTORY"]
    .map((name) => env[name] ?? "")
    .filter(isAbsolute);
  const inHome = [
    ".bash_history",
    ".bash_eternal_history",
    ".zsh_history",
    ".zhistory",
    ".histfile",
    ".sh_history",
    ".ksh_history",
    ".history",
    ".python_history",
    ".node_repl_history",
    ".ipython/profile_default/history.sqlite",
    ".viminfo",
  ].map((name) => join(home, name));
  const zsh = isAbsolute(env.ZDOTDIR ?? "") ? [".zsh_history", ".zhistory"] : [];
  const zshFiles = zsh.map((name) => join(env.ZDOTDIR ?? "", name));
  return [
    ...[...named, ...inHome, ...zshFiles].map((path) => file("history", path)),
    // On macOS, one for each terminal.
    folder("history", join(home, ".bash_sessions"), { names: /\.history(?:new)?$/ }),
    folder("history", join(home, ".zsh_sessions"), { names: /\.history(?:new)?$/ }),
    folder("history", join(data, "fish"), { names: /_history$/ }),
    folder("history", join(data, "atuin"), { names: /^history\.db/ }),
    folder("history", join(config, "nushell"), { names: /^history\./ }),
    folder("history", join(data, "powershell/PSReadLine")),
    folder("history", join(state, "nvim/shada")),
  ];
}

function switchers({ home }: PlaceDeps): Place[] {
  return [folder("switcher", join(home, ".cc-switch"))];
}

/** What editors, people and the clients themselves leave beside a settings file. */
function backups({ files, home }: PlaceDeps): Place[] {
  // Claude Code rewrites this one often, with a copy each time.
  const all = new Set([...files, join(home, ".claude.json")]);
  return [...all].map((path) =>
    folder("backup", dirname(path), { names: namesOfCopies(basename(path)), isDeep: false, copiesOf: path }),
  );
}

const COPY_ENDINGS = String.raw`(?:~|\.~\d+~|#|[._-]?(?:bak|backup|bk|old|orig|save|saved|sw[a-p]|un~|copy|disabled|rej|\d{6,}).*)`;

/** settings.json~, .settings.json.swp, #settings.json#, settings.json.bak-2026 */
function namesOfCopies(name: string): RegExp {
  const literal = name.replace(/[^\w]/g, String.raw`\$&`);
  return new RegExp(`^[.#]?${literal}${COPY_ENDINGS}$`, "i");
}

/** VS Code and its relatives keep the last 50 versions of every file. */
const VSCODE_FOLDERS: readonly (readonly [folder: string, name: string])[] = [
  ["Code", "VS Code"],
  ["Code - Insiders", "VS Code Insiders"],
  ["VSCodium", "VSCodium"],
  ["Cursor", "Cursor"],
  ["Windsurf", "Windsurf"],
];

function editors(deps: PlaceDeps): Place[] {
  const { home } = deps;
  const { apps, state } = foldersOf(deps);
  return [
    ...VSCODE_FOLDERS.map(([name, editor]) =>
      folder("backup", join(apps, name, "User/History"), {
        group: {
          one: `file in the local history of ${editor}`,
          many: `files in the local history of ${editor}`,
        },
      }),
    ),
    ...[".vim/backup", ".vim/swap", ".vim/undo", ".emacs.d/backups", ".emacs.d/auto-save-list"].map((path) =>
      folder("backup", join(home, path)),
    ),
    ...["swap", "undo", "backup"].map((name) => folder("backup", join(state, "nvim", name))),
  ];
}

function logsOf(client: string): Group {
  return { one: `session log of ${client}`, many: `session logs of ${client}` };
}

function sessions(deps: PlaceDeps): Place[] {
  const { env, home, cwd } = deps;
  const { config, data, state, apps } = foldersOf(deps);
  const claude = env.CLAUDE_CONFIG_DIR || join(home, ".claude");
  const codex = env.CODEX_HOME || join(home, ".codex");
  const logs = (client: string, base: string, names: readonly string[]) =>
    names.map((name) => folder("session", join(base, name), { group: logsOf(client) }));
  const aider = [".aider.chat.history.md", ".aider.input.history", ".aider.llm.history"];
  return [
    file("session", join(claude, "history.jsonl")),
    file("session", join(codex, "history.jsonl")),
    ...aider.flatMap((name) => [file("session", join(home, name)), file("session", join(cwd, name))]),
    ...logs("Claude Code", claude, [
      "projects",
      "shell-snapshots",
      "file-history",
      "paste-cache",
      "todos",
      "debug",
      "backups",
    ]),
    ...logs("Codex", codex, ["sessions", "archived_sessions", "shell_snapshots", "log"]),
    ...logs("opencode", join(data, "opencode"), ["storage", "tool-output", "log"]),
    folder("session", join(data, "opencode"), { names: /^opencode.*\.db/, isDeep: false }),
    ...logs("Kilo Code", join(data, "kilo"), ["storage", "tool-output", "log"]),
    folder("session", join(data, "kilo"), { names: /^(?:kilo|opencode).*\.db/, isDeep: false }),
    ...logs("Qwen Code", join(home, ".qwen"), ["tmp", "projects", "debug", "logs"]),
    ...logs("Gemini CLI", join(home, ".gemini"), ["tmp"]),
    ...logs("GitHub Copilot CLI", join(home, ".copilot"), [
      "session-state",
      "history-session-state",
      "command-history-state.json",
      "logs",
    ]),
    ...logs("Cline CLI", join(home, ".cline/data"), ["tasks", "sessions", "logs"]),
    ...logs("Continue", join(home, ".continue"), ["sessions", "dev_data", "logs"]),
    ...logs("pi", join(home, ".pi/agent"), ["sessions"]),
    ...logs("goose", data, ["goose/sessions"]),
    ...logs("goose", state, ["goose/logs"]),
    ...[config, apps].map((base) => file("session", join(base, "io.datasette.llm/logs.db"))),
  ];
}

/** Where people keep their start-up files under version control. */
export function dotfileFolders(deps: PlaceDeps): string[] {
  const { data } = foldersOf(deps);
  return [join(data, "chezmoi"), join(deps.home, "dotfiles"), join(deps.home, ".dotfiles")];
}
