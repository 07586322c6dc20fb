import type { Console, ConsoleKind, Gateway } from "../../config/schema.ts";
import type { Secret } from "../../core/secret.ts";
import type { ListedState } from "../../proxy/key-health/cause.ts";
import type { KeyWindow } from "../../proxy/key-health/key-problem.ts";
import type { ConsoleRow } from "../console-row.ts";

/** A gateway that has a console. */
export type ConsoleGateway = Gateway & { readonly console: Console };

export function hasConsole(gateway: Gateway): gateway is ConsoleGateway {
  return gateway.console !== null;
}

/** A gateway's console of any kind. Methods throw only ConsoleError. One walk runs at a time; keys() and account() may be called during it. */
export interface ConsoleAdapter {
  readonly kind: ConsoleKind;
  /** The names in a record's gateway_ids that can hold this console's request ids. */
  readonly idNames: readonly string[];
  /** Whether a request that the gateway answers with an error can be billed. */
  readonly billsFailures: boolean;
  /** Whether rows of WebSocket calls have request ids, although no response carried them. */
  readonly socketRowsHaveIds: boolean;
  /**
   * Reads the rows written since `cursor`, page by page, with overlap. Store each page's cursor together with its rows:
   * the next walk starts from it, also after a crash in the middle of this one. null starts a first walk, which goes back
   * to `since`. The last page's cursor says that the walk is complete.
   */
  walk(cursor: string | null, since: number): AsyncIterable<Page>;
  keys(): Promise<readonly ConsoleKey[]>;
  account(): Promise<AccountFacts>;
  /** The keys that the last walk skipped. Absent: a walk reads everything. */
  skippedKeys?(): readonly SkippedKey[];
  /** With several accounts: why one of them could not be read in the last walk, or in the last list of keys. */
  lastError?(of: "rows" | "keys"): ConsoleError | null;
  /** Milliseconds between two syncs that the console's limit allows, where that is more than a minute. */
  leastInterval?(): number;
  /** Set where the console lists only this many rows per key, so that it must be read before there are more. */
  readonly rowsPerKey?: number;
  /**
   * Absent: the login cannot change keys. May be used while the console is being read.
   * @param account whose keys, where there are several; null: the only one
   */
  keyActions?(account: string | null): KeyActions;
}

/** Creates, changes and deletes an account's keys. Methods throw only ConsoleError. */
export interface KeyActions {
  /** The console takes a key that was chosen here. Then the key is stored here before the console knows it. */
  readonly takesOwnKeys: boolean;
  /** The gateway refuses the requests of a key without a group. */
  readonly needsGroup: boolean;
  /** The names of the groups that a new key may be in; null: the console does not list any. */
  groups(): Promise<readonly string[] | null>;
  /** Creates the key. If an earlier call with this plan created it, returns that one: there is never a second. */
  create(plan: KeyPlan): Promise<CreatedKey>;
  /** The ref of the key with a plan's name; null: there is none. */
  find(name: string): Promise<string | null>;
  setEnabled(ref: string, enabled: boolean): Promise<void>;
  /** A key that is gone already counts as deleted. */
  delete(ref: string): Promise<void>;
}

/** A key to be created. It is the same for every attempt, also after a crash. */
export interface KeyPlan {
  /** No other key of the account has this name. At most 30 bytes. */
  readonly name: string;
  /** A random id of the plan. */
  readonly id: string;
  /** Where the console takes own keys; null: the console makes it. */
  readonly key: Secret | null;
  readonly settings: KeySettings | CopiedSettings;
}

/** The settings of another key, with what is left of its quota. */
export interface CopiedSettings {
  /** Its ref. */
  readonly like: string;
  /** What the new key gets instead of what is over. Absent: nothing is. */
  readonly renewed?: RenewedSettings;
}

/** null: the old key's still holds. Money is in micro-dollars. */
export interface RenewedSettings {
  readonly expires_at: number | null;
  readonly quota: number | null;
}

