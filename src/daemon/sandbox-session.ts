import { randomBytes } from "node:crypto";
import {
  DEFAULT_DASHBOARD,
  DEFAULT_LIMITS,
  DEFAULT_LISTEN,
  DEFAULT_LOG,
  DEFAULT_USAGE,
  SANDBOX,
} from "../config/defaults.ts";
import { gatewayFromUrl } from "../config/fields/gateway.ts";
import type { Config, Gateway, Listen, Named, Price, Tool } from "../config/shape.ts";
import { consoleSecretName, createSnapshot, type Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import type { KeyState } from "../core/key-source.ts";
import type { Secret } from "../core/secret.ts";
import { hashToken, makeToken } from "../core/token.ts";
import { MODELS } from "../sandbox/models.ts";
import { createSandbox, type Sandbox } from "../sandbox/sandbox.ts";

/** What somebody without a config.yaml is served with: the sandbox, a tool and a token, all new each run. */
export interface SandboxSession {
  readonly sandbox: Sandbox;
  readonly snapshot: Snapshot;
  readonly token: string;
  /** The key itself, worthless outside this sandbox: with it a newcomer can see what a leak looks like. */
  readonly playKey: string;
  readonly model: string;
  /** Still the gateway: no config.yaml has come. */
  serving(): boolean;
  /** A config.yaml came. What began on the sandbox may finish there. */
  end(): Promise<void>;
  stop(): Promise<void>;
}

const TOOL = "try-me";
const LINGER_MS = 10_000;
/** No list knows the sandbox's models; what its console charges is known here. In micro-dollars per million tokens. */
const PRICES: Named<Price> = Object.freeze(
  Object.fromEntries(
    MODELS.map(({ id, price }) => [
      id,
      Object.freeze({
        input: price.input * 1e6,
        output: price.output * 1e6,
        cacheRead: price.cacheRead * 1e6,
        cacheWrite: price.cacheWrite * 1e6,
      }),
    ]),
  ),
);

export async function startSandboxSession(
  clock: Clock,
  listen: Listen = DEFAULT_LISTEN,
): Promise<SandboxSession> {
  const sandbox = createSandbox({ clock });
  await sandbox.start();
  const playKey = `sk-sandbox-${randomBytes(24).toString("hex")}`;
  const { key } = sandbox.createKey({ name: TOOL, group: "default", customKey: playKey });
  const token = makeToken();
  const config = configFor(sandbox, { secret: key, tokenHash: hashToken(token) }, listen);
  let serving = true;
  let stopped = false;
  return {
    sandbox,
    snapshot: createSnapshot(1, config, keysOf(key, sandbox), []),
    token,
    playKey,
    model: "sandbox-small",
    serving: () => serving,
    async end() {
      serving = false;
      const deadline = clock.elapsed() + LINGER_MS;
      while (sandbox.keys().some(({ running }) => running > 0) && clock.elapsed() < deadline && !stopped) {
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
      await sandbox.stop();
    },
    async stop() {
      stopped = true;
      await sandbox.stop();
    },
  };
}

function keysOf(key: Secret, { login }: Sandbox): ReadonlyMap<string, KeyState> {
  return new Map([
    [TOOL, { state: "ready", key }],
    [consoleSecretName(SANDBOX, null, "password"), { state: "ready", key: login.password }],
  ]);
}

/** With the sandbox's own console, so that the mirror can be tried, too. */
function gatewayOf({ baseUrl, consoleUrl, login }: Sandbox): Gateway {
  const password = Object.freeze({ kind: "literal" as const, secret: login.password });
  const how = { name: null, email: login.email, user: null, password, accessToken: null, refreshToken: null };
  return Object.freeze({
    ...gatewayFromUrl(SANDBOX, baseUrl),
    console: Object.freeze({
      kind: "sub2api" as const,
      url: consoleUrl,
      logins: Object.freeze([Object.freeze(how)]),
      schedule: "* * * * *",
    }),
  });
}

function configFor(sandbox: Sandbox, access: { secret: Secret; tokenHash: string }, listen: Listen): Config {
  const tool: Tool = Object.freeze({
    name: TOOL,
    gateway: SANDBOX,
    group: null,
    key: Object.freeze({ kind: "literal", secret: access.secret }),
    tokens: Object.freeze([access.tokenHash]),
    tokenInUrl: true,
    process: null,
    allowOrigins: Object.freeze([]),
    model: null,
    limits: DEFAULT_LIMITS,
    quota: null,
    expires: null,
    enabled: true,
    askUsage: false,
    estimate: false,
    keysElsewhere: false,
    watchOnly: false,
  });
  return Object.freeze({
    listen,
    // Where a free port is taken for the tools, no fixed one is wanted for the page either.
    dashboard: listen.port === 0 ? Object.freeze({ ...DEFAULT_DASHBOARD, listen }) : DEFAULT_DASHBOARD,
    gateways: Object.freeze({ [SANDBOX]: gatewayOf(sandbox) }),
    tools: Object.freeze({ [TOOL]: tool }),
    prices: PRICES,
    usage: DEFAULT_USAGE,
    log: DEFAULT_LOG,
  });
}
