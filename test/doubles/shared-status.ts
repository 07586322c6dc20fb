import type { SharedMachine, SharedStatus } from "../../src/shared/status.ts";

export const LAST_CONTACT = 1_800_000_000_000;

/** A machine that signs, was in contact, and holds nothing. */
export function machine(name: string, more: Partial<SharedMachine> = {}): SharedMachine {
  const flags = { self: false, stopped: false, silent: false, lost: false };
  return { name, last_contact: LAST_CONTACT, signature: "valid", ...flags, keys: [], holds: [], ...more };
}

/** What a machine reports that is connected to a store as it should be. */
export const CONNECTED: SharedStatus = {
  state: "connected",
  problem: null,
  next: null,
  address: "rediss://valkey.example.net:6379",
  server: "valkey",
  version: "8.1.3",
  append_only: true,
  eviction_policy: "noeviction",
  clock_offset_ms: 0,
  signs: true,
  settled: true,
  recovering: [],
  tools: ["codex"],
  machines: [machine("laptop", { self: true }), machine("desktop")],
};
