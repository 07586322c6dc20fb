import { ANY, type Client } from "../client.ts";

/** Its own network: keybearer listens on this machine's loopback alone, on purpose. */
const DOCKER =
  "in Docker, localhost is the container itself, and keybearer listens on loopback only: run it outside Docker, or with --network host on Linux.";
/** A page that calls is a web page, and those are refused unless the owner names them. */
const BROWSER =
  "where the page itself calls (not its server), add the page's exact origin to the tool's allow_origins in config.yaml.";

export const CHAT_APPS: readonly Client[] = [
  {
    id: "open-webui",
    name: "Open WebUI",
    aliases: ["openwebui", "webui"],
    label: "URL",
    where: "Admin > Settings > Connections, or OPENAI_API_BASE_URL",
    base: "v1",
    keyLabel: "Key (OPENAI_API_KEY)",
    modelLabel: null,
    ways: [
      [
        {
          kind: "env",
          set: [
            ["OPENAI_API_BASE_URL", "{base}"],
            ["OPENAI_API_KEY", "{token}"],
          ],
        },
      ],
    ],
    notes: [DOCKER, "it asks for the list of models itself."],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "cherry-studio",
    name: "Cherry Studio",
    aliases: ["cherry"],
    label: "API Host",
    where: "Settings > Model Provider",
    base: "v1",
    keyLabel: "API Key",
    modelLabel: "Manage models",
    ways: [],
    notes: ["without /v1 it is added; a # at the end would take the address literally."],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "lobechat",
    name: "LobeChat",
    aliases: ["lobe", "lobe-chat"],
    label: "API proxy URL",
    where: "Settings > AI Service Provider > OpenAI, or OPENAI_PROXY_URL",
    base: "v1",
    keyLabel: "API Key (OPENAI_API_KEY)",
    modelLabel: "OPENAI_MODEL_LIST",
    modelText: "+{model}",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["OPENAI_PROXY_URL", "{base}"],
            ["OPENAI_API_KEY", "{token}"],
            ["OPENAI_MODEL_LIST", "+{model}"],
          ],
        },
      ],
    ],
    notes: [DOCKER, BROWSER, "ANTHROPIC_PROXY_URL takes {root}, without /v1."],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "nextchat",
    name: "NextChat",
    aliases: ["chatgpt-next-web"],
    label: "OpenAI Endpoint",
    where: "Settings > Custom Endpoint, or BASE_URL",
    base: "root",
    keyLabel: "OpenAI API Key (OPENAI_API_KEY)",
    modelLabel: "Custom Models (CUSTOM_MODELS)",
    modelText: "+{model}",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["BASE_URL", "{base}"],
            ["OPENAI_API_KEY", "{token}"],
            ["CUSTOM_MODELS", "+{model}"],
          ],
        },
      ],
    ],
    notes: [
      "it adds v1/chat/completions itself; without http:// in front it would use https.",
      BROWSER,
      DOCKER,
    ],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "chatbox",
    name: "Chatbox",
    label: "API Host",
    where: "Settings > Model Provider > Add > OpenAI API Compatible",
    base: "v1",
    keyLabel: "API Key",
    modelLabel: "Model",
    ways: [],
    notes: ["leave API Path as it is; without http:// in front it would use https.", BROWSER],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "jan",
    name: "Jan",
    label: "Base URL",
    where: "Settings > Model Providers > Add Provider",
    base: "v1",
    keyLabel: "API Key",
    modelLabel: "Models",
    ways: [],
    notes: [],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "librechat",
    name: "LibreChat",
    aliases: ["libre"],
    label: "baseURL",
    where: "endpoints.custom in librechat.yaml",
    base: "v1",
    keyLabel: "apiKey",
    modelLabel: "models.default",
    ways: [
      [
        {
          kind: "file",
          path: "librechat.yaml",
          format: "yaml",
          text: `endpoints:
  custom:
    - name: keybearer
      apiKey: "{token}"
      baseURL: "{base}"
      models:
        default: ["{model}"]
        fetch: true`,
        },
      ],
    ],
    notes: [DOCKER, "with provider: anthropic, baseURL is {root}, without /v1."],
    prefers: ANY,
    unusable: null,
  },
];
