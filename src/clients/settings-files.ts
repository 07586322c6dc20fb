import { isAbsolute, join, resolve } from "node:path";
import { editJson, type JsonDialect, type JsonValue, jsonAt } from "./json-edit.ts";
import { backgroundModel, smallModel, type Target } from "./snippets.ts";
import { cannotEdit, changeByHand, type Edited } from "./text-edit.ts";
import { editToml, removeEmptyTable, tomlAt } from "./toml-edit.ts";

/** The clients whose own settings file `use --write` can change. */
export const WRITABLE = ["claude-code", "codex", "opencode"] as const;
export type Writable = (typeof WRITABLE)[number];

/** What decides where a client looks for its settings. */
export interface Surroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** OPENCODE_CONFIG may be relative to it. */
  readonly cwd: string;
}

/** The files that may hold a client's user-level settings. The first one that exists is written, else the last one. */
export function settingsFiles(
  client: Writable,
  { env, home, cwd }: Surroundings,
): readonly [string, ...string[]] {
  switch (client) {
    case "claude-code":
      return [join(env.CLAUDE_CONFIG_DIR || join(home, ".claude"), "settings.json")];
    case "codex":
      return [join(env.CODEX_HOME || join(home, ".codex"), "config.toml")];
    case "opencode": {
      if (env.OPENCODE_CONFIG) return [resolve(cwd, env.OPENCODE_CONFIG)];
      // The XDG specification says that a relative path is to be ignored.
      const xdg = env.XDG_CONFIG_HOME ?? "";
      const folder = join(isAbsolute(xdg) ? xdg : join(home, ".config"), "opencode");
      // opencode reads both, and opencode.jsonc wins.
      return [join(folder, "opencode.jsonc"), join(folder, "opencode.json")];
    }
  }
}

export const ANY_NAME = "*";

/** A setting that merge() or a conflict may change. */
export interface Field {
  /** ANY_NAME stands for every name. */
  readonly path: readonly string[];
  /** A key may be a token, too. */
  readonly holds: "address" | "key" | "other";
}

/** How to read and change one client's settings. */
export interface ClientSettings {
  readonly dialect: JsonDialect | "toml";
  /** The settings that a write may change. No others are ever taken back. */
  readonly fields: readonly Field[];
  /** The content of a new file. */
  readonly empty: string;
  /** Whether the settings are useless without the name of a model. */
  readonly needsModel: boolean;
  tokenIn(text: string): string | null;
  /** The variable that the printed settings put the token into; null: they put it into a file. */
  readonly tokenVariable: string | null;
  merge(text: string, target: Target & { readonly token: string }): Edited;
  /** Settings that keep requests from reaching keybearer, or send a second credential. They can be removed. */
  conflicts(text: string): readonly Conflict[];
  /** The settings of the old text that are gone from the new one. */
  removed(before: string, after: string): readonly string[];
  /** What the client does with a credential that it finds in a variable beside the token in its settings. */
  withVariable(name: string): string;
  /** What else in the file overrides the settings. */
  notes(text: string): readonly string[];
}

export interface Conflict {
  readonly name: string;
  readonly problem: string;
  remove(text: string): Edited;
}

export function settingsOf(client: Writable): ClientSettings {
  return SETTINGS[client];
}

/** The value of a setting; an empty path is the whole file. undefined: there is none, or the text cannot be parsed. */
export function fieldAt({ dialect }: ClientSettings, text: string, path: readonly string[]): unknown {
  return dialect === "toml" ? tomlAt(text, path) : jsonAt(text, path, dialect);
}

/** Sets a setting, or removes it (undefined) together with what is in it. */
export function setField(
  { dialect }: ClientSettings,
  text: string,
  path: readonly string[],
  value: string | number | boolean | undefined,
): Edited {
  const [first, ...rest] = path;
  if (first === undefined) return cannotEdit("a setting has no name");
  if (dialect !== "toml") return editJson(text, [first, ...rest], value, dialect);
  const isTable = value === undefined && typeof tomlAt(text, path) === "object";
  if (isTable) return removeEmptyTable(text, path);
  if (typeof value === "number") return changeByHand(path.join("."));
  return editToml(text, path.slice(0, -1), path.at(-1) ?? "", value ?? null);
}

/** What a setting holds; null: no write of this client changes it. */
export function fieldKind({ fields }: ClientSettings, path: readonly string[]): Field["holds"] | null {
  const isSame = (field: Field) =>
    field.path.length === path.length &&
    field.path.every((name, depth) => name === path[depth] || name === ANY_NAME);
  return fields.find(isSame)?.holds ?? null;
}

