import type { ConsoleKind } from "../../config/shape.ts";
import type { Secret } from "../../secret.ts";
import type { ConsoleRow } from "../console-row.ts";
import type { CallHistory } from "./http.ts";

/**
 * A gateway's console, whatever kind it is. Every method may throw a ConsoleFault , and nothing else. Nobody
 * calls two methods at once.
 */
export interface ConsoleAdapter {
  readonly kind: ConsoleKind;
  /** Under which names of a record's gateway_ids this console's request ids are found. */
  readonly idNames: readonly string[];
  /** Whether a request that the gateway answers with an error can be billed all the same. */
  readonly billsFailures: boolean;
  /** Whether the rows of what passes through a WebSocket have ids, too, which no answer carried. */
  readonly socketRowsHaveIds: boolean;
  /**
   * Walks over the rows written since `cursor`, a page at a time, with overlap. A page's cursor is kept together with its rows,
   * and is what the next walk begins from, be it after a crash in the middle of this one; null: the first walk, which goes
   * back to `since`. The last page's cursor says that the walk is complete.
   */
  walk(cursor: string | null, since: number): AsyncIterable<Page>;
  /** The keys of the account. null: what is known here does not allow to list them. */
  keys(): Promise<readonly ConsoleKey[] | null>;
  account(): Promise<AccountFacts>;
  /** The keys that the last walk passed over; left out where a walk reads everything. */
  unread?(): readonly UnreadKey[];
  /** Of several accounts, why one could not be read in the last walk; null: all were. */
  fault?(): ConsoleFault | null;
  /** The console lists only so many rows of a key, so that it must be read before there are more. */
  readonly rowsPerKey?: number;
}

export interface Page {
  readonly rows: readonly ConsoleRow[];
  readonly cursor: string;
  /** Rows read so far, and in all where the console tells. */
  readonly done: number;
  readonly total: number | null;
  /** Something in between can no longer be seen, from (without) to, console time: what is foreign in there is not known. */
  readonly gap: ConsoleGap | null;
}

export interface ConsoleGap {
  readonly from: number;
  readonly to: number;
  /** Fingerprint of the only key that it concerns. */
  readonly key?: string;
  /** many: more calls with the key than the console lists. refused: the console did not accept the key. */
  readonly why?: "many" | "refused";
}

/** A key that the last walk had no call left for. */
export interface UnreadKey {
  /** Fingerprint. */
  readonly key: string;
  /** When it was last read, by our clock; null: never. */
  readonly until: number | null;
}

/** A key as its console lists it. The whole key, where the console tells it, never leaves memory. */
export interface ConsoleKey {
  /** As ConsoleRow.key_ref names it. */
  readonly ref: string;
  readonly name: string;
  /** The account that lists it, where there are several. */
  readonly account?: string;
  readonly shown: ShownKey;
  readonly group: string | null;
  readonly multiplier: number | null;
  readonly state: "active" | "disabled" | "expired" | "quota-exhausted" | "unknown";
  /** Micro-dollars; null: unlimited. */
  readonly quota: number | null;
  readonly quota_used: number | null;
  /** Dollars a window of time: `5h`, `1d`, `7d`. */
  readonly windows: readonly KeyWindow[];
  readonly expires_at: number | null;
  readonly last_used_at: number | null;
}

export interface KeyWindow {
  readonly window: string;
  /** Micro-dollars. */
  readonly most: number;
  readonly used: number;
  readonly resets_at: number | null;
}

/** What a console shows of a key: all of it, its ends (without a leading `sk-`), or nothing. */
export type ShownKey =
  | { readonly how: "whole"; readonly key: Secret }
  | { readonly how: "ends"; readonly head: string; readonly tail: string }
  | { readonly how: "hidden" };

export interface AccountFacts {
  /** Micro-dollars; null: the console does not tell. */
  readonly balance: number | null;
  readonly console_version: string | null;
}

/** What an adapter is made from. */
export interface AdapterDeps {
  readonly client: ConsoleClient;
  /** Waits, to stay within what the console allows. Rejects when the mirror stops. */
  readonly pause: (milliseconds: number) => Promise<void>;
  readonly now: () => number;
  /** The calls to this console so far, of all accounts: some consoles limit an address. */
  readonly calls: CallHistory;
}

/** One question to the console. Nobody follows a redirect; a credential goes to the console's own origin only. */
export interface ConsoleClient {
  /** Throws a ConsoleFault where no answer came, or none that could be read in time. */
  send(request: ConsoleRequest): Promise<ConsoleResponse>;
}

export interface ConsoleRequest {
  readonly method: "GET" | "POST";
  /** Below the console's url, with its query: /api/v1/usage?page=1 */
  readonly path: string;
  /** Sent as `Authorization: Bearer …`; null: nobody logs in for this. */
  readonly bearer: Secret | null;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON. A Secret anywhere in it is sent as what it is. */
  readonly body?: Readonly<Record<string, unknown>>;
}

export interface ConsoleResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly text: string;
}

/** Why a console cannot be read just now. */
export type FaultKind =
  /** Nobody is logged in, or no longer is: a person must. */
  | "login-needed"
  /** Logging in failed, and trying again would fail again. */
  | "login-refused"
  /** A secret is held until the owner approves where config.yaml newly sends it. */
  | "needs-trust"
  | "rate-limited"
  | "unreachable"
  | "slow"
  /** It answers, but not as a console: a web page, nothing at all, or a redirect. */
  | "not-a-console"
  /** It is a console, but not of this kind or of an unknown version. */
  | "other-shape"
  /** It answers with an error of its own. */
  | "failing"
  | "not-yet";

export class ConsoleFault extends Error {
  readonly kind: FaultKind;
  /** Seconds the console asked to wait. */
  readonly retryAfter: number | null;
  /** The account that it concerns, where there are several. */
  readonly account: string | null;

  /** The message is for people: what happened, without a secret, and without what to type next. */
  constructor(
    kind: FaultKind,
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
