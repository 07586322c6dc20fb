import { existsSync, readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import {
  ANY_NAME,
  type ClientDescription,
  clientSettings,
  described,
  describedClient,
  field,
  folderFrom,
  itemsAt,
  keyField,
  projectFolders,
  type Surroundings,
  setAll,
  textAt,
  type Wanted,
} from "../description.ts";
import { formatFor, type Path } from "../format.ts";
import { smallModel } from "../snippets.ts";
import { mcpKeys } from "./mcp.ts";

const SENT_TOO = "Claude Code sends it beside the token, and keybearer refuses that (foreign-key)";
const OTHER_CLOUD = "with it Claude Code ignores ANTHROPIC_BASE_URL";
const CONFLICTS: readonly { readonly path: Path; readonly problem: string }[] = [
  { path: ["env", "ANTHROPIC_API_KEY"], problem: SENT_TOO },
  {
    path: ["apiKeyHelper"],
    problem: "Claude Code sends its output beside the token, and keybearer refuses that (foreign-key)",
  },
  { path: ["env", "CLAUDE_CODE_USE_BEDROCK"], problem: OTHER_CLOUD },
  { path: ["env", "CLAUDE_CODE_USE_VERTEX"], problem: OTHER_CLOUD },
  { path: ["env", "CLAUDE_CODE_USE_FOUNDRY"], problem: OTHER_CLOUD },
];

/** What its Read tool may not open. */
const DENIED: Path = ["permissions", "deny"];
/** What its sandbox hides from commands. */
const HIDDEN: Path = ["sandbox", "credentials", "files"];

function claudeFolder(where: Surroundings): string {
  return folderFrom(where.env.CLAUDE_CONFIG_DIR, join(where.home, ".claude"), where);
}

const { at, set } = formatFor("json");

const SETTINGS = clientSettings({
  files: (where) => [join(claudeFolder(where), "settings.json")],
  // Claude Code does not read a file with comments.
  format: "json",
  fields: [
    field(["env", "ANTHROPIC_BASE_URL"], "address"),
    field(["env", "ANTHROPIC_AUTH_TOKEN"], "key"),
    field(["env", "ANTHROPIC_MODEL"]),
    field(["env", "ANTHROPIC_DEFAULT_HAIKU_MODEL"]),
    field([...DENIED, ANY_NAME]),
    field([...HIDDEN, ANY_NAME, "path"]),
    field([...HIDDEN, ANY_NAME, "mode"]),
    ...CONFLICTS.map(({ path }) => field(path, path.at(-1) === "ANTHROPIC_API_KEY" ? "key" : "other")),
  ],
  tokenIn: (text) => textAt("json", text, ["env", "ANTHROPIC_AUTH_TOKEN"]),
  merge(text, target) {
    const { origin, token, model } = target;
    const settings: Wanted[] = [
      [["env", "ANTHROPIC_BASE_URL"], origin],
      // Not ANTHROPIC_API_KEY: Claude Code asks the user to approve a new one.
      [["env", "ANTHROPIC_AUTH_TOKEN"], token],
    ];
    if (model !== null) settings.push([["env", "ANTHROPIC_MODEL"], model]);
    const small = smallModel(target);
    if (small !== null) settings.push([["env", "ANTHROPIC_DEFAULT_HAIKU_MODEL"], small]);
    return setAll("json", text, settings);
  },
  conflicts: (text) =>
    CONFLICTS.filter(({ path }) => at(text, path) !== undefined).map(({ path, problem }) => ({
      name: String(path.at(-1)),
      problem,
      remove: (current) => set(current, path, undefined),
    })),
  offers(text, folders, where) {
    const version = installedVersion(where);
    if (version === null || version.localeCompare(OLDEST_WITH_DENY, "en", { numeric: true }) < 0) return null;
    const missing = denyEntries(text, folders, where.home);
    if (missing.length === 0) return null;
    const isOn = at(text, ["sandbox", "enabled"]) === true;
    return {
      question: "keep its commands and its Read tool from keybearer's folders as well?",
      note: isOn ? null : "sandbox.enabled is not set, so its commands can still read keybearer's folders",
      add: (current) => setAll("json", current, missing),
    };
  },
  removed: (before, after) =>
    CONFLICTS.filter(({ path }) => at(before, path) !== undefined && at(after, path) === undefined).map(
      ({ path }) => path.join("."),
    ),
});

/** What is missing of the entries that deny these folders, at the ends of their lists. */
function denyEntries(text: string, folders: readonly string[], home: string): Wanted[] {
  const denied = at(text, DENIED);
  const rules: readonly unknown[] = Array.isArray(denied) ? denied : [];
  const hidden = itemsAt("json", text, HIDDEN);
  const shown = folders.map((folder) =>
    folder.startsWith(`${home}/`) ? `~${folder.slice(home.length)}` : folder,
  );
  // A rule that begins with one slash is relative to the settings.
  const newRules = shown
    .map((folder) => `Read(${folder.startsWith("/") ? "/" : ""}${folder}/**)`)
    .filter((rule) => !rules.includes(rule));
  const newHidden = shown.filter(
    (folder) => !hidden.some(({ path, mode }) => path === folder && mode === "deny"),
  );
  return [
    ...newRules.map((rule, index): Wanted => [[...DENIED, rules.length + index], rule]),
    ...newHidden.flatMap((folder, index): Wanted[] => [
      [[...HIDDEN, hidden.length + index, "path"], folder],
      [[...HIDDEN, hidden.length + index, "mode"], "deny"],
    ]),
  ];
}

/** The oldest one in which these entries were tried. */
const OLDEST_WITH_DENY = "2.1.197";

/** By where its program is: npm's package, or the native installation. null: it is not in the PATH. */
function installedVersion({ env }: Surroundings): string | null {
  const folders = (env.PATH ?? "").split(":").filter((folder) => folder.startsWith("/"));
  const command = folders.map((folder) => join(folder, "claude")).find((file) => existsSync(file));
  if (command === undefined) return null;
  const file = realpathSync(command);
  const native = /\/claude\/versions\/(\d+\.\d+\.\d+)$/.exec(file)?.[1];
  if (native !== undefined) return native;
  const folder = /^.*\/node_modules\/@anthropic-ai\/claude-code(?=\/)/.exec(file)?.[0];
  const manifest = folder === undefined ? null : join(folder, "package.json");
  if (manifest === null || !existsSync(manifest)) return null;
  return textAt("json", readFileSync(manifest, "utf8"), ["version"]);
}

/** A helper that holds the key itself: echo sk-…, printf %s 'sk-…'. */
const LITERAL_HELPER =
  /^(\s*(?:echo|printf)\s+(?:-n\s+|['"]?%s(?:\\n)?['"]?\s+)?['"]?)([^\s'"`$\\|;&<>(){}]+)(['"]?\s*)$/;

const IN_SETTINGS = {
  keys: [
    keyField(["apiKeyHelper"], {
      address: ["env", "ANTHROPIC_BASE_URL"],
      builtIn: "https://api.anthropic.com",
      addressVariables: ["ANTHROPIC_BASE_URL"],
      base: "root",
      within: LITERAL_HELPER,
      isCommand: true,
      // With the token in it, every start would print the token in a list of processes.
      move: "rewrite",
    }),
  ],
  variables: ["env"],
};

const MANAGED =
  "the administrator of this machine wrote it, and it wins over your own settings: ask them to remove the key";
const STATE =
  "Claude Code writes this file while it runs. type /logout in it, or close it and delete the key there; a key below mcpServers belongs to that server";

/** Claude Code. Settings of a project win over the user's, local ones over shared ones. */
export const CLAUDE_CODE: ClientDescription = describedClient(
  "claude-code",
  (where) => [
    described(join(claudeFolder(where), "settings.json"), "json", IN_SETTINGS),
    ...projectFolders(where).flatMap((folder) =>
      ["settings.json", "settings.local.json"].map((name) =>
        described(join(folder, ".claude", name), "json", { ...IN_SETTINGS, isProject: true }),
      ),
    ),
    described(join(managedFolder(where), "managed-settings.json"), "json", {
      ...IN_SETTINGS,
      byHand: MANAGED,
    }),
    described(stateFile(where), "json", {
      keys: [
        keyField(["primaryApiKey"], { builtIn: "https://api.anthropic.com", base: "root", move: "by hand" }),
        ...mcpKeys(["mcpServers"]),
        ...mcpKeys(["projects", ANY_NAME, "mcpServers"]),
      ],
      logins: [["oauthAccount"]],
      byHand: STATE,
    }),
    described(join(claudeFolder(where), ".credentials.json"), "json", {
      logins: [["claudeAiOauth", "accessToken"]],
      byHand: "it holds a login of Claude Code, which stays as it is",
    }),
  ],
  {
    writes: () => [SETTINGS],
    tokenVariable: "ANTHROPIC_AUTH_TOKEN",
    withVariable: (name) =>
      name === "ANTHROPIC_API_KEY" ? SENT_TOO : "a Claude Code that reads other settings uses it",
  },
);

function managedFolder({ platform }: Surroundings): string {
  return platform === "darwin" ? "/Library/Application Support/ClaudeCode" : "/etc/claude-code";
}

/** Beside the folder, or in it if a variable names the folder. */
function stateFile(where: Surroundings): string {
  return where.env.CLAUDE_CONFIG_DIR
    ? join(claudeFolder(where), ".claude.json")
    : join(where.home, ".claude.json");
}