function field(path: readonly string[], holds: Field["holds"] = "other"): Field {
  return { path, holds };
}

const SENT_TOO = "Claude Code sends it beside the token, and keybearer refuses that (foreign-key)";
const OTHER_CLOUD = "with it Claude Code ignores ANTHROPIC_BASE_URL";
const CLAUDE_CONFLICTS: readonly { readonly path: JsonPath; readonly problem: string }[] = [
  { path: ["env", "ANTHROPIC_API_KEY"], problem: SENT_TOO },
  {
    path: ["apiKeyHelper"],
    problem: "Claude Code sends its output beside the token, and keybearer refuses that (foreign-key)",
  },
  { path: ["env", "CLAUDE_CODE_USE_BEDROCK"], problem: OTHER_CLOUD },
  { path: ["env", "CLAUDE_CODE_USE_VERTEX"], problem: OTHER_CLOUD },
  { path: ["env", "CLAUDE_CODE_USE_FOUNDRY"], problem: OTHER_CLOUD },
];

const CLAUDE_CODE: ClientSettings = {
  dialect: "strict",
  fields: [
    field(["env", "ANTHROPIC_BASE_URL"], "address"),
    field(["env", "ANTHROPIC_AUTH_TOKEN"], "key"),
    field(["env", "ANTHROPIC_MODEL"]),
    field(["env", "ANTHROPIC_DEFAULT_HAIKU_MODEL"]),
    ...CLAUDE_CONFLICTS.map(({ path }) => field(path, path.at(-1) === "ANTHROPIC_API_KEY" ? "key" : "other")),
  ],
  empty: "{}\n",
  needsModel: false,
  tokenIn: (text) => stringOrNull(jsonAt(text, ["env", "ANTHROPIC_AUTH_TOKEN"], "strict")),
  tokenVariable: "ANTHROPIC_AUTH_TOKEN",
  merge(text, target) {
    const { origin, token, model } = target;
    const settings: JsonSetting[] = [
      [["env", "ANTHROPIC_BASE_URL"], origin],
      // Not ANTHROPIC_API_KEY: Claude Code asks the user to approve a new one.
      [["env", "ANTHROPIC_AUTH_TOKEN"], token],
    ];
    if (model !== null) settings.push([["env", "ANTHROPIC_MODEL"], model]);
    const small = smallModel(target);
    if (small !== null) settings.push([["env", "ANTHROPIC_DEFAULT_HAIKU_MODEL"], small]);
    return mergeJson(text, settings, "strict");
  },
  conflicts: (text) =>
    CLAUDE_CONFLICTS.filter(({ path }) => jsonAt(text, path, "strict") !== undefined).map(
      ({ path, problem }) => ({
        name: path.at(-1) ?? "",
        problem,
        remove: (current) => editJson(current, path, undefined, "strict"),
      }),
    ),
  removed: (before, after) =>
    CLAUDE_CONFLICTS.filter(
      ({ path }) =>
        jsonAt(before, path, "strict") !== undefined && jsonAt(after, path, "strict") === undefined,
    ).map(({ path }) => path.join(".")),
  withVariable: (name) =>
    name === "ANTHROPIC_API_KEY" ? SENT_TOO : "a Claude Code that reads other settings uses it",
  notes: () => [],
};

/** opencode allows comments and trailing commas in opencode.json, too. */
const OPENCODE: ClientSettings = {
  dialect: "comments",
  fields: [
    field(["provider", "keybearer", "npm"]),
    field(["provider", "keybearer", "name"]),
    field(["provider", "keybearer", "options", "baseURL"], "address"),
    field(["provider", "keybearer", "options", "apiKey"], "key"),
    field(["provider", "keybearer", "models", ANY_NAME]),
    field(["model"]),
    field(["small_model"]),
  ],
  empty: '{\n  "$schema": "https://opencode.ai/config.json"\n}\n',
  needsModel: true,
  tokenIn: (text) => stringOrNull(jsonAt(text, ["provider", "keybearer", "options", "apiKey"], "comments")),
  tokenVariable: null,
  merge(text, target) {
    const { origin, token, model } = target;
    const background = backgroundModel(target);
    const settings: JsonSetting[] = [
      [["provider", "keybearer", "npm"], "@ai-sdk/openai-compatible"],
      [["provider", "keybearer", "name"], "keybearer"],
      [["provider", "keybearer", "options", "baseURL"], `${origin}/v1`],
      [["provider", "keybearer", "options", "apiKey"], token],
    ];
    if (model !== null) {
      for (const name of new Set([model, background ?? model])) {
        const path: JsonPath = ["provider", "keybearer", "models", name];
        // A listed model keeps its options.
        if (jsonAt(text, path, "comments") === undefined) settings.push([path, {}]);
      }
      settings.push([["model"], `keybearer/${model}`]);
      settings.push([["small_model"], `keybearer/${background ?? model}`]);
    }
    return mergeJson(text, settings, "comments");
  },
  conflicts: () => [],
  removed: () => [],
  withVariable: () => "opencode offers the models of that provider as well, past keybearer",
  notes(text) {
    const disabled = jsonAt(text, ["disabled_providers"], "comments");
    const enabled = jsonAt(text, ["enabled_providers"], "comments");
    const notes: string[] = [];
    if (Array.isArray(disabled) && disabled.includes("keybearer")) {
      notes.push("disabled_providers names keybearer: remove it there");
    }
    if (Array.isArray(enabled) && !enabled.includes("keybearer")) {
      notes.push("enabled_providers does not name keybearer: add it there");
    }
    return notes;
  },
};

