import { ANY, CLAUDE, type Client, GEMINI, GPT, KEYBEARER_TOKEN } from "../client.ts";

/** Agents of the command line whose settings are told apart by more than two fields. */
export const CODING_AGENTS: readonly Client[] = [
  {
    id: "claude-code",
    name: "Claude Code",
    aliases: ["claude"],
    label: "ANTHROPIC_BASE_URL",
    where: "the environment, or env in ~/.claude/settings.json",
    base: "root",
    keyLabel: "ANTHROPIC_AUTH_TOKEN",
    modelLabel: "ANTHROPIC_MODEL",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["ANTHROPIC_BASE_URL", "{base}"],
            ["ANTHROPIC_AUTH_TOKEN", "{token}"],
            ["ANTHROPIC_DEFAULT_HAIKU_MODEL", "{small}"],
            ["ANTHROPIC_MODEL", "{model}"],
          ],
          unset: ["ANTHROPIC_API_KEY"],
        },
      ],
      [
        {
          kind: "file",
          path: "~/.claude/settings.json",
          format: "json",
          text: `{
  "env": {
    "ANTHROPIC_BASE_URL": "{base}",
    "ANTHROPIC_AUTH_TOKEN": "{token}",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "{small}",
    "ANTHROPIC_MODEL": "{model}"
  }
}`,
        },
      ],
    ],
    notes: [
      "take ANTHROPIC_API_KEY out: with both set, both are sent, and keybearer refuses two different credentials.",
      "ANTHROPIC_DEFAULT_HAIKU_MODEL may name a cheaper model for small tasks in the background.",
    ],
    prefers: CLAUDE,
    app: "claude",
    unusable: null,
  },
  {
    id: "codex",
    name: "Codex",
    label: "base_url",
    where: "[model_providers.keybearer] in ~/.codex/config.toml",
    base: "v1",
    keyLabel: "KEYBEARER_TOKEN",
    modelLabel: "model",
    ways: [
      [
        {
          kind: "file",
          path: "~/.codex/config.toml",
          format: "toml",
          text: `model = "{model}"
model_provider = "keybearer"

[model_providers.keybearer]
name = "keybearer"
base_url = "{base}"
wire_api = "responses"
env_key = "KEYBEARER_TOKEN"`,
        },
        { kind: "env", set: [KEYBEARER_TOKEN] },
      ],
    ],
    notes: [
      "the first two lines belong above every [section] of the file.",
      "env_key is the name of a variable, not the token. OPENAI_BASE_URL is ignored.",
    ],
    prefers: GPT,
    app: "codex",
    unusable: null,
  },
  {
    id: "opencode",
    name: "opencode",
    label: "options.baseURL",
    where: "provider.keybearer in ~/.config/opencode/opencode.json",
    base: "v1",
    keyLabel: "options.apiKey",
    modelLabel: "model",
    modelText: "keybearer/{model}",
    ways: [
      [
        {
          kind: "file",
          path: "~/.config/opencode/opencode.json",
          format: "json",
          text: `{
  "provider": {
    "keybearer": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "keybearer",
      "options": { "baseURL": "{base}", "apiKey": "{token}" },
      "models": { "{model}": {} }
    }
  },
  "model": "keybearer/{model}",
  "small_model": "keybearer/{model}"
}`,
        },
      ],
    ],
    notes: ["a model must be listed below models, and is called keybearer/<model> everywhere else."],
    prefers: ANY,
    app: "opencode",
    unusable: null,
  },
  {
    id: "qwen-code",
    name: "Qwen Code",
    aliases: ["qwen"],
    label: "OPENAI_BASE_URL",
    where: "the environment",
    base: "v1",
    keyLabel: "OPENAI_API_KEY",
    modelLabel: "OPENAI_MODEL",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["OPENAI_BASE_URL", "{base}"],
            ["OPENAI_API_KEY", "{token}"],
            ["OPENAI_MODEL", "{model}"],
          ],
        },
        {
          kind: "file",
          path: "~/.qwen/settings.json",
          format: "json",
          text: `{ "security": { "auth": { "selectedType": "openai" } } }`,
        },
      ],
    ],
    notes: [],
    prefers: [/^qwen/i],
    unusable: null,
  },
  {
    id: "gemini-cli",
    name: "Gemini CLI",
    aliases: ["gemini"],
    label: "GOOGLE_GEMINI_BASE_URL",
    where: "the environment",
    base: "root",
    keyLabel: "GEMINI_API_KEY",
    modelLabel: "GEMINI_MODEL",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["GOOGLE_GEMINI_BASE_URL", "{base}"],
            ["GEMINI_API_KEY", "{token}"],
            ["GEMINI_MODEL", "{model}"],
          ],
        },
        {
          kind: "file",
          path: "~/.gemini/settings.json",
          format: "json",
          text: `{ "security": { "auth": { "selectedType": "gemini-api-key" } } }`,
        },
      ],
    ],
    notes: ["the address has no /v1beta; it speaks Gemini's own protocol, which the gateway must offer."],
    prefers: GEMINI,
    app: "gemini",
    unusable: null,
  },
  {
    id: "copilot-cli",
    name: "GitHub Copilot CLI",
    aliases: ["copilot"],
    label: "COPILOT_PROVIDER_BASE_URL",
    where: "the environment",
    base: "v1",
    keyLabel: "COPILOT_PROVIDER_API_KEY",
    modelLabel: "COPILOT_MODEL",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["COPILOT_PROVIDER_TYPE", "openai"],
            ["COPILOT_PROVIDER_BASE_URL", "{base}"],
            ["COPILOT_PROVIDER_API_KEY", "{token}"],
            ["COPILOT_MODEL", "{model}"],
          ],
        },
      ],
    ],
    notes: ["with COPILOT_PROVIDER_TYPE=anthropic the address is {root}, without /v1."],
    prefers: ANY,
    unusable: null,
  },
];
