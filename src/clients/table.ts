import { advice } from "../core/advice.ts";
/** The shells `use` can write environment variables for. */
export type Shell = "sh" | "fish" | "powershell" | "cmd";

export type Format = Shell | "json" | "toml" | "yaml" | "javascript";

/** One thing to do when setting up a client. */
export type Step =
  | {
      readonly kind: "env";
      readonly set: Readonly<Record<string, string>>;
      /** Variables that would win over ours, or be sent beside the token. */
      readonly unset: readonly string[];
    }
  | { readonly kind: "file"; readonly path: string; readonly format: Format; readonly text: string }
  /** code: lines for the user's own program; command: to be typed once. */
  | { readonly kind: "code" | "command"; readonly format: Format; readonly text: string };

/**
 * A program that can be pointed at keybearer, or the reason why it cannot. Texts may contain {root}
 * (http://localhost:5397), {v1} (the same with /v1), {base} (the one of the two that `base` names), {token}, {model},
 * {small} (a cheaper model, where the client has no good choice of its own) and {background} (the cheaper one, else the
 * model itself). A line or JSON value that needs an unknown model is left out.
 */
export interface Client {
  /** The value of --for. */
  readonly id: string;
  readonly name: string;
  /** More words in a tool's name that mean this client; the id always does. */
  readonly aliases: readonly string[];
  /** Whether the base URL ends in /v1. This depends on the client, not on the protocol. */
  readonly base: "root" | "v1";
  /** What the client calls its base URL, and where the setting is: a menu, a file, the environment. */
  readonly baseUrlField: string;
  readonly where: string;
  /** The value of that field. */
  readonly baseUrl: string;
  readonly tokenField: string;
  /** null: the client has no such field. */
  readonly modelField: string | null;
  /** How the client writes a model's name. */
  readonly model: string;
  /** Alternatives: one is enough, with all of its steps. Empty: the fields above are all there is. */
  readonly setups: readonly (readonly Step[])[];
  /** Whether it asks chat streams for their usage, as far as it uses them. */
  readonly asksUsage: boolean;
  /** Common mistakes. */
  readonly notes: readonly string[];
  /** The models that suit it, the best first. */
  readonly prefers: readonly RegExp[];
  /** What the settings switcher cc-switch calls it; null: cc-switch does not know it. */
  readonly switchApp: "claude" | "codex" | "gemini" | "opencode" | null;
  /** Why it cannot be pointed at localhost; null: it can. */
  readonly unusable: string | null;
}

export function findClient(id: string): Client | null {
  return CLIENTS.find((client) => client.id === id) ?? null;
}

/**
 * The clients a tool's name may mean: codex-work is Codex, my-claude is Claude Code. The longest match wins, so cline-cli
 * is not Cline.
 */
export function guessClients(tool: string): readonly Client[] {
  const parts = splitName(tool);
  const scored = CLIENTS.map((client) => {
    const names = [client.id, ...client.aliases].map(splitName);
    return {
      client,
      score: Math.max(...names.map((name) => (includesRun(parts, name) ? name.join("").length : 0))),
    };
  });
  const best = Math.max(...scored.map(({ score }) => score));
  return best === 0 ? [] : scored.filter(({ score }) => score === best).map(({ client }) => client);
}

function splitName(name: string): string[] {
  return name.toLowerCase().match(/[a-z0-9]+/g) ?? [];
}

function includesRun(parts: readonly string[], run: readonly string[]): boolean {
  return parts.some((_, start) => run.every((part, offset) => parts[start + offset] === part));
}

// Gateways choose the names of their models, but most keep how the maker's names begin.
const CLAUDE = [/^claude-sonnet/i, /^claude.*sonnet/i, /^claude/i];
const GPT = [/^gpt-\d.*codex(?!.*mini)/i, /^gpt-5(?!.*(?:mini|nano))/i, /^gpt/i];
const GEMINI = [/^gemini.*pro/i, /^gemini/i];

const DEFAULTS = {
  aliases: [],
  base: "v1",
  baseUrl: "{base}",
  model: "{model}",
  setups: [],
  asksUsage: true,
  notes: [],
  prefers: [/^claude-sonnet/i, /^gpt-5(?!.*(?:mini|nano))/i],
  switchApp: null,
  unusable: null,
} satisfies Partial<Client>;

