import { randomBytes } from "node:crypto";
import { parseConfig } from "../config/parse.ts";
import { DEFAULT_LISTEN, type Listen, SANDBOX } from "../config/schema.ts";
import { consoleSecretName, type KeyState, Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import { Secret } from "../core/secret.ts";
import { hashToken, makeToken } from "../core/token.ts";
import { MODELS } from "../sandbox/models.ts";
import { Sandbox } from "../sandbox/sandbox.ts";

/** Serves without a config.yaml: the sandbox, one tool, its token and its key, all new with each start. */
export interface SandboxSession {
  readonly sandbox: Sandbox;
  readonly snapshot: Snapshot;
  readonly token: string;
  /** Worth nothing outside this sandbox. A request with it, past keybearer, shows what a leak looks like. */
  readonly gatewayKey: string;
  readonly model: string;
  /** The keys of its snapshot, with another one for the tool. */
  keysWith(key: Secret): ReadonlyMap<string, KeyState>;
  /** False once there is a config.yaml. */
  serving(): boolean;
  /** There is a config.yaml. Requests in flight may finish. */
  end(): Promise<void>;
  stop(): Promise<void>;
}

const TOOL = "try-me";
const GRACE_MS = 10_000;

export async function startSandboxSession(
  clock: Clock,
  log: Logger,
  listen: Listen = DEFAULT_LISTEN,
): Promise<SandboxSession> {
  const sandbox = new Sandbox(clock, log);
  await sandbox.start();
  const gatewayKey = `sk-sandbox-${randomBytes(24).toString("hex")}`;
  sandbox.account.createKey({ name: TOOL, group: "default", customKey: gatewayKey });
  const token = makeToken();
  let isServing = true;
  return {
    sandbox,
    snapshot: snapshotFor(sandbox, gatewayKey, token, listen),
    token,
    gatewayKey,
    model: "sandbox-small",
    keysWith: (key) => keysFor(sandbox, key),
    serving: () => isServing,
    async end() {
      isServing = false;
      await sandbox.stop(GRACE_MS);
    },
    stop: () => sandbox.stop(),
  };
}

/** The configuration is read like that of a file, so that every default is the same. JSON is YAML. */
function snapshotFor(
  { account, baseUrl, origin }: Sandbox,
  key: string,
  token: string,
  listen: Listen,
): Snapshot {
  const text = JSON.stringify({
    listen: `${listen.host}:${listen.port}`,
    // If the data port is any free one, the dashboard takes a free one too.
    ...(listen.port === 0 ? { dashboard: { listen: `${listen.host}:0` } } : {}),
    gateways: {
      [SANDBOX]: {
        base_url: baseUrl,
        console: {
          kind: "sub2api",
          url: origin,
          login: { email: account.email, password: account.password.reveal() },
          schedule: "* * * * *",
        },
      },
    },
    tools: { [TOOL]: { key, token: `sha256:${hashToken(token)}`, token_in_url: true, ask_usage: true } },
    prices: Object.fromEntries(
      MODELS.map(({ id, price }) => [
        id,
        {
          input: price.input,
          output: price.output,
          cache_read: price.cacheRead,
          cache_write: price.cacheWrite,
        },
      ]),
    ),
  });
  const { config, problems } = parseConfig(text, "/");
  if (config === null) throw new Error(problems.map(({ message }) => message).join("; "));
  return new Snapshot(1, config, keysFor({ account }, new Secret(key)), []);
}

function keysFor({ account }: Pick<Sandbox, "account">, key: Secret): ReadonlyMap<string, KeyState> {
  return new Map<string, KeyState>([
    [TOOL, { state: "ready", key }],
    [consoleSecretName(SANDBOX, null, "password"), { state: "ready", key: account.password }],
  ]);
}
