/**
 * What a variable holds: the address of requests, a key, the proof of a login (OAuth, a subscription), a switch to another
 * cloud, or a program that prints the key.
 */
export type VariableRole = "address" | "key" | "login" | "cloud" | "helper";

/** An environment variable by which clients decide where requests go, and with which credential. */
export interface KnownVariable {
  readonly name: string;
  readonly role: VariableRole;
  /** Variables of one family belong to one request: ANTHROPIC_API_KEY goes where ANTHROPIC_BASE_URL says. */
  readonly family: string;
  /** Ids of the clients that read it, who is meant first at the front. */
  readonly clients: readonly string[];
  /**
   * For a key: the names of the variables with its address. The first one is written if none is set. Empty: no client takes
   * another address for it, so it cannot be moved.
   */
  readonly address: readonly string[];
  /** For a key: where requests go if no address is set; null: it depends. */
  readonly builtIn: string | null;
  /** For an address, and the built-in one: whether it has the version segment. */
  readonly base: "root" | "v1";
}

interface More {
  readonly address?: readonly string[];
  readonly builtIn?: string;
  readonly base?: "root" | "v1";
}

function variable(
  role: VariableRole,
  name: string,
  clients: readonly string[],
  { address = [], builtIn, base = "v1" }: More = {},
): KnownVariable {
  return { name, role, family: familyOf(name), clients, address, builtIn: builtIn ?? null, base };
}

function familyOf(name: string): string {
  if (/^(?:ANTHROPIC|CLAUDE)_/.test(name)) return "anthropic";
  if (/^(?:GOOGLE|GEMINI)_/.test(name)) return "gemini";
  if (/^(?:AZURE)_/.test(name)) return "azure";
  if (/^(?:OPENAI|CODEX)_/.test(name)) return "openai";
  return name.split("_")[0]?.toLowerCase() ?? name;
}

const ANTHROPIC = "https://api.anthropic.com";
const OPENAI = "https://api.openai.com/v1";
const GEMINI = "https://generativelanguage.googleapis.com";

const ANTHROPIC_CLIENTS = [
  "claude-code",
  "opencode",
  "kilo-code",
  "aider",
  "goose",
  "crush",
  "pi",
  "anthropic-node",
  "anthropic-python",
  "langchain-js",
  "langchain-python",
];
const OPENAI_CLIENTS = [
  "codex",
  "qwen-code",
  "aider",
  "llm",
  "goose",
  "opencode",
  "kilo-code",
  "crush",
  "pi",
  "open-webui",
  "lobechat",
  "nextchat",
  "librechat",
  "openai-node",
  "openai-python",
  "langchain-js",
  "langchain-python",
  "openai-compatible",
];
const GEMINI_CLIENTS = ["gemini-cli", "opencode", "kilo-code", "aider", "crush", "pi"];
const OPENAI_ADDRESSES = [
  "OPENAI_BASE_URL",
  "OPENAI_API_BASE",
  "OPENAI_API_BASE_URL",
  "OPENAI_HOST",
  "OPENAI_PROXY_URL",
  "OPENAI_REVERSE_PROXY",
];
const ANTHROPIC_ADDRESSES = [
  "ANTHROPIC_BASE_URL",
  "ANTHROPIC_API_URL",
  "ANTHROPIC_API_BASE",
  "ANTHROPIC_HOST",
  "ANTHROPIC_PROXY_URL",
  "ANTHROPIC_REVERSE_PROXY",
];
const GEMINI_ADDRESSES = ["GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"];

