import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type Call,
  CLAUDE,
  EMBEDDING,
  type Gateway,
  type GatewayOptions,
  type GatewayRow,
  GPT,
  PRICES,
  startGateway,
  TOOLS,
  type ToolKey,
} from "./gateway.ts";

const MASTER = `sk-${randomBytes(16).toString("hex")}`;
const USER = "me@example.com";
const LOGIN_KEY = "login";
/** It imports for a minute on two busy cores. */
const PATIENCE_MS = 240_000;

const EMBEDDINGS: Call = { endpoint: "/v1/embeddings", model: EMBEDDING };

/**
 * Needs the Postgres database that DATABASE_URL names, with LiteLLM's own tables. Its usage log, users and keys are deleted. What
 * else the program needs from the environment, it gets from there.
 */
export async function startLiteLlm(options: GatewayOptions): Promise<Gateway> {
  const { folder, provider } = options;
  for (const table of ["SpendLogs", "VerificationToken", "UserTable"])
    psql(`TRUNCATE "LiteLLM_${table}" CASCADE`);
  const config = join(folder, "config.json");
  // JSON is YAML, too.
  writeFileSync(config, JSON.stringify(configFor(provider)), { mode: 0o600 });
  const start = { env: () => ({}), readyPath: "/health/readiness", patience: PATIENCE_MS };
  const args = ["--config", config, "--host", "127.0.0.1", "--port"];
  return startGateway(options, { ...start, args: (port) => [...args, port] }, async (origin) => {
    const { tools, login } = await provision(origin);
    return {
      tools,
      console: [`url: ${origin}`, `login: { access_token: ${JSON.stringify(login)} }`],
      failures: [400, 429, 500, 502],
      hasGroups: false,
      limitsModels: true,
      keys: async () => readKeyNames(),
      rows: async () => readRows(),
    };
  });
}

function configFor(provider: string): object {
  const models = [
    { name: GPT, kind: "openai", base: `${provider}/v1` },
    { name: EMBEDDING, kind: "openai", base: `${provider}/v1` },
    { name: CLAUDE, kind: "anthropic", base: provider },
  ] as const;
  return {
    model_list: models.map(({ name, kind, base }) => ({
      model_name: name,
      litellm_params: { model: `${kind}/${name}`, api_base: base, api_key: "sk-provider", ...pricesOf(name) },
    })),
    // A model with one failure would answer nothing for five seconds.
    router_settings: { disable_cooldowns: true, num_retries: 0 },
    general_settings: { master_key: MASTER, proxy_batch_write_at: 5 },
    litellm_settings: { telemetry: false, num_retries: 0 },
  };
}

/** Dollars per token. */
function pricesOf(model: keyof typeof PRICES): object {
  const price = PRICES[model];
  return {
    input_cost_per_token: price.input / 1e6,
    output_cost_per_token: price.output / 1e6,
    cache_read_input_token_cost: price.cache_read / 1e6,
    cache_creation_input_token_cost: price.cache_write / 1e6,
  };
}

/** A user without a role of the operator's, with a key for each tool and one that logs in. */
async function provision(origin: string): Promise<{ tools: ToolKey[]; login: string }> {
  const api = async <T>(path: string, body: unknown, key: string): Promise<T> => {
    const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
    const response = await fetch(origin + path, { method: "POST", headers, body: JSON.stringify(body) });
    if (response.status !== 200) throw new Error(`POST ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  };
  const user = { user_id: USER, user_email: USER, user_role: "internal_user", auto_create_key: false };
  await api("/user/new", user, MASTER);
  const generate = async (wanted: object, key: string) =>
    (await api<{ key: string }>("/key/generate", wanted, key)).key;
  const login = await generate({ user_id: USER, key_alias: LOGIN_KEY }, MASTER);
  const tools: ToolKey[] = [];
  for (const tool of TOOLS) {
    const key = await generate({ key_alias: tool.tool, key_type: "llm_api" }, login);
    const calls = tool.tool === "scripts" ? [...tool.calls, EMBEDDINGS] : tool.calls;
    tools.push({ ...tool, multiplier: 1, key, calls });
  }
  return { tools, login };
}

function psql(statement: string): string {
  const url = new URL(process.env.DATABASE_URL ?? "");
  return execFileSync("psql", ["-X", "-q", "-A", "-t", "-d", url.href, "-c", statement], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    maxBuffer: 64 * 1024 * 1024,
  });
}

function readKeyNames(): string[] {
  const names = psql(
    `SELECT key_alias FROM "LiteLLM_VerificationToken" WHERE user_id = '${USER}' AND key_alias <> '${LOGIN_KEY}' ORDER BY created_at`,
  );
  return names.split("\n").filter((name) => name !== "");
}

/** The mirror names a row with a longer id by its digest. */
const LONGEST_NAME = 128;

interface StoredRow {
  readonly id: string;
  readonly call_id: string;
  readonly status: string;
  readonly named: string;
  readonly began_ms: number;
  readonly spend: number;
}

/** The trace id of a request names it. keybearer passes it on, and does not read it. */
function readRows(): GatewayRow[] {
  const columns = `request_id AS id, metadata->>'litellm_call_id' AS call_id, metadata->>'status' AS status,
    concat(session_id, ' ', request_id) AS named,
    extract(epoch FROM "startTime" AT TIME ZONE 'UTC') * 1000 AS began_ms, spend`;
  const listed = `SELECT coalesce(json_agg(t), '[]') FROM (SELECT ${columns} FROM "LiteLLM_SpendLogs" WHERE "user" = '${USER}') t`;
  const rows = JSON.parse(psql(listed)) as StoredRow[];
  return rows.map(({ id, call_id, status, named, began_ms, spend }) => ({
    requestId: call_id ?? id,
    identity: id.length <= LONGEST_NAME ? id : createHash("sha256").update(id).digest("hex").slice(0, 32),
    marker: /\b[of]\d{5}\b/.exec(named)?.[0] ?? null,
    kind: status === "failure" ? "error" : "use",
    startedAt: began_ms,
    billedMicrodollars: Math.round(Number((spend * 1e6).toPrecision(15))),
  }));
}
