import type { Clock } from "./clock.ts";
import {
  DEFAULT_DASHBOARD,
  DEFAULT_LIMITS,
  DEFAULT_LISTEN,
  DEFAULT_LOG,
  DEFAULT_USAGE,
} from "./config/defaults.ts";
import { gatewayFromUrl } from "./config/fields/gateway.ts";
import type { Config, Listen, Named, Price, Tool } from "./config/shape.ts";
import { createSnapshot, type Snapshot } from "./config/snapshot.ts";
import { hashToken, makeToken } from "./identity/token.ts";
import { MODELS } from "./sandbox/models.ts";
import { createSandbox, type Sandbox } from "./sandbox/sandbox.ts";
import type { Secret } from "./secret.ts";

/** What somebody without a config.yaml is served with: the sandbox, a tool and a token, all new each run. */
export interface Newcomer {
  readonly sandbox: Sandbox;
  readonly snapshot: Snapshot;
  readonly token: string;
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

export async function welcomeNewcomer(clock: Clock, listen: Listen = DEFAULT_LISTEN): Promise<Newcomer> {
  const sandbox = createSandbox({ clock });
  await sandbox.start();
  const { key } = sandbox.createKey({ name: TOOL, group: "default" });
  const token = makeToken();
  const config = configFor(sandbox, { secret: key, tokenHash: hashToken(token) }, listen);
  let serving = true;
  let stopped = false;
  return {
    sandbox,
    snapshot: createSnapshot(1, config, new Map([[TOOL, { state: "ready", key }]]), []),
    token,
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

function configFor(sandbox: Sandbox, access: { secret: Secret; tokenHash: string }, listen: Listen): Config {
  const tool: Tool = Object.freeze({
    name: TOOL,
    gateway: "sandbox",
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
    dashboard: DEFAULT_DASHBOARD,
    gateways: Object.freeze({ sandbox: gatewayFromUrl("sandbox", sandbox.baseUrl) }),
    tools: Object.freeze({ [TOOL]: tool }),
    prices: PRICES,
    usage: DEFAULT_USAGE,
    log: DEFAULT_LOG,
  });
}
