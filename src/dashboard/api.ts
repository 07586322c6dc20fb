import type { SessionStatus } from "../control/session-status.ts";
import type { Status } from "../control/status.ts";
import type { InFlightCall } from "../proxy/in-flight.ts";
import type { Unit } from "../usage/reports/calendar.ts";
import type { DaySums, TodayUsage, UsageChart, UsageSeries, UsageSums } from "../usage/reports/chart.ts";
import type { GatewayFirstByte } from "../usage/reports/gateways.ts";
import type { SelectedName } from "../usage/reports/names.ts";
import type { ExportedRecord } from "../usage/reports/records.ts";
import type { TodayComparison } from "../usage/reports/today.ts";

/*
 * The dashboard's JSON, for the server and the page. Types only: the page is bundled, and must not contain server code.
 * Keys appear as fingerprints, times in milliseconds UTC, money in whole micro-dollars. null is unknown, which is not zero.
 *
 * Every request but those for a session carries `authorization: Bearer <token>`; every POST is application/json. A response that is
 * not 200 is a Failure: 400 the request is wrong, 401 the session is over (→ keybearer open), 404 there is no such thing,
 * 409 it was not done, 429 too many, 503 it cannot be answered now.
 */

/** POST /api/session takes { code }, or of a remembered browser this. It answers { token }. */
export interface Proof {
  readonly public_key: string;
  /** POST /api/challenge answers it to { public_key }; it is signed once, within a minute. */
  readonly challenge: string;
  /** Of signedText() in bookmarks/signed-text.ts, by ECDSA with SHA-256, as WebCrypto writes it, in base64url. */
  readonly signature: string;
}

/**
 * GET /api/events: one of these in JSON on each line: at once, then after changes, at most four times a second and at least
 * every 15 s. An open stream counts as use and keeps the port open, so a hidden page ends its own.
 */
export type LiveLine = { readonly following: true } | { readonly now: Now };

/** GET /api/now */
export interface Now {
  readonly at: number;
  readonly status: Status;
  /** The requests in flight, oldest first; at most 200. */
  readonly running: readonly RunningCall[];
  /** How many there are in all. */
  readonly running_total: number;
  /** Those that run, then those with a request in the last ten minutes, the last one first; at most 50. */
  readonly sessions: readonly ToolSession[];
  /** null: the log cannot be read now. */
  readonly today: Today | null;
  readonly first_bytes: readonly GatewayFirstByte[];
  /** The last 20, newest first. */
  readonly refusals: readonly ShownRecord[];
}

export type RunningCall = InFlightCall;

/** What a run of an agent used in all, as limits count it: processes whose client names no session share one for each day. */
export interface ToolSession extends SessionStatus {
  /** The folder it works in; null: unknown. */
  readonly project: string | null;
  readonly branch: string | null;
  /** null: the log has none, or cannot be read. So of the next three. */
  readonly started_at: number | null;
  /** When its last request began. */
  readonly last_at: number | null;
  /** That have ended. */
  readonly requests: number | null;
  readonly cost_microdollars: number | null;
  readonly unknown_cost: number;
}

/** With what is usual by this time of day, and what the month will have cost. */
export type Today = TodayUsage & Pick<TodayComparison, "usual" | "forecast">;

export type { DaySums };

/** A record as it is exported. */
export type ShownRecord = ExportedRecord;

/** POST /api/plan with an Action (see actions/action.ts): what it would do. Nothing is changed yet. */
export interface PlanAnswer {
  /** For POST /api/run, once and within two minutes. */
  readonly id: string;
  /** In English; the page has its own text for each kind of action. */
  readonly what: string;
  /** The lines of a unified diff of config.yaml; empty: it stays as it is. */
  readonly diff: readonly string[];
  /** The command that undoes it; null: nothing does. */
  readonly undo: string | null;
  /** true: it gives tools or keys more than they have, so `keybearer confirm` in a terminal must agree. */
  readonly needs_digits: boolean;
}

/** POST /api/run takes { id, digits }: as `keybearer confirm` printed them for this action; null: it needs none. */
export interface RunAnswer {
  readonly undo: string | null;
  /** What is to be known beside that it was done: a NoteCode, or what a console says; null: nothing. */
  readonly note: string | null;
}

export type NoteCode = "unchanged" | "old-key-later";

export type Bin = Unit;
/** An empty machine is this one. */
export type By = SelectedName;

/*
 * <filter> selects records: since= and until= in milliseconds (until is exclusive). Each By (tool=, model=, …) is an exact
 * name and may be repeated; an empty one (`tool=`) selects the records that have none. end= is an Outcome and may be
 * repeated. search= is a part of any of a record's texts.
 */

/* GET /api/usage?<filter>&bin=&by= answers UsageChart. Of more than 2,000 bins, some eighty days of hours, it is a 400. */
export type { UsageChart, UsageSeries, UsageSums };
export type UsageRow = UsageChart["rows"][number];

/* GET /api/csv?<filter> answers text/csv; charset=utf-8: every field of every record, oldest first. */
