import type { Target } from "../snippet.ts";
import { type JsonFlavour, readJson } from "./json-read.ts";
import { jsonAt, type Path, removeJson, setJson } from "./json-splice.ts";
import type { Spliced } from "./spliced.ts";
import { changeToml, hasToml, tomlTextAt } from "./toml-splice.ts";

/** The clients whose user-level settings can be written. */
export type Writable = "claude-code" | "codex" | "opencode";
export const WRITABLE: readonly Writable[] = ["claude-code", "codex", "opencode"];

/** A target with everything known but the model. */
export interface Wanted extends Target {
  readonly token: string;
}

/** A setting that would send requests past the token, or another credential beside it. */
export interface Clash {
  readonly path: Path;
  /** As a person finds it in the file. */
  readonly name: string;
  readonly why: string;
}

/** How one client's settings are read and changed, as texts. */
export interface Settings {
  /** What a file that is not there, or empty, stands for. */
  readonly empty: string;
  /** true: without the name of a model the settings are of no use. */
  readonly needsModel: boolean;
  /** The token that is in it; null where there is none. */
  tokenIn(text: string): string | null;
  merge(text: string, wanted: Wanted): Spliced;
  clashes(text: string): readonly Clash[];
  without(text: string, clash: Clash): Spliced;
  /** What else in the file keeps the settings from counting. Sentences. */
  notes(text: string): readonly string[];
}

export function settingsOf(client: Writable): Settings {
  if (client === "codex") return CODEX;
  return client === "opencode" ? OPENCODE : CLAUDE_CODE;
}

type JsonSetting = readonly [path: Path, value: string | Readonly<Record<string, never>>];

function mergeJson(text: string, settings: readonly JsonSetting[], flavour: JsonFlavour): Spliced {
  return inTurn(
    text,
    settings.map(
      ([path, value]) =>
        (now) =>
          setJson(now, path, value, flavour),
    ),
  );
}

function inTurn(text: string, steps: readonly ((text: string) => Spliced)[]): Spliced {
  let result: Spliced = { ok: true, text };
  for (const step of steps) {
    if (!result.ok) return result;
    result = step(result.text);
  }
  return result;
}

const TOOK_OVER = "with it Claude Code does not ask ANTHROPIC_BASE_URL";
const CLAUDE_CLASHES: readonly Clash[] = [
  {
    path: ["env", "ANTHROPIC_API_KEY"],
    name: "ANTHROPIC_API_KEY",
    why: "Claude Code sends it beside the token, and keybearer refuses that (foreign-key)",
  },
  {
    path: ["apiKeyHelper"],
    name: "apiKeyHelper",
    why: "Claude Code sends what it prints beside the token, and keybearer refuses that (foreign-key)",
  },
  { path: ["env", "CLAUDE_CODE_USE_BEDROCK"], name: "CLAUDE_CODE_USE_BEDROCK", why: TOOK_OVER },
  { path: ["env", "CLAUDE_CODE_USE_VERTEX"], name: "CLAUDE_CODE_USE_VERTEX", why: TOOK_OVER },
  { path: ["env", "CLAUDE_CODE_USE_FOUNDRY"], name: "CLAUDE_CODE_USE_FOUNDRY", why: TOOK_OVER },
];

/** ANTHROPIC_AUTH_TOKEN and not ANTHROPIC_API_KEY: a new one of those has to be approved in the client first. */
const CLAUDE_CODE: Settings = {
  empty: "{}\n",
  needsModel: false,
  tokenIn: (text) => textIn(text, ["env", "ANTHROPIC_AUTH_TOKEN"], "strict"),
  merge: (text, { origin, token, model, small }) =>
    mergeJson(
      text,
      [
        [["env", "ANTHROPIC_BASE_URL"], origin],
        [["env", "ANTHROPIC_AUTH_TOKEN"], token],
        ...(model === null ? [] : claudeModels(model, small ?? model)),
      ],
      "strict",
    ),
  clashes: (text) => CLAUDE_CLASHES.filter(({ path }) => jsonAt(text, path, "strict") !== undefined),
  without: (text, { path }) => removeJson(text, path, "strict"),
  notes: () => [],
};

