import { ANY, CLAUDE, type Client, GPT, KEYBEARER_TOKEN, type Part } from "../client.ts";

const OPENAI_ENV: Part = {
  kind: "env",
  set: [
    ["OPENAI_BASE_URL", "{base}"],
    ["OPENAI_API_KEY", "{token}"],
  ],
};
const ANTHROPIC_ENV: Part = {
  kind: "env",
  set: [
    ["ANTHROPIC_BASE_URL", "{base}"],
    ["ANTHROPIC_API_KEY", "{token}"],
  ],
  unset: ["ANTHROPIC_AUTH_TOKEN"],
};
const IN_CALL = "model, in each call";

function lines(...all: readonly string[]): string {
  return all.join("\n");
}

export const LIBRARIES: readonly Client[] = [
  {
    id: "openai-node",
    name: "OpenAI SDK for JavaScript",
    aliases: ["openai-js", "openai"],
    label: "OPENAI_BASE_URL",
    where: "the environment, or baseURL in code",
    base: "v1",
    keyLabel: "OPENAI_API_KEY",
    modelLabel: IN_CALL,
    ways: [[OPENAI_ENV]],
    notes: [
      "streams tell no usage unless asked: ask_usage: true for the tool, or stream_options in the call.",
    ],
    prefers: GPT,
    unusable: null,
  },
  {
    id: "openai-python",
    name: "OpenAI SDK for Python",
    aliases: ["openai"],
    label: "OPENAI_BASE_URL",
    where: "the environment, or base_url in code",
    base: "v1",
    keyLabel: "OPENAI_API_KEY",
    modelLabel: IN_CALL,
    ways: [[OPENAI_ENV]],
    notes: [
      "streams tell no usage unless asked: ask_usage: true for the tool, or stream_options in the call.",
    ],
    prefers: GPT,
    unusable: null,
  },
  {
    id: "anthropic-node",
    name: "Anthropic SDK for JavaScript",
    aliases: ["anthropic-js", "anthropic"],
    label: "ANTHROPIC_BASE_URL",
    where: "the environment, or baseURL in code",
    base: "root",
    keyLabel: "ANTHROPIC_API_KEY",
    modelLabel: IN_CALL,
    ways: [[ANTHROPIC_ENV]],
    notes: [],
    prefers: CLAUDE,
    unusable: null,
  },
  {
    id: "anthropic-python",
    name: "Anthropic SDK for Python",
    aliases: ["anthropic"],
    label: "ANTHROPIC_BASE_URL",
    where: "the environment, or base_url in code",
    base: "root",
    keyLabel: "ANTHROPIC_API_KEY",
    modelLabel: IN_CALL,
    ways: [[ANTHROPIC_ENV]],
    notes: ["with ANTHROPIC_AUTH_TOKEN set as well it sends both, and keybearer refuses two different ones."],
    prefers: CLAUDE,
    unusable: null,
  },
  {
    id: "ai-sdk",
    name: "Vercel AI SDK",
    aliases: ["vercel-ai", "vercel"],
    label: "baseURL",
    where: "createOpenAICompatible, createOpenAI or createAnthropic",
    base: "v1",
    keyLabel: "apiKey",
    modelLabel: IN_CALL,
    ways: [
      [
        {
          kind: "code",
          format: "javascript",
          text: lines(
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
        },
        { kind: "env", set: [KEYBEARER_TOKEN] },
      ],
    ],
    notes: [
      "with /v1 for all three, createAnthropic too; createOpenAI uses the Responses API unless .chat().",
    ],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "langchain-js",
    name: "LangChain for JavaScript",
    aliases: ["langchain"],
    label: "OPENAI_BASE_URL",
    where: "the environment, or configuration.baseURL in code",
    base: "v1",
    keyLabel: "OPENAI_API_KEY",
    modelLabel: "model",
    ways: [[OPENAI_ENV]],
    notes: ["anthropicApiUrl of ChatAnthropic is {root}, without /v1."],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "langchain-python",
    name: "LangChain for Python",
    aliases: ["langchain"],
    label: "OPENAI_API_BASE",
    where: "the environment, or base_url in code",
    base: "v1",
    keyLabel: "OPENAI_API_KEY",
    modelLabel: "model",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["OPENAI_API_BASE", "{base}"],
            ["OPENAI_API_KEY", "{token}"],
          ],
        },
      ],
    ],
    notes: ["ChatAnthropic takes ANTHROPIC_API_URL={root}, without /v1."],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "llamaindex",
    name: "LlamaIndex",
    aliases: ["llama-index"],
    label: "baseURL",
    where: "new OpenAI({ … }) in code; Python: OpenAILike(api_base=…)",
    base: "v1",
    keyLabel: "apiKey",
    modelLabel: "model",
    ways: [
      [
        {
          kind: "code",
          format: "javascript",
          text: lines(
            'import { OpenAI } from "@llamaindex/openai";',
            "",
            "const llm = new OpenAI({",
            '  model: "{model}",',
            '  baseURL: "{base}",',
            "  apiKey: process.env.KEYBEARER_TOKEN,",
            "});",
          ),
        },
        { kind: "env", set: [KEYBEARER_TOKEN] },
      ],
    ],
    notes: ["in Python also is_chat_model=True. streams tell no usage unless the tool has ask_usage: true."],
    prefers: ANY,
    unusable: null,
  },
];