/** null: none. Money is in micro-dollars. */
export interface KeySettings {
  readonly group: string | null;
  readonly quota: number | null;
  readonly windows: readonly Pick<KeyWindow, "window" | "most">[];
  readonly expires_at: number | null;
  /** Only these. Empty: all that its account may use. */
  readonly models: readonly string[];
}

export interface CreatedKey {
  /** As in ConsoleKey. */
  readonly ref: string;
  readonly key: Secret;
}

export interface Page {
  readonly rows: readonly ConsoleRow[];
  readonly cursor: string;
  /** Rows read so far, and in total where the console says. */
  readonly done: number;
  readonly total: number | null;
  readonly gap: ConsoleGap | null;
}

/** A time range whose rows can no longer be read, after `from` up to `to`, in console time. */
export interface ConsoleGap {
  readonly from: number;
  readonly to: number;
  /** Fingerprint, if only one key is concerned. */
  readonly key?: string;
  /** many: the key has more calls than the console lists. refused: the console did not accept the key. */
  readonly cause?: "many" | "refused";
}

/** A key that the last walk skipped, because the console's rate limit was used up. */
export interface SkippedKey {
  /** Fingerprint. */
  readonly key: string;
  /** When it was last read, by our clock; null: never. */
  readonly until: number | null;
}

/** A key as the console lists it. The whole key, where the console shows it, stays in memory. */
export interface ConsoleKey {
  /** Equals ConsoleRow.key_ref. */
  readonly ref: string;
  readonly name: string;
  /** The account that lists it, where there are several. */
  readonly account?: string;
  readonly shown: ShownKey;
  readonly group: string | null;
  readonly multiplier: number | null;
  /** A subscription pays for its group, not the account's balance. */
  readonly subscription?: boolean;
  readonly state: ListedState;
  /** Micro-dollars; null: unlimited or unknown. */
  readonly quota: number | null;
  /** The console says that there is no quota. */
  readonly unlimited: boolean;
  readonly quota_used: number | null;
  readonly windows: readonly KeyWindow[];
  /** The key's own, where the console says them. Empty: all that its account may use. */
  readonly models?: readonly string[];
  readonly created_at: number | null;
  readonly expires_at: number | null;
  readonly last_used_at: number | null;
  /** When the console was asked about this key, if not with the list; null: not yet. */
  readonly as_of?: number | null;
}

/** What a console shows of a key: all of it, its ends (without a leading `sk-`), its SHA-256 hash and its end, or nothing. */
export type ShownKey =
  | { readonly how: "whole"; readonly key: Secret }
  | { readonly how: "ends"; readonly head: string; readonly tail: string }
  | { readonly how: "hash"; readonly hash: string; readonly tail: string }
  | { readonly how: "hidden" };

export interface AccountFacts {
  /** Micro-dollars; null: the console does not say. */
  readonly balance: number | null;
  readonly console_version: string | null;
}

/** Why a console cannot be read now. */
export type ConsoleErrorKind =
  /** Not logged in, or no longer: a person must log in. */
  | "login-needed"
  /** The login failed, and would fail again. */
  | "login-refused"
  /** A secret is held until the owner approves where config.yaml newly sends it. */
  | "needs-trust"
  | "rate-limited"
  | "unreachable"
  | "slow"
  /** The response is not a console's: a web page, an empty body, a redirect. */
  | "not-a-console"
  /** A console of another kind or of an unknown version. */
  | "other-shape"
  /** The console answered with an error. */
  | "failing"
  /** The console refused this one action, or has none like it. */
  | "refused"
  | "not-yet";

export class ConsoleError extends Error {
  readonly kind: ConsoleErrorKind;
  /** Seconds the console asked to wait. */
  readonly retryAfter: number | null;
  /** The account that it concerns, where there are several. */
  readonly account: string | null;

  /** @param message for people, continues "the console of main …": what happened, without a secret */
  constructor(
    kind: ConsoleErrorKind,
    message: string,
    retryAfter: number | null = null,
    account: string | null = null,
  ) {
    super(message);
    this.kind = kind;
    this.retryAfter = retryAfter;
    this.account = account;
  }
}