/** Services whose variable no client reads an address beside. The second is where its key goes; null: to one of several. */
const SERVICES: readonly (readonly [name: string, builtIn: string | null])[] = [
  ["OPENROUTER_API_KEY", "https://openrouter.ai/api/v1"],
  ["GROQ_API_KEY", "https://api.groq.com/openai/v1"],
  ["DEEPSEEK_API_KEY", "https://api.deepseek.com/v1"],
  ["MISTRAL_API_KEY", "https://api.mistral.ai/v1"],
  ["XAI_API_KEY", "https://api.x.ai/v1"],
  ["TOGETHER_API_KEY", "https://api.together.xyz/v1"],
  ["CEREBRAS_API_KEY", "https://api.cerebras.ai/v1"],
  ["FIREWORKS_API_KEY", "https://api.fireworks.ai/inference/v1"],
  ["PERPLEXITY_API_KEY", "https://api.perplexity.ai"],
  ["NVIDIA_API_KEY", "https://integrate.api.nvidia.com/v1"],
  ["AI_GATEWAY_API_KEY", "https://ai-gateway.vercel.sh/v1"],
  // Each has an address in China and one elsewhere.
  ["MOONSHOT_API_KEY", null],
  ["KIMI_API_KEY", null],
  ["DASHSCOPE_API_KEY", null],
  ["ZAI_API_KEY", null],
  ["ZHIPU_API_KEY", null],
  ["MINIMAX_API_KEY", null],
];

export const VARIABLES: readonly KnownVariable[] = [
  variable("key", "ANTHROPIC_AUTH_TOKEN", ["claude-code", "anthropic-node", "anthropic-python"], {
    address: ANTHROPIC_ADDRESSES,
    builtIn: ANTHROPIC,
    base: "root",
  }),
  variable("key", "ANTHROPIC_API_KEY", ANTHROPIC_CLIENTS, {
    address: ANTHROPIC_ADDRESSES,
    builtIn: ANTHROPIC,
    base: "root",
  }),
  variable("address", "ANTHROPIC_BASE_URL", ["claude-code", "aider", "anthropic-node", "anthropic-python"], {
    base: "root",
  }),
  variable("address", "ANTHROPIC_API_URL", ["langchain-python"], { base: "root" }),
  variable("address", "ANTHROPIC_API_BASE", ["aider"], { base: "root" }),
  variable("address", "ANTHROPIC_HOST", ["goose"], { base: "root" }),
  variable("address", "ANTHROPIC_PROXY_URL", ["lobechat"], { base: "root" }),
  variable("address", "ANTHROPIC_REVERSE_PROXY", ["librechat"], { base: "root" }),
  variable("login", "CLAUDE_CODE_OAUTH_TOKEN", ["claude-code"]),
  variable("cloud", "CLAUDE_CODE_USE_BEDROCK", ["claude-code"]),
  variable("cloud", "CLAUDE_CODE_USE_VERTEX", ["claude-code"]),
  variable("cloud", "CLAUDE_CODE_USE_FOUNDRY", ["claude-code"]),

  variable("key", "OPENAI_API_KEY", OPENAI_CLIENTS, { address: OPENAI_ADDRESSES, builtIn: OPENAI }),
  variable("key", "CODEX_API_KEY", ["codex"], { builtIn: OPENAI }),
  variable("key", "AIDER_OPENAI_API_KEY", ["aider"], {
    address: ["AIDER_OPENAI_API_BASE", ...OPENAI_ADDRESSES],
    builtIn: OPENAI,
  }),
  variable("key", "AIDER_ANTHROPIC_API_KEY", ["aider"], {
    address: ANTHROPIC_ADDRESSES,
    builtIn: ANTHROPIC,
    base: "root",
  }),
  variable("address", "OPENAI_BASE_URL", [
    "qwen-code",
    "openai-node",
    "openai-python",
    "langchain-js",
    "llm",
  ]),
  variable("address", "OPENAI_API_BASE", ["aider", "langchain-python"]),
  variable("address", "OPENAI_API_BASE_URL", ["open-webui"]),
  variable("address", "OPENAI_HOST", ["goose"], { base: "root" }),
  variable("address", "OPENAI_PROXY_URL", ["lobechat"]),
  variable("address", "OPENAI_REVERSE_PROXY", ["librechat"]),
  variable("address", "AIDER_OPENAI_API_BASE", ["aider"]),

  variable("key", "GEMINI_API_KEY", GEMINI_CLIENTS, {
    address: GEMINI_ADDRESSES,
    builtIn: GEMINI,
    base: "root",
  }),
  variable("key", "GOOGLE_API_KEY", ["gemini-cli", "goose"], {
    address: GEMINI_ADDRESSES,
    builtIn: GEMINI,
    base: "root",
  }),
  variable("key", "GOOGLE_GENERATIVE_AI_API_KEY", ["opencode", "kilo-code"], {
    builtIn: GEMINI,
    base: "root",
  }),
  variable("address", "GOOGLE_GEMINI_BASE_URL", ["gemini-cli"], { base: "root" }),
  variable("address", "GEMINI_BASE_URL", ["aider"], { base: "root" }),
  variable("cloud", "GOOGLE_GENAI_USE_VERTEXAI", ["gemini-cli"]),

  variable("key", "COPILOT_PROVIDER_API_KEY", ["copilot-cli"], { address: ["COPILOT_PROVIDER_BASE_URL"] }),
  variable("key", "COPILOT_PROVIDER_BEARER_TOKEN", ["copilot-cli"], {
    address: ["COPILOT_PROVIDER_BASE_URL"],
  }),
  variable("address", "COPILOT_PROVIDER_BASE_URL", ["copilot-cli"]),

  // keybearer does not speak Azure's paths, so these keys are only reported.
  variable("key", "AZURE_OPENAI_API_KEY", ["aider", "qwen-code"]),
  variable("key", "AZURE_API_KEY", ["aider"]),
  ...SERVICES.map(([name, builtIn]) =>
    variable("key", name, ["opencode", "aider", "crush", "pi"], builtIn === null ? {} : { builtIn }),
  ),
];

