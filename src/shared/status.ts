import type { KeyState } from "../config/snapshot.ts";
import { MIN_SECRET } from "./signature.ts";
import type { Signature, StoreState } from "./store.ts";

/** The shared store and the machines that use it, as `keybearer status --json` prints them. Times in milliseconds UTC. */
export interface SharedStatus {
  /** refused: the store can be reached, but this machine may not use it, or has no usable password or time zone. */
  readonly state: StoreState;
  /** Why it is not connected; null: it is, or the first attempt is not over. */
  readonly problem: string | null;
  /** What to type next; null: nothing, or keybearer tries again by itself. */
  readonly next: string | null;
  readonly address: string;
  /** null, as the next three: the store has not answered yet. */
  readonly server: "redis" | "valkey" | null;
  readonly version: string | null;
  /** Whether the store writes its data to disk at once. */
  readonly append_only: boolean | null;
  /** Its maxmemory-policy. */
  readonly eviction_policy: string | null;
  /** How far the store's clock is ahead of this machine's; negative: behind. */
  readonly clock_offset_ms: number;
  /** This machine signs its records, because config.yaml has shared.secret. */
  readonly signs: boolean;
  /** After a restart or a loss of data, the store grants nothing in running windows until these machines have reported. */
  readonly recovering: readonly string[];
  readonly machines: readonly SharedMachine[];
}

interface SharedMachine {
  readonly name: string;
  readonly last_contact: number;
  /** It is this machine. */
  readonly self: boolean;
  /** Of what it says of itself. null: this machine has no secret to check it with. */
  readonly signature: Signature | null;
}

/** Why this machine cannot take part in what is shared, and what to do. */
export interface Unusable {
  readonly problem: string;
  readonly next: string;
}

export const UNKNOWN_TIMEZONE: Unusable = {
  problem: "the time zone of this machine has no known name",
  next: "set shared.timezone in config.yaml, to the same on all machines",
};

/** Makes a secret. */
export const MAKE_SECRET = "openssl rand -hex 32";

export const SHORT_SECRET: Unusable = {
  problem: `its secret has fewer than ${MIN_SECRET} characters, and could be guessed`,
  next: `make one with: ${MAKE_SECRET}`,
};

/** Why the store's password or secret cannot be used; null: it can, or config.yaml has none. */
export function unusableSecret(
  name: "password" | "secret",
  setting: string,
  secret: KeyState | null,
): Unusable | null {
  if (secret === null || secret.state === "ready") return null;
  if (secret.state === "needs-trust") {
    const { what, from, to } = secret;
    const problem = `${what} waits for your confirmation: ${from} → ${to}`;
    return { problem, next: "keybearer trust shared" };
  }
  const next = secret.next ?? `correct ${setting} in config.yaml`;
  return { problem: `its ${name} cannot be read: ${secret.reason}`, next };
}
