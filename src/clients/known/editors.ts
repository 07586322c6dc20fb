import { ANY, type Client } from "../client.ts";

export const EDITORS: readonly Client[] = [
  {
    id: "vscode",
    name: "VS Code Chat (Custom Endpoint)",
    aliases: ["vs-code", "vscode-copilot"],
    label: "url",
    where: "chatLanguageModels.json, by Chat: Open Language Models (JSON)",
    base: "v1",
    baseText: "{base}/chat/completions",
    keyLabel: "apiKey",
    modelLabel: "models[].id",
    ways: [
      [
        {
          kind: "file",
          path: "chatLanguageModels.json",
          format: "json",
          text: `[
  {
    "name": "keybearer",
    "vendor": "customendpoint",
    "apiKey": "{token}",
    "apiType": "chat-completions",
    "models": [
      {
        "id": "{model}",
        "name": "{model}",
        "url": "{base}/chat/completions",
        "toolCalling": true,
        "vision": false,
        "maxInputTokens": 128000,
        "maxOutputTokens": 16000
      }
    ]
  }
]`,
        },
      ],
    ],
    notes: [
      "the one client where the whole endpoint path is right, for each model.",
      "VS Code 1.122 or newer. typed in Chat: Manage Language Models, the token is kept outside the file.",
    ],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "cline",
    name: "Cline (VS Code, CLI 3)",
    label: "Base URL",
    where: "Settings > API Provider: OpenAI Compatible",
    base: "v1",
    keyLabel: "API Key",
    modelLabel: "Model ID",
    ways: [],
    notes: ["CLI 3: cline auth --provider openai-native --baseurl {base}"],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "roo-code",
    name: "Roo Code",
    aliases: ["roo"],
    label: "Base URL",
    where: "Settings > API Provider: OpenAI Compatible",
    base: "v1",
    keyLabel: "API Key",
    modelLabel: "Model",
    ways: [],
    notes: [],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "continue",
    name: "Continue",
    label: "apiBase",
    where: "models in ~/.continue/config.yaml",
    base: "v1",
    keyLabel: "apiKey",
    modelLabel: "model",
    ways: [
      [
        {
          kind: "file",
          path: "~/.continue/config.yaml",
          format: "yaml",
          text: `name: keybearer
version: 1.0.0
schema: v1
models:
  - name: keybearer
    provider: openai
    model: "{model}"
    apiBase: "{base}"
    apiKey: "{token}"`,
        },
      ],
    ],
    notes: [
      "for gpt-5 models it uses the Responses API; useResponsesApi: false makes it chat completions.",
      "with provider: anthropic the address has /v1, too.",
    ],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "zed",
    name: "Zed",
    label: "api_url",
    where: "language_models in ~/.config/zed/settings.json",
    base: "v1",
    keyLabel: "KEYBEARER_API_KEY, or the provider's page in Zed",
    modelLabel: "available_models[].name",
    ways: [
      [
        {
          kind: "file",
          path: "~/.config/zed/settings.json",
          format: "json",
          text: `{
  "language_models": {
    "openai_compatible": {
      "keybearer": {
        "api_url": "{base}",
        "available_models": [
          { "name": "{model}", "max_tokens": 128000 }
        ]
      }
    }
  }
}`,
        },
        { kind: "env", set: [["KEYBEARER_API_KEY", "{token}"]] },
      ],
    ],
    notes: [
      "never in settings.json: Zed reads the token from its own page or from the variable.",
      "below anthropic_compatible instead, api_url is {root}, without /v1.",
    ],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "jetbrains",
    name: "JetBrains AI Assistant",
    aliases: ["intellij", "pycharm", "webstorm", "goland"],
    label: "URL",
    where: "Settings > Tools > AI Assistant > Providers & API keys > OpenAI-compatible",
    base: "v1",
    keyLabel: "Key",
    modelLabel: "Model",
    ways: [],
    notes: [],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "cursor",
    name: "Cursor",
    label: "Override OpenAI Base URL",
    where: "Settings > Models > API Keys",
    base: "v1",
    keyLabel: "OpenAI API Key",
    modelLabel: null,
    ways: [],
    notes: [],
    prefers: ANY,
    unusable: "its requests come from Cursor's own servers, which do not reach your localhost",
  },
  {
    id: "windsurf",
    name: "Windsurf",
    aliases: ["devin"],
    label: "none",
    where: "none",
    base: "v1",
    keyLabel: "none",
    modelLabel: null,
    ways: [],
    notes: [],
    prefers: ANY,
    unusable: "it has no setting for a base URL that is known",
  },
];
