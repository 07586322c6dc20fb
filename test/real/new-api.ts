import { randomBytes } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import Database from "libsql";
import {
  CLAUDE,
  type Gateway,
  type GatewayOptions,
  type GatewayRow,
  GPT,
  PRICES,
  startGateway,
  TOOLS,
  type ToolKey,
} from "./gateway.ts";

/** New users are in the group default. */
const GROUPS: Readonly<Record<string, number>> = {
  default: 1,
  ...Object.fromEntries(TOOLS.map(({ group, multiplier }) => [group, multiplier])),
};

/** new-api's ratio 1 is two dollars per million tokens. */
const DOLLARS_PER_RATIO = 2;
/** 500,000 units are a dollar. */
const MICRODOLLARS_PER_UNIT = 2;
const PASSWORD = randomBytes(9).toString("base64url");

interface Session {
  readonly user: number;
  readonly token: string;
}

export async function startNewApi(options: GatewayOptions): Promise<Gateway> {
  const { folder, provider } = options;
  const database = join(folder, "one-api.db");
  const logs = join(folder, "logs");
  mkdirSync(logs);
  const env = (port: string) => ({
    PORT: port,
    GIN_MODE: "release",
    SESSION_SECRET: randomBytes(16).toString("hex"),
    SQLITE_PATH: `${database}?_busy_timeout=30000`,
    TZ: "UTC",
  });
  return startGateway(
    options,
    { args: () => ["--log-dir", logs], env, readyPath: "/api/status" },
    async (origin) => {
      const { tools, session } = await provision(origin, provider, database);
      return {
        tools,
        console: [
          "kind: new-api",
          `url: ${origin}`,
          `login: { access_token: ${JSON.stringify(session.token)}, user: "${session.user}" }`,
        ],
        failures: [400, 429, 500, 502, 503],
        keys: async () => readKeyNames(database, session.user),
        rows: async () => readRows(database, markersIn(readFileSync(join(folder, "output.log"), "utf8"))),
      };
    },
  );
}

