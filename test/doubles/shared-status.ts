import type { SharedStatus } from "../../src/shared/status.ts";

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
  recovering: [],
  machines: [
    { name: "laptop", last_contact: 1_800_000_000_000, self: true, signature: "valid" },
    { name: "desktop", last_contact: 1_800_000_000_000, self: false, signature: "valid" },
  ],
};