export function findVariable(name: string): KnownVariable | null {
  return VARIABLES.find((variable) => variable.name === name) ?? null;
}

/** A name that suggests a key, for variables that only the settings of a client name. */
export function suggestsKey(name: string): boolean {
  return /(?:^|_)(?:API_?KEY|APIKEY|KEY|TOKEN|SECRET)$/i.test(name) && !/^(?:PUBLIC|SSH|GPG)_/i.test(name);
}

const REFERENCES: readonly RegExp[] = [
  // opencode, Kilo
  /^\{env:\s*([A-Za-z_]\w*)\s*\}$/,
  // VS Code, Zed
  /^\$\{env:([A-Za-z_]\w*)\}$/,
  // Crush, pi, shells
  /^\$([A-Za-z_]\w*)$/,
  /^\$\{([A-Za-z_]\w*)(?::?-)?\}$/,
  // Continue
  /^\$\{\{\s*(?:secrets|inputs|env)\.([A-Za-z_]\w*)\s*\}\}$/,
  // LiteLLM
  /^os\.environ\/([A-Za-z_]\w*)$/,
  // pi: the bare name of a variable
  /^([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)$/,
];

/** The variable that a key field refers to instead of holding the key itself; null: it is no reference. */
export function referenceIn(value: string): string | null {
  for (const pattern of REFERENCES) {
    const name = pattern.exec(value.trim())?.[1];
    if (name !== undefined) return name;
  }
  return null;
}

/** The providers that clients know without an address, and where their requests go. */
const PROVIDERS: Readonly<Record<string, string>> = {
  openai: OPENAI,
  anthropic: `${ANTHROPIC}/v1`,
  openrouter: "https://openrouter.ai/api/v1",
  groq: "https://api.groq.com/openai/v1",
  deepseek: "https://api.deepseek.com/v1",
  mistral: "https://api.mistral.ai/v1",
  xai: "https://api.x.ai/v1",
  togetherai: "https://api.together.xyz/v1",
  together: "https://api.together.xyz/v1",
  cerebras: "https://api.cerebras.ai/v1",
};

/** Where a provider's requests go if no address is set; null: not known. */
export function providerAddress(name: string | number | undefined): string | null {
  const known = String(name).toLowerCase();
  return Object.hasOwn(PROVIDERS, known) ? (PROVIDERS[known] ?? null) : null;
}