type Entry = Omit<Client, keyof typeof DEFAULTS> & Partial<Client>;

function env(set: Readonly<Record<string, string>>, unset: readonly string[] = []): Step {
  return { kind: "env", set, unset };
}

function file(path: string, format: Format, text: string): Step {
  return { kind: "file", path, format, text };
}

function json(path: string, value: unknown): Step {
  return file(path, "json", JSON.stringify(value, null, 2));
}

function command(text: string): Step {
  return { kind: "command", format: "sh", text };
}

function javascript(...lines: readonly string[]): Step {
  return { kind: "code", format: "javascript", text: lines.join("\n") };
}

const OPENAI_ENV = env({ OPENAI_BASE_URL: "{base}", OPENAI_API_KEY: "{token}" });
const ANTHROPIC_ENV = env({ ANTHROPIC_BASE_URL: "{base}", ANTHROPIC_API_KEY: "{token}" }, [
  "ANTHROPIC_AUTH_TOKEN",
]);
/** For clients whose settings name the variable to read. */
const TOKEN_ENV = env({ KEYBEARER_TOKEN: "{token}" });

/** Of opencode, and of Kilo Code, whose command line is built from it. */
const OPENCODE_SETTINGS = {
  provider: {
    keybearer: {
      npm: "@ai-sdk/openai-compatible",
      name: "keybearer",
      options: { baseURL: "{base}", apiKey: "{token}" },
      models: { "{model}": {}, "{background}": {} },
    },
  },
  model: "keybearer/{model}",
  small_model: "keybearer/{background}",
};

const DOCKER =
  "in Docker, localhost is the container itself, and keybearer listens on loopback only: run it outside Docker, or with --network host on Linux.";
const BROWSER =
  "if the page itself calls (not its server), add the page's exact origin to the tool's allow_origins in config.yaml.";
const MODEL_IN_CALL = "model, in each call";

