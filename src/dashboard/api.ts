import type { Tool } from "../config/schema.ts";
import type { SessionStatus } from "../control/session-status.ts";
import type { Status } from "../control/status.ts";
import type { ToolStatus } from "../control/tool-status.ts";
import type { ToolModels } from "../doctor/models.ts";
import type { ComparedRow, KeyReport, KeysAnswer, MirrorReport, VerdictDay } from "../mirror/report/shape.ts";
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

export interface Failure {
  /** What happened and what to do, in English. */
  readonly error: string;
  /** A FailureCode, for which the page has a text of its own; null: it shows the message. */
  readonly code: string | null;
}

export type FailureCode =
  | "other-user"
  | "no-session"
  | "code-over"
  | "too-many-codes"
  | "wrong-signature"
  | "unknown-browser"
  | "too-many-challenges"
  | "too-many-pages"
  | "too-many-questions"
  | "action-gone"
  | "digits-missing"
  | "digits-wrong"
  | "digits-wrong-thrice"
  | "config-not-in-force"
  | "rows-changed"
  | "nothing-held"
  | "bookmark-user-unknown"
  | "bookmark-port-closed";

/** POST /api/session takes { code }, or of a remembered browser this. */
export interface Proof {
  readonly public_key: string;
  /** From POST /api/challenge. */
  readonly challenge: string;
  /** Of signedText() in bookmarks/signed-text.ts, by ECDSA with SHA-256, as WebCrypto writes it, in base64url. */
  readonly signature: string;
}

/** POST /api/challenge takes { public_key }, from a remembered browser without a session. */
export interface ChallengeAnswer {
  /** To be signed once, within a minute. */
  readonly challenge: string;
}

export interface SessionAnswer {
  readonly token: string;
}

/**
 * GET /api/events: server-sent events, read with fetch because EventSource cannot send a header. Each event has one `data:`
 * line of JSON, and one comes at least every 15 s. An open stream counts as use and keeps the port open, so a hidden page ends
 * its own.
 */
export interface Events {
  /** At once, then after changes, at most four times a second. */
  readonly now: Now;
  /** After each request. */
  readonly record: ShownRecord;
  /** So many records were dropped because the page read too slowly. They are in the log. */
  readonly lost: { readonly count: number };
}

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
  /** When its last request began; null: the log has none, or cannot be read. So of the next two. */
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

/** GET /api/tools */
export interface ToolsAnswer {
  readonly tools: readonly ToolSettings[];
  /** The address for tools: http://localhost:5397 */
  readonly origin: string;
  readonly groups: readonly { readonly gateway: string; readonly name: string }[];
  /** makes_keys: a login at its console can make keys. */
  readonly gateways: readonly { readonly name: string; readonly makes_keys: boolean }[];
  /** The clients whose own files `keybearer use --write` can change. */
  readonly writable: readonly string[];
  /** The sandbox's tools are in no file, and cannot be disabled. */
  readonly sandbox: boolean;
}

export interface ToolSettings extends ToolStatus, Pick<Tool, "enabled" | "model"> {
  /** A description of its key's source; never the key. */
  readonly source: string;
  /** Its token may be in the URL: /t/<token>/… */
  readonly token_in_url: boolean;
  readonly watch_only: boolean;
}

/** GET /api/tools/<name>: what the page of one tool needs beside ToolsAnswer. */
export interface ToolAnswer {
  /** Those of config.yaml, by name, as `keybearer tools set` takes them. What is missing has its default. */
  readonly settings: Readonly<Record<string, string | null>>;
  readonly tokens: readonly ToolToken[];
  /** Of the last 24 hours, and those that the daemon counts; those that run first, then the latest. At most 100. */
  readonly sessions: readonly ToolSession[];
}

export interface ToolToken {
  readonly name: string;
  /** A day, such as 2026-11-16; null: unknown. */
  readonly created: string | null;
  /** null: never, as far as is known. */
  readonly last_use: number | null;
}

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
  readonly what: string;
  readonly undo: string | null;
  /** What is to be known beside that it was done: a NoteCode, or what a console says; null: nothing. */
  readonly note: string | null;
}

export type NoteCode = "unchanged" | "old-key-later";

/** GET /api/models?tool=<name>: asks the gateway, which may take seconds. null: the tool is disabled. */
export interface ModelsAnswer {
  readonly models: ToolModels | null;
}

/** GET /api/mirror */
export interface MirrorAnswer {
  /** One for each gateway with a console. */
  readonly reports: readonly MirrorReport[];
  /** Rows that need attention, foreign ones first, then the newest; at most 500. */
  readonly diff: readonly ComparedRow[];
  readonly keys: readonly KeyReport[];
  /** Consoles whose keys could not be listed. */
  readonly keys_problems: readonly KeysProblem[];
}

/** GET /api/bill?month=2026-10, of the daemon's calendar. */
export interface MonthBill {
  readonly month: string;
  readonly since: number;
  /** Exclusive; in the future for the month that runs. */
  readonly until: number;
  /** Of our log. */
  readonly total: UsageSums;
  readonly tools: readonly UsageRow[];
  readonly models: readonly UsageRow[];
  /** Of the consoles: one for each gateway that lists rows of this month. */
  readonly consoles: readonly VerdictDay[];
}

export type KeysProblem = KeysAnswer["problems"][number];

/* GET /api/browsers answers BrowsersAnswer of control/browsers.ts. */

/* GET /api/history answers EventsAnswer of control/routes.ts: the last 300 events, the newest last. */

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

/**
 * GET /api/records?<filter>&before=&after=&limit=: newest first. before= and after= are the `older` and `newer` of another
 * page; limit= is at most 500, default 100.
 */
export interface RecordsPage {
  readonly records: readonly ShownRecord[];
  /** For the next page of older records; null: there are none. */
  readonly older: string | null;
  /** For that of newer ones; null: these are the newest. */
  readonly newer: string | null;
}

/** GET /api/records/<id> */
export interface RecordAnswer {
  readonly record: ShownRecord;
  /** With it, the others of the same request, oldest first; see attemptsAt(). Empty: it was sent once. */
  readonly attempts: readonly ShownRecord[];
  /** With its console row; null: there is no console, or no row yet. */
  readonly compared: ComparedRow | null;
}

/* GET /api/csv?<filter> answers text/csv; charset=utf-8: every field of every record, oldest first. */
