import { constants } from "node:fs";
import { lstat, open, readdir, realpath } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { settingsFiles, WRITABLE } from "../clients/settings-files.ts";
import { CLIENTS } from "../clients/table.ts";
import { errorMessage, hasCode } from "../core/errors.ts";
import { keyProblem, type Secret } from "../core/secret.ts";
import { withTimeout } from "../core/timeout.ts";
import { tokenShape } from "../core/token.ts";
import type { Finding } from "./findings.ts";
import { type KnownSetting, knownFields, knownVariables } from "./known-settings.ts";
import {
  type ExposedKey,
  type FoundSetting,
  type SettingValue,
  settingsFindings,
  type UnreadFile,
} from "./settings-findings.ts";

export interface ScanDeps {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly cwd: string;
  readonly platform: NodeJS.Platform;
  /** The keys that keybearer holds. */
  readonly keys: () => Iterable<Secret>;
  /** The ports on which it listens. */
  readonly ports: readonly number[];
  /** The origins of its gateways: https://gateway.example.com */
  readonly gateways: readonly string[];
  /** The names of the tools in config.yaml. */
  readonly tools: readonly string[];
  /** Variables from which config.yaml takes keys, so a key belongs there. */
  readonly sources: readonly string[];
}

/**
 * Searches the environment, start-up files and known clients' settings for what would send requests past keybearer or with
 * another account, and for exposed keys that keybearer holds. Reports names and places only, never a value. Changes nothing
 * and never rejects: a file that cannot be read is a finding, too.
 */
export async function scanSettings(deps: ScanDeps): Promise<Finding[]> {
  const { env, home, tools } = deps;
  const keys = [...deps.keys()];
  const variables = knownVariables();
  const exposed = exposedInEnvironment(deps, keys, variables);
  const found = settingsInEnvironment(variables, deps).filter(
    ({ setting }) => setting.role !== "key" || !isExposed(env[setting.name], keys),
  );
  const unread: UnreadFile[] = [];
  let read = 0;
  // One at a time: most do not exist, and a slow disk gets no queue.
  for (const { path, client } of await filesToScan(deps)) {
    const file = await readSettingsFile(path);
    if (file === null) continue;
    if (!file.ok) {
      unread.push({ path, problem: file.problem });
      continue;
    }
    read += 1;
    const known = client === null ? variables : knownFields(client, variables);
    const keyLines = linesWithKey(file.text, keys);
    exposed.push(...keyLines.map((line) => ({ name: null, path, line, client })));
    for (const { setting, value, line } of settingsIn(file.text, known, deps, client === null)) {
      // A key of ours is reported as exposed, not as another key.
      if (setting.role === "key" && keyLines.includes(line)) continue;
      found.push({ setting, value, path, line, client });
    }
  }
  return settingsFindings({ found, exposed, unread, read, home, tools });
}

/** Where the addresses of keybearer and of its gateways appear. */
type Addresses = Pick<ScanDeps, "ports" | "gateways">;

/**
 * Credentials in the environment and in start-up files that this client reads, and that are not the token in `tokenVariable`:
 * for `use --write`, which does not change them.
 */
export async function secondCredentials(
  client: string,
  tokenVariable: string | null,
  deps: Pick<ScanDeps, "env" | "home" | "cwd" | "platform">,
): Promise<FoundSetting[]> {
  const variables = knownVariables().filter(
    ({ role, clients }) => role === "key" && clients.includes(client),
  );
  const addresses: Addresses = { ports: [], gateways: [] };
  const found = settingsInEnvironment(variables, { ...addresses, env: deps.env });
  for (const { path, client: owner } of await filesToScan(deps)) {
    const file = owner === null ? await readSettingsFile(path) : null;
    if (!file?.ok) continue;
    const inFile = settingsIn(file.text, variables, addresses, true);
    found.push(...inFile.map((each) => ({ ...each, path, client: null })));
  }
  return found.filter(({ setting, value }) => value !== "token" || setting.name !== tokenVariable);
}

function settingsInEnvironment(
  variables: readonly KnownSetting[],
  deps: Addresses & Pick<ScanDeps, "env">,
): FoundSetting[] {
  const { env } = deps;
  const found: FoundSetting[] = [];
  for (const setting of variables) {
    const text = env[setting.name]?.trim() ?? "";
    const value = text === "" ? null : settingValue(text, setting, deps, true);
    if (value !== null) found.push({ setting, value, path: null, line: null, client: null });
  }
  return found;
}

