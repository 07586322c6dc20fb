import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type Call,
  CLAUDE,
  type Gateway,
  type GatewayOptions,
  type GatewayRow,
  PRICES,
  startGateway,
  TOOLS,
  type ToolKey,
} from "./gateway.ts";

const DATABASE = "keybearer_real";
/** Of the sixteen databases of a Redis. This one is emptied. */
const REDIS_DATABASE = "9";
const ADMIN = "admin@example.com";
const USER = "me@example.com";
const PASSWORD = `Real-${randomBytes(9).toString("hex")}`;

const PLATFORMS = ["anthropic", "openai"] as const;

function platformOf({ model }: Call): (typeof PLATFORMS)[number] {
  return model === CLAUDE ? "anthropic" : "openai";
}

/** A group is of one platform: that of its tool's first call. */
const GROUPS = TOOLS.map(({ group, multiplier, calls }) => ({
  name: group,
  multiplier,
  platform: calls[0] === undefined ? "openai" : platformOf(calls[0]),
}));

/**
 * Needs a Postgres, found by the variables that psql reads (PGHOST, PGPORT, PGUSER, PGPASSWORD), and a Redis at
 * REDIS_HOST and REDIS_PORT. The database keybearer_real is made again, and Redis database 9 is emptied.
 */
export async function startSub2api(options: GatewayOptions): Promise<Gateway> {
  const { folder, provider } = options;
  const { PGHOST = "127.0.0.1", PGPORT = "5432", PGUSER = "postgres", PGPASSWORD = "none" } = process.env;
  const { REDIS_HOST = "127.0.0.1", REDIS_PORT = "6379" } = process.env;
  psql("postgres", `DROP DATABASE IF EXISTS ${DATABASE} WITH (FORCE)`);
  psql("postgres", `CREATE DATABASE ${DATABASE}`);
  const redis = ["-h", REDIS_HOST, "-p", REDIS_PORT, "-n", REDIS_DATABASE, "flushdb"];
  execFileSync("redis-cli", redis, { encoding: "utf8" });
  const prices = join(folder, "prices.json");
  writeFileSync(prices, JSON.stringify(priceFile()));

  const env = (port: string) => ({
    DATA_DIR: folder,
    AUTO_SETUP: "true",
    SERVER_HOST: "127.0.0.1",
    SERVER_PORT: port,
    SERVER_MODE: "release",
    DATABASE_HOST: PGHOST,
    DATABASE_PORT: PGPORT,
    DATABASE_USER: PGUSER,
    DATABASE_PASSWORD: PGPASSWORD,
    DATABASE_DBNAME: DATABASE,
    DATABASE_SSLMODE: "disable",
    REDIS_HOST,
    REDIS_PORT,
    REDIS_DB: REDIS_DATABASE,
    ADMIN_EMAIL: ADMIN,
    ADMIN_PASSWORD: PASSWORD,
    JWT_SECRET: randomBytes(32).toString("hex"),
    TOTP_ENCRYPTION_KEY: randomBytes(32).toString("hex"),
    PRICING_DATA_DIR: folder,
    PRICING_FALLBACK_FILE: prices,
    // The provider is on this machine and speaks http.
    SECURITY_URL_ALLOWLIST_ENABLED: "false",
    SECURITY_URL_ALLOWLIST_ALLOW_PRIVATE_HOSTS: "true",
    SECURITY_URL_ALLOWLIST_ALLOW_INSECURE_HTTP: "true",
    // Rows carry the server's offset. One that is not ours shows a mirror that reads local time.
    TZ: "Asia/Shanghai",
  });
  return startGateway(options, { env, readyPath: "/health" }, async (origin) => {
    // The first version with ids of its own is also long after the first one with chat completions.
    const hasOwnIds = hasColumn("usage_logs", "user_agent");
    return {
      tools: await provision(origin, provider, hasOwnIds),
      console: [
        "kind: sub2api",
        `url: ${origin}`,
        `login: { email: ${USER}, password: ${JSON.stringify(PASSWORD)} }`,
      ],
      // A 503 makes sub2api try again for 20 seconds.
      failures: [400, 429, 500, 502],
      keys: async () => readKeyNames(),
      rows: async () => readRows(hasOwnIds),
    };
  });
}

function psql(database: string, statement: string): string {
  const args = ["-X", "-q", "-A", "-t", "-d", database, "-c", statement];
  const defaults = { PGHOST: "127.0.0.1", PGUSER: "postgres" };
  return execFileSync("psql", args, {
    encoding: "utf8",
    env: { ...defaults, ...process.env },
    stdio: ["ignore", "pipe", "ignore"],
    maxBuffer: 64 * 1024 * 1024,
  });
}

