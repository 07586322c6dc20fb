import { MINUTE_MS } from "../../core/units.ts";
import type { ConsoleRow } from "../console-row.ts";
import type { JudgedRecord, JudgedRow } from "../verdict.ts";
import type { Sibling } from "./siblings.ts";

/** What the comparison needs of one of our records. Times are milliseconds UTC by our clock. */
export interface OurRequest {
  readonly id: string;
  readonly started_at: number;
  /** When it was sent to the gateway: after a wait for the tool's limits. */
  readonly sent_at: number;
  /** null: it still runs, or keybearer crashed before it ended. */
  readonly ended_at: number | null;
  /** How far its times may be off: 0 for a request of this machine. */
  readonly clock_error: number;
  readonly running: boolean;
  readonly key: string | null;
  readonly model: string | null;
  readonly model_answered: string | null;
  readonly stream: boolean | null;
  readonly status: number | null;
  /** What the client sent, see UsageRecord. */
  readonly user_agent: string | null;
  /** The ids that the console may list it under. Empty: there was no response, or the gateway sends no ids. */
  readonly ids: readonly string[];
  /** One of the ids is known to be this gateway's own: a row with another id belongs to another request. */
  readonly own_id: boolean;
  /** The id that it brought to the gateway. LiteLLM takes ids from everyone, so another caller can send it again. null: none. */
  readonly brought_id: string | null;
  /**
   * It brought that id, and got an error or no answer: a gateway that refused it before it read the id lists the refusal under
   * another one.
   */
  readonly refusable: boolean;
  /** The tokens that keybearer counted, never the console's; null: not all are known. */
  readonly tokens: OurTokens | null;
  /** The gateway reported the tokens of the whole response. Estimates are not compared. */
  readonly exact: boolean;
  /** It was billable, and the gateway answered without an error: the console should list it. */
  readonly expected: boolean;
  /** Something that costs money may have reached the gateway, so a row may belong to it. */
  readonly billable: boolean;
  /** The gateway itself answered with an error. */
  readonly failed: boolean;
  /** It became a WebSocket, which can hold any number of billed requests. */
  readonly upgraded: boolean;
}

export interface OurTokens {
  readonly input: number;
  readonly cache_read: number;
  readonly cache_write: number;
  readonly output: number;
}

/** A console row with its times by our clock and the key that it was billed to. */
export interface TheirRow extends ConsoleRow {
  /** created_at less the skew between the clocks. */
  readonly at: number;
  /** began_at less the skew; null: the console does not list it. */
  readonly began: number | null;
  /** The key's fingerprint; null: not known here. */
  readonly key: string | null;
  /** null also where this console does not list what our clients sent: something in front of the gateway may change it. */
  readonly user_agent: string | null;
}

/** What the comparison needs besides the two lists. */
export interface Context {
  readonly now: number;
  /** When a key was held here; null: never. */
  readonly held: (key: string) => HeldTime | null;
  /** Our log begins here: what is older was pruned, or never written. */
  readonly kept_from: number;
  /** Times, by our clock, in which requests of ours may not have been recorded. */
  readonly log_gaps: readonly { readonly from: number; readonly to: number }[];
  /** Other machines whose records are, or will be, among ours. */
  readonly siblings: readonly Sibling[];
  /** Records of other machines that are not signed. They may be invented, so they match nothing, but make a row doubtful. */
  readonly unsigned: readonly OurRequest[];
  /** This gateway sends the ids of its rows. A row is not ours if no record has its id. */
  readonly hands_out_ids: boolean;
  /** See ConsoleAdapter. */
  readonly bills_failures: boolean;
  readonly socket_rows_have_ids: boolean;
  /** How the start of a row and of its request fit together. */
  readonly start: StartFit;
  /** Whether the console lists most of our requests that got no answer, by kind (see unansweredKind). Absent: too few show it. */
  readonly lists_unanswered: ReadonlyMap<string, boolean>;
  /** The addresses of our own requests, as the console lists them; null: too few show it. */
  readonly own_addresses: ReadonlySet<string> | null;
}

/** Learned from matches by id: a row begins this much after its request was sent (`later`), give or take `within`. */
export interface StartFit {
  readonly later: number;
  readonly within: number;
  /** Nearly all rows are this close. Only those are presumed to belong to a request without an id. */
  readonly close: number;
  /** No row began later than this after its request was sent. */
  readonly latest: number;
}

export interface HeldTime {
  readonly since: number;
  /** null: it is held now. */
  readonly until: number | null;
  /** The tool now has another key. The old one can still leak. */
  readonly replaced: boolean;
}

/** The rows of one request at the gateway: several attempts and a refund can carry the same request id. */
export interface RowGroup {
  /** The row that has its tokens. */
  readonly main: TheirRow;
  /** All of them, the main one first. */
  readonly rows: readonly TheirRow[];
  readonly key: string | null;
  /** null: none of its ids was brought by another request. */
  readonly repeats: RepeatedId | null;
}

/** A row has the id that a request of ours brought, and is not that request's: another caller sent the id again. */
export interface RepeatedId {
  readonly record: OurRequest;
  /** A row that is that request's own is listed, too. */
  readonly isListed: boolean;
}

/** What no step has matched yet, in the order of time. */
export interface Unmatched {
  readonly records: readonly OurRequest[];
  readonly groups: readonly RowGroup[];
}

export interface Match {
  readonly record: OurRequest;
  readonly group: RowGroup;
  readonly how: "id" | "pair" | "presumed" | "sum";
  readonly reason: string;
}

export interface Judgement {
  readonly rows: readonly JudgedRow[];
  /** Without those that no console is expected to list and that have no row. */
  readonly records: readonly JudgedRecord[];
}

/** A row without a counterpart is foreign after this time. Our own log has every request before it is sent. */
export const FOREIGN_AFTER_MS = 30_000;
/** A record that should be listed is missing after this time: consoles write late. */
export const MISSING_AFTER_MS = 10 * MINUTE_MS;
/**
 * Both logs are read this far around a day, so that its verdicts do not depend on where it ends. A row can end 90 minutes
 * after its request (LONGEST_MS), the sum of an hour reaches another 60, and clocks differ by up to 5. Only the same id, and
 * a WebSocket, can be further apart.
 */
export const FARTHEST_MS = 155 * MINUTE_MS;