/** An administrator, prices, groups, two channels to the provider, a user, and a key for each tool. */
async function provision(
  origin: string,
  provider: string,
  database: string,
): Promise<{ tools: ToolKey[]; session: Session }> {
  const api = async (method: string, path: string, body: unknown, session?: Session) => {
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (session !== undefined) {
      headers.authorization = session.token;
      headers["new-api-user"] = String(session.user);
    }
    const init = { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
    const response = await fetch(origin + path, init);
    const text = await response.text();
    const answer = JSON.parse(text) as { success?: boolean; data?: unknown; message?: string };
    if (answer.success !== true) throw new Error(`${method} ${path}: ${response.status} ${answer.message}`);
    return { data: answer.data, cookies: response.headers.getSetCookie() };
  };
  const logIn = async (username: string): Promise<Session> => {
    const login = await api("POST", "/api/user/login", { username, password: PASSWORD });
    const data = login.data as { id?: number; user?: { id: number }; access_token?: string };
    const user = data.id ?? data.user?.id ?? 0;
    const cookie = login.cookies.map((one) => one.split(";", 1)[0]).join("; ");
    // The head wants the token of the login, v0.13.2 its cookie.
    const headers: Record<string, string> = { cookie, "new-api-user": String(user) };
    if (data.access_token !== undefined) headers.authorization = `Bearer ${data.access_token}`;
    const made = await fetch(`${origin}/api/user/token`, { headers });
    const { data: token } = (await made.json()) as { data: string };
    return { user, token };
  };

  await api("POST", "/api/setup", {
    username: "root",
    password: PASSWORD,
    confirmPassword: PASSWORD,
    SelfUseModeEnabled: false,
    DemoSiteEnabled: false,
  });
  const root = await logIn("root");
  const perModel = (ratioOf: (price: (typeof PRICES)[keyof typeof PRICES]) => number) =>
    JSON.stringify(
      Object.fromEntries(Object.entries(PRICES).map(([model, price]) => [model, ratioOf(price)])),
    );
  const groups = Object.keys(GROUPS);
  const settings: Readonly<Record<string, string>> = {
    ModelRatio: perModel(({ input }) => input / DOLLARS_PER_RATIO),
    CompletionRatio: perModel(({ input, output }) => output / input),
    CacheRatio: perModel(({ input, cache_read }) => cache_read / input),
    GroupRatio: JSON.stringify(GROUPS),
    UserUsableGroups: JSON.stringify(Object.fromEntries(groups.map((group) => [group, group]))),
    QuotaForNewUser: "500000000",
    // It answers 503 while the machine is busy, which says nothing about the mirror.
    "performance_setting.monitor_enabled": "false",
  };
  for (const [key, value] of Object.entries(settings)) await api("PUT", "/api/option/", { key, value }, root);

  const channelTypes = { [GPT]: 1, [CLAUDE]: 14 };
  for (const [model, type] of Object.entries(channelTypes)) {
    const channel = {
      type,
      name: model,
      key: "sk-provider",
      base_url: provider,
      models: model,
      group: groups.join(","),
      groups,
      auto_ban: 0,
      status: 1,
    };
    await api("POST", "/api/channel/", { mode: "single", channel }, root);
  }

  await api("POST", "/api/user/", { username: "alice", password: PASSWORD, display_name: "alice" }, root);
  const session = await logIn("alice");
  for (const { tool, group } of TOOLS) {
    const token = { name: tool, group, expired_time: -1, unlimited_quota: true, remain_quota: 0 };
    await api("POST", "/api/token/", token, session);
  }
  const db = new Database(database, { readonly: true });
  const listed = db.prepare("SELECT name, key FROM tokens WHERE user_id = ?").all(session.user) as {
    name: string;
    key: string;
  }[];
  db.close();
  const tools = TOOLS.map((tool) => {
    const found = listed.find(({ name }) => name === tool.tool);
    if (found === undefined) throw new Error(`new-api did not make a key for ${tool.tool}`);
    return { ...tool, key: `sk-${found.key}` };
  });
  return { tools, session };
}

function readKeyNames(database: string, user: number): string[] {
  const db = new Database(database, { readonly: true });
  const listed = db
    .prepare("SELECT name FROM tokens WHERE user_id = ? AND deleted_at IS NULL ORDER BY id")
    .all(user) as { name: string }[];
  db.close();
  return listed.map(({ name }) => name);
}

/** The access log has the request id and the address, and the address has the marker. */
function markersIn(log: string): Map<string, string> {
  const markers = new Map<string, string>();
  for (const line of log.split("\n")) {
    const marker = /[?&]m=(\w+)/.exec(line)?.[1];
    const id = line.split("|")[2]?.trim();
    if (line.startsWith("[GIN]") && marker !== undefined && id !== undefined) markers.set(id, marker);
  }
  return markers;
}

function readRows(database: string, markers: ReadonlyMap<string, string>): GatewayRow[] {
  const db = new Database(database, { readonly: true });
  const rows = db
    .prepare("SELECT request_id, type, quota FROM logs WHERE type IN (2, 5) ORDER BY id")
    .all() as { request_id: string; type: number; quota: number }[];
  db.close();
  return rows.map(({ request_id: requestId, type, quota }) => ({
    requestId,
    marker: markers.get(requestId) ?? null,
    kind: type === 2 ? "use" : "error",
    startedAt: startIn(requestId),
    billedMicrodollars: quota * MICRODOLLARS_PER_UNIT,
  }));
}

/**
 * A request id begins with the time of the request in UTC, 20261116210052, and its nanoseconds. 16 characters follow.
 * v0.13.2 does not write the nanoseconds with leading zeros.
 */
function startIn(id: string): number {
  const [, year, month, day, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)/.exec(id) ?? [];
  const whole = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  return whole + Number(id.slice(14, -16)) / 1e6;
}
