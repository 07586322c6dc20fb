import { ANY, type Client } from "../client.ts";

export const MORE_AGENTS: readonly Client[] = [
  {
    id: "cline-cli",
    name: "Cline CLI 2",
    label: "-b",
    where: "cline auth, kept in ~/.cline/data",
    base: "v1",
    keyLabel: "-k",
    modelLabel: "-m",
    ways: [
      [
        {
          kind: "command",
          format: "sh",
          text: `cline auth -p openai -b '{base}' -m '{model}' \\
  -k '{token}'`,
        },
      ],
    ],
    notes: ["the token stays in the shell's history unless the line begins with a space."],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "aider",
    name: "Aider",
    label: "OPENAI_API_BASE",
    where: "the environment, or openai-api-base in ~/.aider.conf.yml",
    base: "v1",
    keyLabel: "OPENAI_API_KEY",
    modelLabel: "--model",
    modelText: "openai/{model}",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["OPENAI_API_BASE", "{base}"],
            ["OPENAI_API_KEY", "{token}"],
            ["AIDER_MODEL", "openai/{model}"],
          ],
        },
      ],
      [
        {
          kind: "file",
          path: "~/.aider.conf.yml",
          format: "yaml",
          text: `openai-api-base: "{base}"
openai-api-key: "{token}"
model: "openai/{model}"`,
        },
      ],
    ],
    notes: ["the model's name needs openai/ in front, whoever made the model."],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "goose",
    name: "goose",
    label: "OPENAI_HOST",
    where: "the environment, or Host in goose configure",
    base: "root",
    keyLabel: "OPENAI_API_KEY",
    modelLabel: "GOOSE_MODEL",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["GOOSE_PROVIDER", "openai"],
            ["OPENAI_HOST", "{base}"],
            ["OPENAI_API_KEY", "{token}"],
            ["GOOSE_MODEL", "{model}"],
          ],
        },
      ],
    ],
    notes: ["host only: goose adds v1/chat/completions itself (OPENAI_BASE_PATH)."],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "crush",
    name: "Crush",
    label: "base_url",
    where: "providers.keybearer in ~/.config/crush/crush.json",
    base: "v1",
    keyLabel: "api_key",
    modelLabel: "models[].id",
    ways: [
      [
        {
          kind: "file",
          path: "~/.config/crush/crush.json",
          format: "json",
          text: `{
  "providers": {
    "keybearer": {
      "type": "openai-compat",
      "base_url": "{base}",
      "api_key": "{token}",
      "models": [{ "id": "{model}", "name": "{model}" }]
    }
  }
}`,
        },
      ],
      [
        {
          kind: "file",
          path: "~/.config/crush/crushrc",
          format: "sh",
          text: `provider add keybearer --type openai-compat \\
  --base-url '{base}' --api-key '{token}'
model add 'keybearer/{model}'`,
        },
      ],
    ],
    notes: ["openai-compat, not openai: that type uses the Responses API."],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "kilo-code",
    name: "Kilo Code",
    aliases: ["kilo"],
    label: "Base URL",
    where: "Providers > Custom provider, or ~/.config/kilo/kilo.json",
    base: "v1",
    keyLabel: "API Key (options.apiKey)",
    modelLabel: "model",
    modelText: "keybearer/{model}",
    ways: [
      [
        {
          kind: "file",
          path: "~/.config/kilo/kilo.json",
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
  "model": "keybearer/{model}"
}`,
        },
      ],
    ],
    notes: [],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "pi",
    name: "pi",
    label: "baseUrl",
    where: "providers.keybearer in ~/.pi/agent/models.json",
    base: "v1",
    keyLabel: "apiKey",
    modelLabel: "models[].id",
    ways: [
      [
        {
          kind: "file",
          path: "~/.pi/agent/models.json",
          format: "json",
          text: `{
  "providers": {
    "keybearer": {
      "baseUrl": "{base}",
      "api": "openai-completions",
      "apiKey": "{token}",
      "models": [{ "id": "{model}" }]
    }
  }
}`,
        },
      ],
    ],
    notes: [],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "llm",
    name: "llm",
    label: "api_base",
    where: 'extra-openai-models.yaml in $(dirname "$(llm logs path)")',
    base: "v1",
    keyLabel: "llm keys set keybearer, which asks for it",
    modelLabel: "model_name",
    ways: [
      [
        {
          kind: "file",
          path: "extra-openai-models.yaml",
          format: "yaml",
          text: `- model_id: "keybearer-{model}"
  model_name: "{model}"
  api_base: "{base}"
  api_key_name: keybearer`,
        },
        { kind: "command", format: "sh", text: "llm keys set keybearer" },
      ],
    ],
    notes: [
      "without api_key_name it sends DUMMY_KEY, which keybearer refuses. no variable sets its address.",
    ],
    prefers: ANY,
    unusable: null,
  },
];
