import type { KeySource } from "../config/schema.ts";
import type { KeyState } from "../config/snapshot.ts";
import type { Secret } from "../core/secret.ts";
import type { Held } from "./trust.ts";

/** What is known of a tool's key. The key is there while it is held, too. */
export interface Finding {
  readonly state: KeyState;
  readonly key: Secret | null;
  readonly warning: string | null;
}

/** What came of a person's yes. */
export type Granted =
  | {
      readonly ok: true;
      /** What was said yes to, in words. */
      readonly granted: string;
      /** May be needs-trust again: a new command can turn out to give a key that is known elsewhere. */
      readonly state: KeyState;
      /** The yes holds, but could not be written down. */
      readonly problem: string | null;
    }
  | { readonly ok: false; readonly reason: string };

export function unavailable(reason: string, absent = false): Finding {
  return { state: { state: "unavailable", reason, absent }, key: null, warning: null };
}

export function isSameState(one: KeyState, other: KeyState): boolean {
  if (one.state === "ready") return other.state === "ready" && one.key.equals(other.key);
  if (one.state === "unavailable") return other.state === "unavailable" && one.reason === other.reason;
  return other.state === "needs-trust" && isSameHold(one, other);
}

export function isSameHold(one: Held, other: Held): boolean {
  return one.what === other.what && one.from === other.from && one.to === other.to;
}

export function isSameSource(one: KeySource, other: KeySource): boolean {
  if (one.kind === "literal") return other.kind === "literal" && one.secret.equals(other.secret);
  // Not for literals: a secret in JSON is only its fingerprint.
  return other.kind !== "literal" && JSON.stringify(one) === JSON.stringify(other);
}