const ENTRIES: readonly Entry[] = [
  // Agents for the command line.
  {
    id: "claude-code",
    name: "Claude Code",
    aliases: ["claude"],
    base: "root",
    baseUrlField: "ANTHROPIC_BASE_URL",
    where: "the environment, or env in ~/.claude/settings.json",
    tokenField: "ANTHROPIC_AUTH_TOKEN",
    modelField: "ANTHROPIC_MODEL",
    setups: [
      [
        env(
          {
            ANTHROPIC_BASE_URL: "{base}",
            ANTHROPIC_AUTH_TOKEN: "{token}",
            ANTHROPIC_DEFAULT_HAIKU_MODEL: "{small}",
            ANTHROPIC_MODEL: "{model}",
          },
          ["ANTHROPIC_API_KEY"],
        ),
      ],
      [
        json("~/.claude/settings.json", {
          env: {
            ANTHROPIC_BASE_URL: "{base}",
            ANTHROPIC_AUTH_TOKEN: "{token}",
            ANTHROPIC_DEFAULT_HAIKU_MODEL: "{small}",
            ANTHROPIC_MODEL: "{model}",
          },
        }),
      ],
    ],
    notes: [
      "remove ANTHROPIC_API_KEY: with both set, both are sent, and keybearer refuses two different credentials.",
      "ANTHROPIC_DEFAULT_HAIKU_MODEL may name a cheaper model for small background tasks.",
    ],
    prefers: CLAUDE,
    switchApp: "claude",
  },
  {
    id: "codex",
    name: "Codex",
    baseUrlField: "base_url",
    where: "[model_providers.keybearer] in ~/.codex/config.toml",
    tokenField: "KEYBEARER_TOKEN",
    modelField: "model",
    setups: [
      [
        file(
          "~/.codex/config.toml",
          "toml",
          `model = "{model}"
model_provider = "keybearer"

[model_providers.keybearer]
name = "keybearer"
base_url = "{base}"
wire_api = "responses"
env_key = "KEYBEARER_TOKEN"`,
        ),
        TOKEN_ENV,
      ],
    ],
    notes: [
      "the first two lines belong above every [section] of the file.",
      "env_key is the name of a variable, not the token. OPENAI_BASE_URL is ignored.",
    ],
    prefers: GPT,
    switchApp: "codex",
  },
  {
    id: "opencode",
    name: "opencode",
    baseUrlField: "options.baseURL",
    where: "provider.keybearer in ~/.config/opencode/opencode.json",
    tokenField: "options.apiKey",
    modelField: "model",
    model: "keybearer/{model}",
    setups: [[json("~/.config/opencode/opencode.json", OPENCODE_SETTINGS)]],
    notes: ["a model must be listed below models, and is called keybearer/<model> everywhere else."],
    switchApp: "opencode",
  },
  {
    id: "qwen-code",
    name: "Qwen Code",
    aliases: ["qwen"],
    baseUrlField: "OPENAI_BASE_URL",
    where: "the environment",
    tokenField: "OPENAI_API_KEY",
    modelField: "OPENAI_MODEL",
    setups: [
      [
        env({ OPENAI_BASE_URL: "{base}", OPENAI_API_KEY: "{token}", OPENAI_MODEL: "{model}" }),
        json("~/.qwen/settings.json", { security: { auth: { selectedType: "openai" } } }),
      ],
    ],
    prefers: [/^qwen/i],
  },
  {
    id: "gemini-cli",
    name: "Gemini CLI",
    aliases: ["gemini"],
    base: "root",
    baseUrlField: "GOOGLE_GEMINI_BASE_URL",
    where: "the environment",
    tokenField: "GEMINI_API_KEY",
    modelField: "GEMINI_MODEL",
    setups: [
      [
        env({ GOOGLE_GEMINI_BASE_URL: "{base}", GEMINI_API_KEY: "{token}", GEMINI_MODEL: "{model}" }),
        json("~/.gemini/settings.json", { security: { auth: { selectedType: "gemini-api-key" } } }),
      ],
    ],
    notes: ["the address has no /v1beta; it speaks Gemini's own protocol, which the gateway must offer."],
    prefers: GEMINI,
    switchApp: "gemini",
  },
  {
    id: "copilot-cli",
    name: "GitHub Copilot CLI",
    aliases: ["copilot"],
    baseUrlField: "COPILOT_PROVIDER_BASE_URL",
    where: "the environment",
    tokenField: "COPILOT_PROVIDER_API_KEY",
    modelField: "COPILOT_MODEL",
    setups: [
      [
        env({
          COPILOT_PROVIDER_TYPE: "openai",
          COPILOT_PROVIDER_BASE_URL: "{base}",
          COPILOT_PROVIDER_API_KEY: "{token}",
          COPILOT_MODEL: "{model}",
        }),
      ],
    ],
    notes: [
      "with COPILOT_PROVIDER_TYPE=anthropic the address is {root}, without /v1.",
      "its prompt limit for a model that it does not know is a guess: COPILOT_PROVIDER_MAX_PROMPT_TOKENS sets it.",
    ],
  },
  {
    id: "cline-cli",
    name: "Cline CLI",
    baseUrlField: "-b",
    where: "cline auth, which stores it in ~/.cline/data",
    tokenField: "-k",
    modelField: "-m",
    setups: [[command("cline auth -p openai -b '{base}' -m '{model}' \\\n  -k '{token}'")]],
    notes: ["the token stays in the shell's history unless the line begins with a space."],
  },
  {
    id: "aider",
    name: "Aider",
    baseUrlField: "OPENAI_API_BASE",
    where: "the environment, or openai-api-base in ~/.aider.conf.yml",
    tokenField: "OPENAI_API_KEY",
    modelField: "--model",
    model: "openai/{model}",
    setups: [
      [
        env({
          OPENAI_API_BASE: "{base}",
          OPENAI_API_KEY: "{token}",
          AIDER_MODEL: "openai/{model}",
          AIDER_WEAK_MODEL: "openai/{background}",
        }),
      ],
      [
        file(
          "~/.aider.conf.yml",
          "yaml",
          `openai-api-base: "{base}"
openai-api-key: "{token}"
model: "openai/{model}"
weak-model: "openai/{background}"`,
        ),
      ],
    ],
    asksUsage: false,
    notes: [
      "every model's name needs openai/ in front, also the names of other makers' models.",
      "the weak model writes commit messages and summaries. without the setting aider takes one that the gateway may not have.",
    ],
  },
  {
    id: "goose",
    name: "goose",
    base: "root",
    baseUrlField: "OPENAI_HOST",
    where: "the environment, or Host in goose configure",
    tokenField: "OPENAI_API_KEY",
    modelField: "GOOSE_MODEL",
    setups: [
      [
        env({
          GOOSE_PROVIDER: "openai",
          OPENAI_HOST: "{base}",
          OPENAI_API_KEY: "{token}",
          GOOSE_MODEL: "{model}",
        }),
      ],
    ],
    notes: ["host only: goose adds v1/chat/completions itself (OPENAI_BASE_PATH)."],
  },
  {
    id: "crush",
    name: "Crush",
    baseUrlField: "base_url",
    where: "providers.keybearer in ~/.config/crush/crush.json",
    tokenField: "api_key",
    modelField: "models[].id",
    setups: [
      [
        json("~/.config/crush/crush.json", {
          providers: {
            keybearer: {
              type: "openai-compat",
              base_url: "{base}",
              api_key: "{token}",
              models: [{ id: "{model}", name: "{model}" }],
            },
          },
        }),
      ],
      [
        file(
          "~/.config/crush/crushrc",
          "sh",
          `provider add keybearer --type openai-compat \\
  --base-url '{base}' --api-key '{token}'
model add 'keybearer/{model}'`,
        ),
      ],
    ],
    notes: ["use the type openai-compat: the type openai uses the Responses API."],
  },
  {
    id: "kilo-code",
    name: "Kilo Code",
    aliases: ["kilo"],
    baseUrlField: "Base URL",
    where: "Providers > Custom provider, or ~/.config/kilo/kilo.json",
    tokenField: "API Key (options.apiKey)",
    modelField: "model",
    model: "keybearer/{model}",
    setups: [[json("~/.config/kilo/kilo.json", OPENCODE_SETTINGS)]],
  },
  {
    id: "pi",
    name: "pi",
    baseUrlField: "baseUrl",
    where: "providers.keybearer in ~/.pi/agent/models.json",
    tokenField: "apiKey",
    modelField: "models[].id",
    setups: [
      [
        json("~/.pi/agent/models.json", {
          providers: {
            keybearer: {
              baseUrl: "{base}",
              api: "openai-completions",
              apiKey: "{token}",
              models: [{ id: "{model}" }],
            },
          },
        }),
      ],
    ],
  },
  {
    id: "llm",
    name: "llm",
    baseUrlField: "api_base",
    where: 'extra-openai-models.yaml in $(dirname "$(llm logs path)")',
    tokenField: "llm keys set keybearer, which asks for it",
    modelField: "model_name",
    setups: [
      [
        file(
          "extra-openai-models.yaml",
          "yaml",
          `- api_base: "{base}"
  api_key_name: keybearer
  model_id: "keybearer-{model}"
  model_name: "{model}"`,
        ),
        command("llm keys set keybearer"),
      ],
    ],
    notes: [
      "without api_key_name it sends DUMMY_KEY, which keybearer refuses. no variable sets its address.",
    ],
  },

  // Editors.
  {
    id: "vscode",
    name: "VS Code Chat (Custom Endpoint)",
    aliases: ["vs-code", "vscode-copilot"],
    baseUrlField: "url",
    where: "chatLanguageModels.json, by Chat: Open Language Models (JSON)",
    baseUrl: "{base}/chat/completions",
    tokenField: "apiKey",
    modelField: "models[].id",
    setups: [
      [
        json("chatLanguageModels.json", [
          {
            name: "keybearer",
            vendor: "customendpoint",
            apiKey: "{token}",
            apiType: "chat-completions",
            models: [
              {
                id: "{model}",
                name: "{model}",
                url: "{base}/chat/completions",
                toolCalling: true,
                vision: false,
                maxInputTokens: 128000,
                maxOutputTokens: 16000,
              },
            ],
          },
        ]),
      ],
    ],
    notes: [
      "this is the one client that takes the whole endpoint path, for each model.",
      "VS Code 1.122 or newer. a token typed in Chat: Manage Language Models is stored outside the file.",
    ],
  },
  {
    id: "cline",
    name: "Cline (VS Code)",
    baseUrlField: "Base URL",
    where: "Settings > API Provider: OpenAI Compatible",
    tokenField: "API Key",
    modelField: "Model ID",
    notes: [`for its command line: ${advice.use("<tool>", "cline-cli")}`],
  },
  {
    id: "roo-code",
    name: "Roo Code",
    aliases: ["roo"],
    baseUrlField: "Base URL",
    where: "Settings > API Provider: OpenAI Compatible",
    tokenField: "API Key",
    modelField: "Model",
  },
  {
    id: "continue",
    name: "Continue",
    baseUrlField: "apiBase",
    where: "models in ~/.continue/config.yaml",
    tokenField: "apiKey",
    modelField: "model",
    setups: [
      [
        file(
          "~/.continue/config.yaml",
          "yaml",
          `name: keybearer
version: 1.0.0
schema: v1
models:
  - name: keybearer
    provider: openai
    model: "{model}"
    apiBase: "{base}"
    apiKey: "{token}"`,
        ),
      ],
    ],
    notes: [
      "for gpt-5 models it uses the Responses API; useResponsesApi: false switches to chat completions.",
      "with provider: anthropic the address has /v1, too.",
    ],
  },
  {
    id: "zed",
    name: "Zed",
    baseUrlField: "api_url",
    where: "language_models in ~/.config/zed/settings.json",
    tokenField: "KEYBEARER_API_KEY, or the provider's page in Zed",
    modelField: "available_models[].name",
    setups: [
      [
        json("~/.config/zed/settings.json", {
          language_models: {
            openai_compatible: {
              keybearer: {
                api_url: "{base}",
                available_models: [{ name: "{model}", max_tokens: 128000 }],
              },
            },
          },
        }),
        env({ KEYBEARER_API_KEY: "{token}" }),
      ],
    ],
    notes: [
      "never put the token in settings.json: Zed reads it from its own page or from the variable.",
      "below anthropic_compatible instead, api_url is {root}, without /v1.",
    ],
  },
  {
    id: "jetbrains",
    name: "JetBrains AI Assistant",
    aliases: ["intellij", "pycharm", "webstorm", "goland"],
    baseUrlField: "URL",
    where: "Settings > Tools > AI Assistant > Providers & API keys > OpenAI-compatible",
    tokenField: "Key",
    modelField: "Model",
  },
  {
    id: "cursor",
    name: "Cursor",
    baseUrlField: "Override OpenAI Base URL",
    where: "Settings > Models > API Keys",
    tokenField: "OpenAI API Key",
    modelField: null,
    unusable: "its requests come from Cursor's own servers, which do not reach your localhost",
  },
  {
    id: "windsurf",
    name: "Windsurf",
    aliases: ["devin"],
    baseUrlField: "none",
    where: "none",
    tokenField: "none",
    modelField: null,
    unusable: "it has no known setting for a base URL",
  },

  // Chat applications.
  {
    id: "open-webui",
    name: "Open WebUI",
    aliases: ["openwebui", "webui"],
    baseUrlField: "URL",
    where: "Admin > Settings > Connections, or OPENAI_API_BASE_URL",
    tokenField: "Key (OPENAI_API_KEY)",
    modelField: null,
    setups: [[env({ OPENAI_API_BASE_URL: "{base}", OPENAI_API_KEY: "{token}" })]],
    notes: [DOCKER, "it asks for the list of models itself."],
  },
  {
    id: "cherry-studio",
    name: "Cherry Studio",
    aliases: ["cherry"],
    baseUrlField: "API Host",
    where: "Settings > Model Provider",
    tokenField: "API Key",
    modelField: "Manage models",
    notes: ["it adds /v1 when that is missing; with a # at the end it takes the address literally."],
  },
  {
    id: "lobechat",
    name: "LobeChat",
    aliases: ["lobe", "lobe-chat"],
    baseUrlField: "API proxy URL",
    where: "Settings > AI Service Provider > OpenAI, or OPENAI_PROXY_URL",
    tokenField: "API Key (OPENAI_API_KEY)",
    modelField: "OPENAI_MODEL_LIST",
    model: "+{model}",
    setups: [[env({ OPENAI_PROXY_URL: "{base}", OPENAI_API_KEY: "{token}", OPENAI_MODEL_LIST: "+{model}" })]],
    notes: [DOCKER, BROWSER, "ANTHROPIC_PROXY_URL takes {root}, without /v1."],
  },
  {
    id: "nextchat",
    name: "NextChat",
    aliases: ["chatgpt-next-web"],
    base: "root",
    baseUrlField: "OpenAI Endpoint",
    where: "Settings > Custom Endpoint, or BASE_URL",
    tokenField: "OpenAI API Key (OPENAI_API_KEY)",
    modelField: "Custom Models (CUSTOM_MODELS)",
    model: "+{model}",
    setups: [[env({ BASE_URL: "{base}", OPENAI_API_KEY: "{token}", CUSTOM_MODELS: "+{model}" })]],
    notes: ["it adds v1/chat/completions itself; without http:// in front it uses https.", BROWSER, DOCKER],
  },
  {
    id: "chatbox",
    name: "Chatbox",
    baseUrlField: "API Host",
    where: "Settings > Model Provider > Add > OpenAI API Compatible",
    tokenField: "API Key",
    modelField: "Model",
    notes: ["leave API Path as it is; without http:// in front it uses https.", BROWSER],
  },
  {
    id: "jan",
    name: "Jan",
    baseUrlField: "Base URL",
    where: "Settings > Model Providers > Add Provider",
    tokenField: "API Key",
    modelField: "Models",
  },
  {
    id: "librechat",
    name: "LibreChat",
    aliases: ["libre"],
    baseUrlField: "baseURL",
    where: "endpoints.custom in librechat.yaml",
    tokenField: "apiKey",
    modelField: "models.default",
    setups: [
      [
        file(
          "librechat.yaml",
          "yaml",
          `endpoints:
  custom:
    - name: keybearer
      apiKey: "{token}"
      baseURL: "{base}"
      models:
        default: ["{model}"]
        fetch: true`,
        ),
      ],
    ],
    notes: [DOCKER, "with provider: anthropic, baseURL is {root}, without /v1."],
  },

  // Libraries.
  {
    id: "openai-node",
    name: "OpenAI SDK for JavaScript",
    aliases: ["openai-js", "openai"],
    baseUrlField: "OPENAI_BASE_URL",
    where: "the environment, or baseURL in code",
    tokenField: "OPENAI_API_KEY",
    modelField: MODEL_IN_CALL,
    setups: [[OPENAI_ENV]],
    asksUsage: false,
    prefers: GPT,
  },
  {
    id: "openai-python",
    name: "OpenAI SDK for Python",
    aliases: ["openai"],
    baseUrlField: "OPENAI_BASE_URL",
    where: "the environment, or base_url in code",
    tokenField: "OPENAI_API_KEY",
    modelField: MODEL_IN_CALL,
    setups: [[OPENAI_ENV]],
    asksUsage: false,
    prefers: GPT,
  },
  {
    id: "anthropic-node",
    name: "Anthropic SDK for JavaScript",
    aliases: ["anthropic-js", "anthropic"],
    base: "root",
    baseUrlField: "ANTHROPIC_BASE_URL",
    where: "the environment, or baseURL in code",
    tokenField: "ANTHROPIC_API_KEY",
    modelField: MODEL_IN_CALL,
    setups: [[ANTHROPIC_ENV]],
    prefers: CLAUDE,
  },
  {
    id: "anthropic-python",
    name: "Anthropic SDK for Python",
    aliases: ["anthropic"],
    base: "root",
    baseUrlField: "ANTHROPIC_BASE_URL",
    where: "the environment, or base_url in code",
    tokenField: "ANTHROPIC_API_KEY",
    modelField: MODEL_IN_CALL,
    setups: [[ANTHROPIC_ENV]],
    notes: ["with ANTHROPIC_AUTH_TOKEN set as well it sends both, and keybearer refuses two different ones."],
    prefers: CLAUDE,
  },
  {
    id: "ai-sdk",
    name: "Vercel AI SDK",
    aliases: ["vercel-ai", "vercel"],
    baseUrlField: "baseURL",
    where: "createOpenAICompatible, createOpenAI or createAnthropic",
    tokenField: "apiKey",
    modelField: MODEL_IN_CALL,
    setups: [
      [
        javascript(
          'import { createOpenAICompatible } from "@ai-sdk/openai-compatible";',
          "",
          "const keybearer = createOpenAICompatible({",
          '  name: "keybearer",',
          '  baseURL: "{base}",',
          "  apiKey: process.env.KEYBEARER_TOKEN,",
          "  includeUsage: true,",
          "});",
          'const model = keybearer("{model}");',
        ),
        TOKEN_ENV,
      ],
    ],
    notes: [
      "with /v1 for all three, createAnthropic too; createOpenAI uses the Responses API unless .chat().",
    ],
  },
  {
    id: "langchain-js",
    name: "LangChain for JavaScript",
    aliases: ["langchain"],
    baseUrlField: "OPENAI_BASE_URL",
    where: "the environment, or configuration.baseURL in code",
    tokenField: "OPENAI_API_KEY",
    modelField: "model",
    setups: [[OPENAI_ENV]],
    notes: ["anthropicApiUrl of ChatAnthropic is {root}, without /v1."],
  },
  {
    id: "langchain-python",
    name: "LangChain for Python",
    aliases: ["langchain"],
    baseUrlField: "OPENAI_API_BASE",
    where: "the environment, or base_url in code",
    tokenField: "OPENAI_API_KEY",
    modelField: "model",
    setups: [[env({ OPENAI_API_BASE: "{base}", OPENAI_API_KEY: "{token}" })]],
    notes: ["ChatAnthropic takes ANTHROPIC_API_URL={root}, without /v1."],
  },
  {
    id: "llamaindex",
    name: "LlamaIndex",
    aliases: ["llama-index"],
    baseUrlField: "baseURL",
    where: "new OpenAI({ … }) in code; Python: OpenAILike(api_base=…)",
    tokenField: "apiKey",
    modelField: "model",
    setups: [
      [
        javascript(
          'import { OpenAI } from "@llamaindex/openai";',
          "",
          "const llm = new OpenAI({",
          '  model: "{model}",',
          '  baseURL: "{base}",',
          "  apiKey: process.env.KEYBEARER_TOKEN,",
          "});",
        ),
        TOKEN_ENV,
      ],
    ],
    asksUsage: false,
    notes: ["in Python also is_chat_model=True."],
  },

  // Everything else.
  {
    id: "curl",
    name: "curl",
    baseUrlField: "the URL",
    where: "the command line",
    tokenField: "Authorization: Bearer",
    modelField: '"model" in the body',
    setups: [
      [
        TOKEN_ENV,
        command(`curl {base}/models -H "Authorization: Bearer $KEYBEARER_TOKEN"
curl -N {base}/chat/completions \\
  -H "Authorization: Bearer $KEYBEARER_TOKEN" \\
  -H 'content-type: application/json' \\
  -d '{"model":"{model}","messages":[{"role":"user","content":"hi"}]}'`),
      ],
    ],
  },
  {
    id: "openai-compatible",
    name: "anything that takes an OpenAI-style address",
    baseUrlField: "Base URL",
    where: "also called API Host, API address, endpoint, interface address, provider URL",
    tokenField: "API Key",
    modelField: "Model",
    setups: [[OPENAI_ENV]],
    notes: [
      "never the whole path: no /chat/completions at the end. keybearer answers a wrong address with the right one.",
    ],
  },
  {
    id: "messages-compatible",
    name: "anything that takes a messages-style address",
    base: "root",
    baseUrlField: "Base URL",
    where: "also called API Host, API address, endpoint",
    tokenField: "API Key",
    modelField: "Model",
    setups: [[ANTHROPIC_ENV]],
    notes: ["some add only /messages, and need {v1}: keybearer answers a wrong address with the right one."],
    prefers: CLAUDE,
  },
  {
    id: "url-only",
    name: "anything that cannot send a header",
    baseUrlField: "Base URL",
    where: "with the token in it; needs token_in_url: true for the tool",
    baseUrl: "{root}/t/{token}/v1",
    tokenField: "none: leave it empty, or put the token there again",
    modelField: "Model",
    notes: [
      "an address is shown and stored in more places than a header: prefer a client that can send one.",
    ],
  },
];

/** All known clients, in the order in which they are listed. */
export const CLIENTS: readonly Client[] = ENTRIES.map((entry) => ({ ...DEFAULTS, ...entry }));

/** How to get a token for a tool: with the client's settings around it, where the tool's name says which client it is. */
export function tokenAdvice(tool: string): string {
  return guessClients(tool).length === 1 ? advice.useNewToken(tool, null) : advice.newToken(tool);
}