function claudeModels(model: string, small: string): JsonSetting[] {
  return [
    [["env", "ANTHROPIC_MODEL"], model],
    [["env", "ANTHROPIC_DEFAULT_HAIKU_MODEL"], small],
  ];
}

/** opencode reads comments and a comma too many in opencode.json as well as in opencode.jsonc. */
const OPENCODE: Settings = {
  empty: '{\n  "$schema": "https://opencode.ai/config.json"\n}\n',
  needsModel: true,
  tokenIn: (text) => textIn(text, ["provider", "keybearer", "options", "apiKey"], "comments"),
  merge(text, { origin, token, model, small }) {
    const own = ["provider", "keybearer"] as const;
    const models = model === null ? [] : [...new Set([model, small ?? model])];
    // A model keeps the options that somebody gave it.
    const unlisted = models.filter(
      (name) => jsonAt(text, [...own, "models", name], "comments") === undefined,
    );
    return mergeJson(
      text,
      [
        [[...own, "npm"], "@ai-sdk/openai-compatible"],
        [[...own, "name"], "keybearer"],
        [[...own, "options", "baseURL"], `${origin}/v1`],
        [[...own, "options", "apiKey"], token],
        ...unlisted.map((name): JsonSetting => [[...own, "models", name], {}]),
        ...(model === null ? [] : opencodeModels(model, small ?? model)),
      ],
      "comments",
    );
  },
  clashes: () => [],
  without: (text) => ({ ok: true, text }),
  notes(text) {
    const names = (key: string) => jsonAt(text, [key], "comments");
    const disabled = names("disabled_providers");
    const enabled = names("enabled_providers");
    return [
      ...(Array.isArray(disabled) && disabled.includes("keybearer")
        ? ["disabled_providers in it names keybearer: take it out there"]
        : []),
      ...(Array.isArray(enabled) && !enabled.includes("keybearer")
        ? ["enabled_providers in it does not name keybearer: add it there"]
        : []),
    ];
  },
};

function opencodeModels(model: string, small: string): JsonSetting[] {
  return [
    [["model"], `keybearer/${model}`],
    [["small_model"], `keybearer/${small}`],
  ];
}

const PROVIDER = ["model_providers", "keybearer"] as const;

/**
 * The token stands in the file: env_key would name a variable, which a program started from a menu or an editor does
 * not have, and Codex stops without it. env_key wins over the token beside it, so it goes.
 */
const CODEX: Settings = {
  empty: "",
  needsModel: false,
  tokenIn: (text) => tomlTextAt(text, [...PROVIDER, "experimental_bearer_token"]) ?? null,
  merge(text, { origin, token, model }) {
    if (hasToml(text, [...PROVIDER, "auth"])) {
      return {
        ok: false,
        line: null,
        reason: `[${PROVIDER.join(".")}.auth] in it goes before the token: delete it, then run this again`,
      };
    }
    return inTurn(text, [
      (now) =>
        changeToml(now, {
          table: [],
          set: { ...(model === null ? {} : { model }), model_provider: "keybearer" },
        }),
      (now) =>
        changeToml(now, {
          table: PROVIDER,
          set: {
            name: "keybearer",
            base_url: `${origin}/v1`,
            wire_api: "responses",
            experimental_bearer_token: token,
            env_key: null,
            env_key_instructions: null,
            requires_openai_auth: null,
          },
        }),
    ]);
  },
  clashes: () => [],
  without: (text) => ({ ok: true, text }),
  notes(text) {
    const profile = tomlTextAt(text, ["profile"]);
    const other =
      profile === undefined ? undefined : tomlTextAt(text, ["profiles", profile, "model_provider"]);
    return other === undefined || other === "keybearer"
      ? []
      : [`its profile ${profile} names the provider ${other}, which wins: change model_provider there`];
  },
};

function textIn(text: string, path: readonly string[], flavour: JsonFlavour): string | null {
  const value = readJson(text, flavour).ok ? jsonAt(text, path, flavour) : undefined;
  return typeof value === "string" ? value : null;
}
