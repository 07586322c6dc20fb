import type { Dashboard, Limits, Listen, Log, Timeouts, Usage } from "./shape.ts";

/** What holds where config.yaml is silent. */

/** 5397 spells KEYS on a telephone. */
export const DEFAULT_LISTEN: Listen = Object.freeze({ host: "localhost", port: 5397 });

export const DEFAULT_DASHBOARD: Dashboard = Object.freeze({
  listen: Object.freeze({ host: "localhost", port: 5398 }),
  when: "asked",
});

export const DEFAULT_TIMEOUTS: Timeouts = Object.freeze({
  connect: 10_000,
  firstByte: 600_000,
  idle: 300_000,
});

export const DEFAULT_SCHEDULE = "*/5 * * * *";

export const DEFAULT_LIMITS: Limits = Object.freeze({
  requests: Object.freeze([]),
  tokens: Object.freeze([]),
  spend: Object.freeze([]),
  concurrent: null,
  wait: 0,
});

export const DEFAULT_USAGE: Usage = Object.freeze({ keep: 400 * 86_400_000, sync: "normal" });

export const DEFAULT_LOG: Log = Object.freeze({ level: "info" });

/** What the sandbox, which serves where there is no config.yaml, is called among the gateways. */
export const SANDBOX = "sandbox";