/** Also in variables that no known client reads: every program that is started gets them. */
function exposedInEnvironment(
  { env, sources }: ScanDeps,
  keys: readonly Secret[],
  variables: readonly KnownSetting[],
): ExposedKey[] {
  return Object.keys(env)
    .filter((name) => isExposed(env[name], keys))
    .filter((name) => !sources.includes(name) || variables.some((variable) => variable.name === name))
    .map((name) => ({ name, path: null, line: null, client: null }));
}

function isExposed(text: string | undefined, keys: readonly Secret[]): boolean {
  return text !== undefined && keys.some((key) => key.isIn(text));
}

function linesWithKey(text: string, keys: readonly Secret[]): number[] {
  const present = keys.filter((key) => key.isIn(text));
  if (present.length === 0) return [];
  return text.split("\n").flatMap((line, at) => (isExposed(line, present) ? [at + 1] : []));
}

// Which files to read.

const START_UP_FILES = [
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

/** Folders in which every file with this ending counts. */
const FOLDERS = [
  { folder: ".config/fish/conf.d", ending: ".fish" },
  { folder: ".config/environment.d", ending: ".conf" },
  { folder: ".config/systemd/user", ending: ".service" },
];
const MAC_FOLDERS = [{ folder: "Library/LaunchAgents", ending: ".plist" }];

/** Where clients store what was typed into them, beside the files that the table of clients names. */
const MORE_CLIENT_FILES: readonly (readonly [client: string, path: string])[] = [
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

/** In the current folder: a project's settings win over the user's. */
const PROJECT_FILES: readonly (readonly [client: string | null, path: string])[] = [
  [null, ".env"],
  [null, ".env.local"],
  ["claude-code", ".claude/settings.json"],
  ["claude-code", ".claude/settings.local.json"],
  ["opencode", "opencode.json"],
  ["aider", ".aider.conf.yml"],
];

interface SettingsFile {
  readonly path: string;
  /** Whose file it is; null: a shell's or the session's, so every program's. */
  readonly client: string | null;
}

async function filesToScan(
  deps: Pick<ScanDeps, "env" | "home" | "cwd" | "platform">,
): Promise<SettingsFile[]> {
  const { env, home, cwd, platform } = deps;
  const configHome = env.XDG_CONFIG_HOME;
  const inHome = (path: string) =>
    path.startsWith(".config/") && configHome !== undefined && isAbsolute(configHome)
      ? join(configHome, path.slice(".config/".length))
      : join(home, path);
  // By path, because several lists name the same file: the first one decides whose it is.
  const files = new Map<string, string | null>();
  const add = (path: string, client: string | null) => {
    if (!files.has(path)) files.set(path, client);
  };
  for (const path of START_UP_FILES) add(inHome(path), null);
  for (const { folder, ending } of platform === "darwin" ? [...FOLDERS, ...MAC_FOLDERS] : FOLDERS) {
    for (const path of await filesIn(inHome(folder), ending)) add(path, null);
  }
  for (const client of WRITABLE) {
    for (const path of settingsFiles(client, deps)) add(path, client);
  }
  for (const { id, setups } of CLIENTS) {
    for (const step of setups.flat())
      if (step.kind === "file" && step.path.startsWith("~/")) add(inHome(step.path.slice(2)), id);
  }
  for (const [client, path] of MORE_CLIENT_FILES) add(inHome(path), client);
  for (const [client, path] of PROJECT_FILES) add(join(cwd, path), client);
  return [...files].map(([path, client]) => ({ path, client }));
}

const MAX_FILES_IN_FOLDER = 50;

async function filesIn(folder: string, ending: string): Promise<string[]> {
  const names = await readdir(folder).catch(() => []);
  return names
    .filter((name) => name.endsWith(ending))
    .toSorted()
    .slice(0, MAX_FILES_IN_FOLDER)
    .map((name) => join(folder, name));
}

const MAX_BYTES = 1_000_000;

/** null: there is no such file. */
async function readSettingsFile(
  path: string,
): Promise<
  { readonly ok: true; readonly text: string } | { readonly ok: false; readonly problem: string } | null
> {
  try {
    const target = await realpath(path);
    // Checked before opening: opening alone has an effect on some devices.
    const before = await lstat(target);
    if (!before.isFile()) return { ok: false, problem: "is not a file" };
    if (before.uid !== (process.getuid?.() ?? before.uid))
      return { ok: false, problem: "belongs to another user" };
    const handle = await open(
      target,
      constants.O_RDONLY | constants.O_NONBLOCK | (constants.O_NOFOLLOW ?? 0),
    );
    try {
      const stat = await handle.stat();
      if (!stat.isFile() || stat.uid !== before.uid)
        return { ok: false, problem: "was replaced while it was read" };
      if (stat.size > MAX_BYTES) return { ok: false, problem: "is larger than 1 MB" };
      return { ok: true, text: (await handle.readFile()).toString("utf8") };
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return null;
    return { ok: false, problem: hasCode(error, "EACCES") ? "may not be read" : errorMessage(error) };
  }
}

// Settings in a file's text.

/** Everything is bounded: a file can be hostile, and an unclosed quote must not be searched to the end each time. */
const VALUE = String.raw`("(?:[^"\\\n]|\\.){0,1000}"|'[^'\n]{0,1000}'|[^\s,;}\]#]{1,1000})`;
const GAP = String.raw`[ \t]{0,20}`;

/**
 * Finds settings by name in shell, fish, PowerShell, JSON with comments, TOML, YAML and property lists. The text is searched,
 * not parsed: a file that its own program cannot parse counts as well, and the user needs the line number.
 */
function settingsIn(
  text: string,
  known: readonly KnownSetting[],
  addresses: Addresses,
  isShell: boolean,
): { readonly setting: KnownSetting; readonly value: SettingValue; readonly line: number }[] {
  const byName = new Map(known.map((setting) => [setting.name, setting]));
  const names = known.map(({ name }) => name.replaceAll("-", "\\-")).join("|");
  const patterns = [
    String.raw`(?<![\w-])(["']?)(${names})\1${GAP}[:=]${GAP}${VALUE}`,
    String.raw`(\bset) ${GAP}(?:-\S{1,30} ${GAP}){0,5}(${names}) ${GAP}${VALUE}`,
    String.raw`(<key>)(${names})</key>\s{0,100}<string>([^<\n]{0,1000})</string>`,
  ];
  const matches = patterns
    .flatMap((pattern) => [...text.matchAll(new RegExp(pattern, "g"))])
    .toSorted((a, b) => a.index - b.index);
  const found = [];
  // Matches are in order, so no part of the text is counted twice.
  let line = 1;
  let lineStart = 0;
  for (const match of matches) {
    for (let next = text.indexOf("\n", lineStart); next !== -1 && next < match.index; ) {
      line += 1;
      lineStart = next + 1;
      next = text.indexOf("\n", lineStart);
    }
    const setting = byName.get(match[2] ?? "");
    if (setting === undefined || isComment(text.slice(lineStart, lineStart + 100))) continue;
    const value = settingValue(unquoted(match[3] ?? ""), setting, addresses, isShell);
    if (value !== null) found.push({ setting, value, line });
  }
  return found;
}

function isComment(line: string): boolean {
  return /^\s*(?:#|\/\/|;|<!--)/.test(line);
}

function unquoted(text: string): string {
  return text.replace(/^["']|["']$/g, "").trim();
}

/** null: it sets nothing that matters. */
function settingValue(
  text: string,
  { role }: KnownSetting,
  addresses: Addresses,
  isShell: boolean,
): SettingValue | null {
  if (role === "cloud") return /^(?:0|false|no|)$/i.test(text) ? null : "other";
  if (role === "helper") return text === "" ? null : "other";
  if (role === "address") return addressValue(text, addresses);
  const shape = tokenShape(text);
  if (shape === "complete") return "token";
  if (shape === "incomplete") return keyProblem(text) === null ? "incomplete-token" : null;
  // `export X=$(pass show x)` sets some key; in a client's own file it only says where the key is.
  if (/^\$\(|^`/.test(text)) return isShell ? "other" : null;
  if (/^\$|^\{|^op:\/\/|^env:/i.test(text)) return null;
  return keyProblem(text) === null ? "other" : null;
}

/** Another server on this machine, such as a local model, has no account that could be the wrong one. */
function addressValue(text: string, { ports, gateways }: Addresses): SettingValue | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) return null;
  if (gateways.includes(url.origin)) return "gateway";
  if (!/^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(url.hostname)) return "other";
  const port = url.port === "" ? (url.protocol === "http:" ? 80 : 443) : Number(url.port);
  return ports.includes(port) ? "keybearer" : null;
}

const SCAN_TIMEOUT_MS = 10_000;

/** A network folder that hangs must not hold back the other findings. */
export function scanOrProblem(
  scanning: Promise<readonly Finding[]>,
  timeout: number = SCAN_TIMEOUT_MS,
): Promise<readonly Finding[]> {
  const safe = scanning.catch((error) => [notScanned(errorMessage(error))]);
  return withTimeout(safe, timeout, [notScanned("it took too long")]);
}

function notScanned(problem: string): Finding {
  const what = `other settings could not be checked: ${problem}`;
  return { id: "elsewhere", level: "warning", about: "this machine", what, next: null };
}
