import type { ConsoleKind } from "../../config/schema.ts";
import type { UsageRecord } from "../../usage/record.ts";
import type { ConsoleRow } from "../console-row.ts";
import type { ConsoleErrorKind, ConsoleKey } from "../consoles/console.ts";
import type { JudgedRow, RecordVerdict } from "../verdict.ts";

/*
 * The daemon's answers to `keybearer mirror`, `status`, `tools` and `keys`, as their --json prints them. Keys appear as
 * fingerprints, times in milliseconds UTC by our clock, money in micro-dollars; null is unknown.
 */

/** The state of one gateway's console, for `status`. */
export interface ConsoleStatus {
  readonly gateway: string;
  readonly kind: ConsoleKind | null;
  /** The kind is not in config.yaml; it was detected. */
  readonly detected: boolean;
  readonly url: string;
  /**
   * waiting: it was not read yet. cannot-see: it answers, but does not list our requests, or does not say which key a row
   * belongs to.
   */
  readonly state: "ok" | "waiting" | "syncing" | "cannot-see" | ConsoleErrorKind;
  /** Why it is not ok; null when it is. */
  readonly why: string | null;
  /** What to type next; null when nothing is needed. */
  readonly next: string | null;
  readonly last_sync: number | null;
  /** When keybearer reads it next. */
  readonly next_sync: number | null;
  /** Milliseconds between two syncs at the moment; null: config.yaml has a schedule. A daemon from before an update says none. */
  readonly interval?: number | null;
  /** Until when keybearer waits for the console's limit, to read rows and to list or change keys; null: it does not. */
  readonly limited_until?: { readonly rows: number | null; readonly keys: number | null };
  readonly progress: { readonly done: number; readonly total: number | null } | null;
  /** How far the console's clock is ahead, milliseconds. */
  readonly skew: number | null;
  /** Alarms that are not acknowledged. */
  readonly alarms: readonly Alarm[];
}

/** A key was used outside keybearer. A key may have two: what is certain, and what is suspected. */
export interface Alarm {
  readonly gateway: string;
  /** Fingerprint. */
  readonly key: string;
  /** false: only a suspicion, because the rows may belong to requests of ours. */
  readonly certain: boolean;
  /** Why its newest row is foreign. */
  readonly reason: string | null;
  /** The tools that hold it, or held it. */
  readonly tools: readonly string[];
  /** Requests that did not pass through keybearer. */
  readonly count: number;
  readonly models: readonly string[];
  readonly billed_microdollars: number;
  readonly first_at: number;
  readonly last_at: number;
  readonly ips: readonly string[];
  /** No tool has the key now: it was rotated here, but may still work at the gateway. */
  readonly replaced: boolean;
  /** The console does not list the key any more. Absent: it does, or that is not known. */
  readonly unlisted?: true;
}

/** What `keybearer mirror` prints of one gateway. */
export interface MirrorReport extends ConsoleStatus {
  /** The oldest time from which everything is compared. */
  readonly watched_since: number | null;
  readonly account: { readonly balance: number | null } | null;
  /** Rows of keys that are held here. */
  readonly rows: VerdictCounts;
  readonly records: Readonly<Record<RecordVerdict, number>>;
  /** Time of the newest row. Younger rows may exist at the console. */
  readonly newest_row: number | null;
  readonly tools: readonly ToolMoney[];
  readonly models: readonly ModelFactor[];
  /** Use outside keybearer of keys that are used elsewhere on purpose. */
  readonly elsewhere: readonly ElsewhereUse[];
  /** Machines that share a key with this one and whose latest records are not here yet. */
  readonly unseen_machines: readonly UnseenMachine[];
  /** What the alarm cannot see. */
  readonly blind: readonly string[];
}

export interface UnseenMachine {
  readonly machine: string;
  /** Unexplained rows of its keys raise no alarm from here on; null: from the beginning. */
  readonly since: number | null;
}

export interface VerdictCounts {
  readonly total: number;
  readonly by_id: number;
  readonly by_pair: number;
  readonly by_sum: number;
  readonly presumed: number;
  readonly differs: number;
  readonly pending: number;
  readonly foreign_certain: number;
  readonly foreign_suspected: number;
  /** Foreign rows of keys that are used elsewhere on purpose: counted, never an alarm. */
  readonly elsewhere: number;
  readonly before: number;
  readonly unwatched: number;
  readonly companion: number;
  readonly duplicate: number;
}

/** Ours against theirs, over what is compared. */
export interface ToolMoney {
  readonly tool: string;
  /** Requests that were compared. */
  readonly requests: number;
  /** Our cost for them; null: known of none. */
  readonly ours_microdollars: number | null;
  readonly theirs_microdollars: number | null;
  /** Requests that only one side has an amount for. The other side's sum lacks them. */
  readonly ours_unknown: number;
  readonly theirs_unknown: number;
  /** Rows of its key that are certainly foreign. */
  readonly foreign: number;
  readonly foreign_microdollars: number;
  /** Those that are only suspected. */
  readonly suspected: number;
  readonly suspected_microdollars: number;
}