function hasColumn(table: string, column: string): boolean {
  const where = `table_name = '${table}' AND column_name = '${column}'`;
  return psql(DATABASE, `SELECT count(*) FROM information_schema.columns WHERE ${where}`).trim() === "1";
}

/** In the form of LiteLLM's price list, dollars per token. */
function priceFile(): object {
  const entries = Object.entries(PRICES).map(([model, price]) => [
    model,
    {
      litellm_provider: model === CLAUDE ? "anthropic" : "openai",
      mode: "chat",
      input_cost_per_token: price.input / 1e6,
      output_cost_per_token: price.output / 1e6,
      cache_read_input_token_cost: price.cache_read / 1e6,
      cache_creation_input_token_cost: price.cache_write / 1e6,
    },
  ]);
  return Object.fromEntries(entries);
}

/** Groups with their multipliers, an account of the provider for each platform, a user, and a key for each tool. */
async function provision(origin: string, provider: string, hasChat: boolean): Promise<ToolKey[]> {
  const api = async <T>(path: string, body: unknown, token?: string): Promise<T> => {
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (token !== undefined) headers.authorization = `Bearer ${token}`;
    const url = `${origin}/api/v1${path}`;
    const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
    const answer = (await response.json()) as { code: number; message: string; data: T };
    if (answer.code !== 0) throw new Error(`POST ${path}: ${response.status} ${answer.message}`);
    return answer.data;
  };
  const logIn = async (email: string) => {
    const login = { email, password: PASSWORD };
    return (await api<{ access_token: string }>("/auth/login", login)).access_token;
  };

  const admin = await logIn(ADMIN);
  const groupIds = new Map<string, number>();
  for (const { name, platform, multiplier } of GROUPS) {
    const group = { name, platform, rate_multiplier: multiplier, subscription_type: "standard" };
    groupIds.set(name, (await api<{ id: number }>("/admin/groups", group, admin)).id);
  }
  for (const platform of PLATFORMS) {
    const served = GROUPS.filter((group) => group.platform === platform);
    const account = {
      name: platform,
      platform,
      type: "apikey",
      // In pool mode an account stays in use after the provider's errors.
      credentials: {
        api_key: "sk-provider",
        base_url: provider,
        pool_mode: true,
        pool_mode_retry_count: 0,
      },
      concurrency: 200,
      priority: 1,
      group_ids: served.map(({ name }) => groupIds.get(name)),
      confirm_mixed_channel_risk: true,
    };
    await api("/admin/accounts", account, admin);
  }
  const user = { email: USER, password: PASSWORD, username: "me", role: "user" };
  await api("/admin/users", { ...user, balance: 1000, concurrency: 200 }, admin);

  const token = await logIn(USER);
  const tools: ToolKey[] = [];
  for (const tool of TOOLS) {
    const platform = GROUPS.find(({ name }) => name === tool.group)?.platform;
    const calls = tool.calls.filter(
      (call) => platformOf(call) === platform && (hasChat || call.endpoint !== "/v1/chat/completions"),
    );
    const wanted = { name: tool.tool, group_id: groupIds.get(tool.group) };
    const { key } = await api<{ key: string }>("/keys", wanted, token);
    tools.push({ ...tool, key, calls });
  }
  return tools;
}

function readKeyNames(): string[] {
  const names = psql(
    DATABASE,
    `SELECT k.name FROM api_keys k JOIN users u ON u.id = k.user_id
     WHERE u.email = '${USER}' AND k.deleted_at IS NULL ORDER BY k.id`,
  );
  return names.split("\n").filter((name) => name !== "");
}

interface StoredRow {
  readonly request_id: string;
  readonly marker: string;
  readonly ended_ms: number;
  readonly duration_ms: number | null;
  readonly actual_cost: number;
}

/** The user agent names the request. Versions without that column store the provider's id, which names it too. */
function readRows(hasOwnIds: boolean): GatewayRow[] {
  const named = hasOwnIds ? "user_agent" : "request_id";
  const columns = `request_id, ${named} AS marker, extract(epoch FROM created_at) * 1000 AS ended_ms, duration_ms, actual_cost`;
  const listed = `SELECT coalesce(json_agg(t), '[]') FROM (SELECT ${columns} FROM usage_logs ORDER BY id) t`;
  const rows = JSON.parse(psql(DATABASE, listed)) as StoredRow[];
  return rows.map((row) => ({
    requestId: row.request_id.replace(/^client:/, ""),
    marker: /[of]\d{5}/.exec(row.marker)?.[0] ?? null,
    kind: "use",
    startedAt: row.ended_ms - (row.duration_ms ?? 0),
    billedMicrodollars: Math.round(row.actual_cost * 1e6),
  }));
}
