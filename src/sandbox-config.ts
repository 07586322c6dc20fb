import {
  DEFAULT_DASHBOARD,
  DEFAULT_LIMITS,
  DEFAULT_LISTEN,
  DEFAULT_LOG,
  DEFAULT_USAGE,
} from "./config/defaults.ts";
import { gatewayFromUrl } from "./config/fields/gateway.ts";
import type { Config, Listen, Tool } from "./config/shape.ts";
import { createSnapshot, type Snapshot } from "./config/snapshot.ts";
import { hashToken, makeToken } from "./identity/token.ts";
import type { Sandbox } from "./sandbox/sandbox.ts";

/** What a newcomer without a config.yaml is served with. */
export interface SandboxSetup {
  readonly snapshot: Snapshot;
  /** New each run. */
  readonly token: string;
  readonly model: string;
}

const TOOL = "try-me";

export function sandboxSetup(sandbox: Sandbox, listen: Listen = DEFAULT_LISTEN): SandboxSetup {
  const { key } = sandbox.createKey({ name: TOOL, group: "default" });
  const token = makeToken();
  const tool: Tool = Object.freeze({
    name: TOOL,
    gateway: "sandbox",
    group: null,
    key: Object.freeze({ kind: "literal", secret: key }),
    tokens: Object.freeze([hashToken(token)]),
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
  const config: Config = Object.freeze({
    listen,
    dashboard: DEFAULT_DASHBOARD,
    gateways: Object.freeze({ sandbox: gatewayFromUrl("sandbox", sandbox.baseUrl) }),
    tools: Object.freeze({ [TOOL]: tool }),
    prices: Object.freeze({}),
    usage: DEFAULT_USAGE,
    log: DEFAULT_LOG,
  });
  const snapshot = createSnapshot(1, config, new Map([[TOOL, { state: "ready", key }]]), []);
  return { snapshot, token, model: "sandbox-small" };
}