const CODEX_PROVIDER = ["model_providers", "keybearer"];
/** Settings of a provider that win over its token. */
const CODEX_OVERRIDES = ["env_key", "env_key_instructions", "requires_openai_auth"];

const CODEX: ClientSettings = {
  dialect: "toml",
  fields: [
    field(["model"]),
    field(["model_provider"]),
    field([...CODEX_PROVIDER, "name"]),
    field([...CODEX_PROVIDER, "base_url"], "address"),
    field([...CODEX_PROVIDER, "wire_api"]),
    field([...CODEX_PROVIDER, "experimental_bearer_token"], "key"),
    ...CODEX_OVERRIDES.map((name) => field([...CODEX_PROVIDER, name])),
  ],
  empty: "",
  needsModel: false,
  tokenIn: (text) => stringOrNull(tomlAt(text, [...CODEX_PROVIDER, "experimental_bearer_token"])),
  tokenVariable: "KEYBEARER_TOKEN",
  merge(text, { origin, token, model }) {
    if (tomlAt(text, [...CODEX_PROVIDER, "auth"]) !== undefined) {
      return cannotEdit(
        "[model_providers.keybearer.auth] overrides the token: delete it, then run this again",
      );
    }
    const settings: TomlSetting[] = [
      ...(model === null ? [] : [[[], "model", model] satisfies TomlSetting]),
      [[], "model_provider", "keybearer"],
      [CODEX_PROVIDER, "name", "keybearer"],
      [CODEX_PROVIDER, "base_url", `${origin}/v1`],
      [CODEX_PROVIDER, "wire_api", "responses"],
      // env_key would name a variable that a program started from a menu or an editor does not have, and it overrides
      // the token.
      [CODEX_PROVIDER, "experimental_bearer_token", token],
      ...CODEX_OVERRIDES.map((name): TomlSetting => [CODEX_PROVIDER, name, null]),
    ];
    let edited: Edited = { ok: true, text };
    for (const [table, name, value] of settings) {
      if (edited.ok) edited = editToml(edited.text, table, name, value);
    }
    return edited;
  },
  conflicts: () => [],
  removed: (before, after) =>
    CODEX_OVERRIDES.filter((name) => {
      const path = [...CODEX_PROVIDER, name];
      return tomlAt(before, path) !== undefined && tomlAt(after, path) === undefined;
    }).map((name) => [...CODEX_PROVIDER, name].join(".")),
  withVariable: () => "Codex uses it for every provider but keybearer",
  notes(text) {
    const profile = stringOrNull(tomlAt(text, ["profile"]));
    const provider =
      profile === null ? null : stringOrNull(tomlAt(text, ["profiles", profile, "model_provider"]));
    if (provider === null || provider === "keybearer") return [];
    return [`its profile ${profile} uses the provider ${provider}, which wins: change model_provider there`];
  },
};

const SETTINGS: Readonly<Record<Writable, ClientSettings>> = {
  "claude-code": CLAUDE_CODE,
  codex: CODEX,
  opencode: OPENCODE,
};

type JsonPath = readonly [string, ...string[]];
type JsonSetting = readonly [path: JsonPath, value: JsonValue];
type TomlSetting = readonly [table: readonly string[], name: string, value: string | null];

function mergeJson(text: string, settings: readonly JsonSetting[], dialect: JsonDialect): Edited {
  let edited: Edited = { ok: true, text };
  for (const [path, value] of settings) {
    if (edited.ok) edited = editJson(edited.text, path, value, dialect);
  }
  return edited;
}

function stringOrNull(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}