/** The operator's price of a model against the list price known here, for one group and tier. */
export interface ModelFactor {
  readonly model: string;
  /** The group of config.yaml; null: none. */
  readonly group: string | null;
  /** `long context`, or the maker's service tier; null: the standard price. */
  readonly tier: string | null;
  readonly requests: number;
  /** 1: the same; null: no price is known here, or too few rows agree. */
  readonly factor: number | null;
  /** How many rows say so. */
  readonly factor_rows: number;
  /** The multiplier that was applied; null: unknown, or too few rows agree. */
  readonly multiplier: number | null;
  readonly multiplier_rows: number;
  /** The multiplier of config.yaml's group, where it differs. */
  readonly multiplier_here: number | null;
  /** Theirs less ours, over the matched rows that both have an amount for. */
  readonly difference_microdollars: number;
  /** Why that is more than rounding. Absent: it is not, or only the multiplier differs. */
  readonly explanation?: PriceExplanation;
}

export const TOKEN_KINDS = ["input", "cache_read", "cache_write", "output"] as const;
export type TokenKind = (typeof TOKEN_KINDS)[number];

/** A factor of prices is found in at least this many rows. */
export const ROWS_PER_FACTOR = 5;
export type KindFactors = Readonly<Record<TokenKind, number>>;

/** How a console's prices of a model differ from the list prices known here. Prices are before the multiplier. */
export interface PriceExplanation {
  /** The rows that were examined: the latest that both sides have a price for. */
  readonly rows: number;
  /** How many of them the factors explain to rounding. Without factors: how many have the list price. */
  readonly explained: number;
  /** The console's price of each kind of token in these rows, as a multiple of ours; null: no factors explain nearly all rows. */
  readonly factors: Partial<KindFactors> | null;
  /** What the other rows were billed more, or less, than that. 0: rounding. */
  readonly unexplained_microdollars: number;
  /** The row that differs most, of those that the factors explain, or without factors of the others. */
  readonly example: {
    readonly record: string;
    readonly tokens: Readonly<Record<TokenKind, number>>;
    readonly ours_microdollars: number;
    readonly theirs_microdollars: number;
  } | null;
}

export interface ElsewhereUse {
  readonly tool: string;
  readonly key: string;
  /** In the last day, and the daily average of the two weeks before. */
  readonly day: number;
  readonly day_microdollars: number;
  readonly usual: number;
  readonly usual_microdollars: number;
}

/** The verdicts of one day, by our clock: of console rows, and of records without one. */
export interface VerdictDay {
  readonly gateway: string;
  /** When it begins. */
  readonly day: number;
  readonly matched: number;
  readonly differs: number;
  readonly pending: number;
  readonly foreign_certain: number;
  readonly foreign_suspected: number;
  /** Ours alone. */
  readonly missing: number;
  /** before, unwatched, companion, duplicate, and rows of keys that are used elsewhere on purpose: never an alarm. */
  readonly other: number;
  /** What the console charged for all of these rows. */
  readonly billed_microdollars: number;
  /** For the foreign ones, certain and suspected. */
  readonly foreign_microdollars: number;
}

/** A console row beside our record. `mirror diff` lists them, `mirror show` prints one. */
export interface ComparedRow {
  readonly gateway: string;
  /** Theirs; null: the console does not list it. When it was written, and when its request began, are by our clock. */
  readonly row:
    | (ConsoleRow &
        Omit<JudgedRow, "identity" | "record"> & { readonly at: number; readonly began: number | null })
    | null;
  /** Ours; null: it did not pass through keybearer. */
  readonly record: ComparedRecord | null;
  /** The request of ours that a suspected row may be. Absent: there is none, or the daemon is from before an update. */
  readonly candidate?: ComparedRecord;
  readonly verdict: string;
  readonly reason: string;
}

export const COMPARED_FIELDS = [
  "id",
  "started_at",
  "sent_at",
  "ended_at",
  "tool",
  "key",
  "model",
  "stream",
  "end",
  "status",
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "tokens_from",
  "list_microdollars",
  "cost_microdollars",
  "billed_microdollars",
  "gateway_ids",
  "machine",
  "user_agent",
] as const;

/** Tokens and cost are our own numbers, even where the record took the console's since. */
export type ComparedRecord = Pick<UsageRecord, (typeof COMPARED_FIELDS)[number]>;

/** A key of the console beside the tools that hold it here: `keybearer keys`. */
export interface KeyReport extends Omit<ConsoleKey, "shown" | "as_of"> {
  readonly gateway: string;
  /** Its fingerprint, where the console shows enough of it. */
  readonly key: string | null;
  /** The tools that hold it; none: not held here. */
  readonly tools: readonly string[];
  /** When the console said this; null: it was not asked about this key yet. */
  readonly as_of: number | null;
}

/** What `keybearer keys` prints. */
export interface KeysAnswer {
  readonly keys: readonly KeyReport[];
  /** The consoles whose keys could not be listed. */
  readonly problems: readonly {
    readonly gateway: string;
    readonly why: string;
    readonly next: string | null;
  }[];
}

/** What the console says of a tool's key, for `keybearer tools`. */
export interface ToolConsoleFacts
  extends Pick<
    ConsoleKey,
    "state" | "group" | "multiplier" | "quota" | "quota_used" | "windows" | "created_at" | "expires_at"
  > {
  /** The multiplier that config.yaml says, where it differs from the console's. */
  readonly multiplier_here: number | null;
  readonly balance: number | null;
  /** When the console was read. */
  readonly as_of: number;
}
