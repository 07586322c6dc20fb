import { CLIENTS, type Client } from "../../clients/table.ts";

/** What a setting holds: where requests go, what is shown there, or that they go to a cloud of another kind. */
export type Role = "base" | "key" | "detour" | "helper";

export interface Meaning {
  readonly name: string;
  readonly role: Role;
  /** Settings of one family belong to one request: ANTHROPIC_API_KEY goes where ANTHROPIC_BASE_URL says. */
  readonly family: string;
  /** Ids of the clients that read it. */
  readonly clients: readonly string[];
}

/**
 * Beside what the table of clients sets: what a client reads although `use` never sets it. Each can win over the
 * settings that point at keybearer, or be sent beside the token.
 */
const ALSO: readonly (readonly [name: string, role: Role, client: string])[] = [
  ["CLAUDE_CODE_USE_BEDROCK", "detour", "claude-code"],
  ["CLAUDE_CODE_USE_VERTEX", "detour", "claude-code"],
  ["CLAUDE_CODE_OAUTH_TOKEN", "key", "claude-code"],
  ["ANTHROPIC_API_URL", "base", "langchain-python"],
  ["ANTHROPIC_HOST", "base", "goose"],
  ["ANTHROPIC_PROXY_URL", "base", "lobechat"],
  ["CODEX_API_KEY", "key", "codex"],
  ["GOOGLE_API_KEY", "key", "gemini-cli"],
  ["GOOGLE_GENAI_USE_VERTEXAI", "detour", "gemini-cli"],
  ["OPENROUTER_API_KEY", "key", "opencode"],
];

/** BASE_URL is NextChat's, and everybody else's too: alone it says nothing. */
const TOO_COMMON = /^(?:BASE_URL|URL|KEYBEARER_\w+)$/;

/** The variables that point known clients somewhere, each once. */
export function variables(): readonly Meaning[] {
  const found = CLIENTS.flatMap((client) =>
    client.setups.flat().flatMap((part) => {
      if (part.kind !== "env") return [];
      const set = Object.entries(part.set).flatMap(([name, text]) => {
        const role = roleOf(text);
        return role === null ? [] : [{ name, role, client: client.id }];
      });
      const unset = part.unset.map((name) => ({ name, role: "key" as const, client: client.id }));
      return [...set, ...unset];
    }),
  );
  const all = [...found, ...ALSO.map(([name, role, client]) => ({ name, role, client }))];
  return [...new Set(all.map(({ name }) => name))]
    .filter((name) => !TOO_COMMON.test(name))
    .map((name) => {
      const same = all.filter((each) => each.name === name);
      return {
        name,
        role: same[0]?.role ?? "key",
        family: familyOf(name),
        clients: [...new Set(same.map(({ client }) => client))],
      };
    });
}

/** Not in the snippets, but in the files: older or other spellings of the same fields. */
const ALSO_FIELDS: readonly (readonly [name: string, role: Role])[] = [
  ["openai_base_url", "base"],
  ["openAiBaseUrl", "base"],
  ["anthropicBaseUrl", "base"],
  ["openAiApiKey", "key"],
  ["openai-api-key", "key"],
  ["anthropic-api-key", "key"],
  ["experimental_bearer_token", "key"],
  ["primaryApiKey", "key"],
  ["apiKeyHelper", "helper"],
];

/** Fields of a client's own file, and the variables too, which many files hold. */
export function fieldsOf(client: string): readonly Meaning[] {
  const texts = CLIENTS.flatMap(({ setups }) => setups.flat()).flatMap((part) =>
    part.kind === "file" ? [part.text] : [],
  );
  const shown = texts.flatMap((text) =>
    [...text.matchAll(/([\w-]+)["']?\s*[:=]\s*["'](\{\w+\})/g)].flatMap(([, name = "", value = ""]) => {
      const role = roleOf(value);
      return role === null ? [] : [[name, role] as const];
    }),
  );
  const known = variables();
  const names = [...shown, ...ALSO_FIELDS].filter(
    ([name], at, all) =>
      all.findIndex(([other]) => other === name) === at && known.every((variable) => variable.name !== name),
  );
  return [...names.map(([name, role]) => ({ name, role, family: client, clients: [client] })), ...known];
}

export function clientName(id: string): string {
  return clientOf(id)?.name ?? id;
}

function clientOf(id: string): Client | undefined {
  return CLIENTS.find((client) => client.id === id);
}

function roleOf(text: string): Role | null {
  if (/\{(?:base|root|v1)\}/.test(text)) return "base";
  return text === "{token}" ? "key" : null;
}

function familyOf(name: string): string {
  if (/^(?:ANTHROPIC|CLAUDE)_/.test(name)) return "anthropic";
  if (/^(?:GOOGLE|GEMINI)_/.test(name)) return "gemini";
  if (/^(?:OPENAI|CODEX)_/.test(name)) return "openai";
  return name.split("_")[0]?.toLowerCase() ?? name;
}
