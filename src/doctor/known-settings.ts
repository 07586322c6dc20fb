import { CLIENTS } from "../clients/table.ts";

/**
 * What a setting holds: the address of requests, the credential, a switch to another cloud (Bedrock, Vertex), or a program
 * that prints the credential.
 */
type Role = "address" | "key" | "cloud" | "helper";

/** A variable or field by which known clients decide where requests go and with which credential. */
export interface KnownSetting {
  readonly name: string;
  readonly role: Role;
  /** Settings of one family belong to one request: ANTHROPIC_API_KEY goes where ANTHROPIC_BASE_URL says. */
  readonly family: string;
  /** Ids of the clients that read it. */
  readonly clients: readonly string[];
}

/**
 * Variables that a client reads although `use` never sets them. Each can win over the settings that point at keybearer, or
 * be sent beside the token.
 */
const MORE_VARIABLES: readonly (readonly [name: string, role: Role, client: string])[] = [
  ["CLAUDE_CODE_USE_BEDROCK", "cloud", "claude-code"],
  ["CLAUDE_CODE_USE_VERTEX", "cloud", "claude-code"],
  ["CLAUDE_CODE_OAUTH_TOKEN", "key", "claude-code"],
  ["ANTHROPIC_API_URL", "address", "langchain-python"],
  ["ANTHROPIC_HOST", "address", "goose"],
  ["ANTHROPIC_PROXY_URL", "address", "lobechat"],
  ["CODEX_API_KEY", "key", "codex"],
  ["OPENAI_API_KEY", "key", "codex"],
  ["OPENAI_API_KEY", "key", "opencode"],
  ["ANTHROPIC_API_KEY", "key", "opencode"],
  ["GEMINI_API_KEY", "key", "opencode"],
  ["GOOGLE_API_KEY", "key", "gemini-cli"],
  ["GOOGLE_GENAI_USE_VERTEXAI", "cloud", "gemini-cli"],
  ["OPENROUTER_API_KEY", "key", "opencode"],
];

/** NextChat reads BASE_URL, but so does everything else: alone it says nothing. */
const TOO_COMMON = /^(?:BASE_URL|URL|KEYBEARER_\w+)$/;

/** The variables that point known clients somewhere, each once. */
export function knownVariables(): readonly KnownSetting[] {
  const found = new Map<string, { readonly role: Role; readonly clients: Set<string> }>();
  const add = (name: string, role: Role | null, client: string) => {
    if (role === null || TOO_COMMON.test(name)) return;
    const known = found.get(name);
    if (known === undefined) found.set(name, { role, clients: new Set([client]) });
    else known.clients.add(client);
  };
  for (const { id, setups } of CLIENTS) {
    for (const step of setups.flat()) {
      if (step.kind !== "env") continue;
      for (const [name, text] of Object.entries(step.set)) add(name, findRole(text), id);
      for (const name of step.unset) add(name, "key", id);
    }
  }
  for (const [name, role, client] of MORE_VARIABLES) add(name, role, client);
  return [...found].map(([name, { role, clients }]) => ({
    name,
    role,
    family: findFamily(name),
    clients: [...clients],
  }));
}

/** Older or other spellings that clients' files have, but the table of clients does not. */
const MORE_FIELDS: readonly (readonly [name: string, role: Role])[] = [
  ["openai_base_url", "address"],
  ["openAiBaseUrl", "address"],
  ["anthropicBaseUrl", "address"],
  ["openAiApiKey", "key"],
  ["openai-api-key", "key"],
  ["anthropic-api-key", "key"],
  ["experimental_bearer_token", "key"],
  ["primaryApiKey", "key"],
  ["apiKeyHelper", "helper"],
];

/** The fields of a client's own file, and the variables, which many such files hold, too. */
export function knownFields(client: string, variables: readonly KnownSetting[]): readonly KnownSetting[] {
  const roles = new Map<string, Role>(MORE_FIELDS);
  for (const step of CLIENTS.flatMap(({ setups }) => setups.flat())) {
    if (step.kind !== "file") continue;
    for (const [, name = "", value = ""] of step.text.matchAll(/([\w-]+)["']?\s*[:=]\s*["'](\{\w+\})/g)) {
      const role = findRole(value);
      if (role !== null) roles.set(name, role);
    }
  }
  for (const { name } of variables) roles.delete(name);
  const fields = [...roles].map(([name, role]) => ({ name, role, family: client, clients: [client] }));
  return [...fields, ...variables];
}

/** By the placeholder that the table of clients has as its value. */
function findRole(text: string): Role | null {
  if (/\{(?:base|root|v1)\}/.test(text)) return "address";
  return text === "{token}" ? "key" : null;
}

function findFamily(variable: string): string {
  if (/^(?:ANTHROPIC|CLAUDE)_/.test(variable)) return "anthropic";
  if (/^(?:GOOGLE|GEMINI)_/.test(variable)) return "gemini";
  if (/^(?:OPENAI|CODEX)_/.test(variable)) return "openai";
  return variable.split("_")[0]?.toLowerCase() ?? variable;
}
