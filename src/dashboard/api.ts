import type { Status } from "../control/status.ts";
import type { ToolStatus } from "../control/tool-status.ts";
import type { ToolModels } from "../doctor/models.ts";
import type { ComparedRow, KeyReport, MirrorReport, VerdictDay } from "../mirror/report/shape.ts";
import type { RefusalWords, ShownRecord } from "./api-usage.ts";

/*
 * What crosses the dashboard's port, for both of its sides. Types alone: the page is bundled, and nothing of the server
 * may get into it. Keys appear as fingerprints, times in milliseconds UTC, money in whole micro-dollars; null is
 * unknown, which is not zero.
 *
 * Every request but the first carries `authorization: Bearer <token>`; every POST is application/json. An answer that is
 * not 200 is a Failure: 401 the session is gone (→ keybearer open), 404 there is no such thing, 400 the request is wrong,
 * 409 it was not done, 429 too many, 503 it cannot be answered now.
 */

export type {
  Bin,
  By,
  FilterQuery,
  RecordAnswer,
  RecordsPage,
  RefusalWords,
  ShownRecord,
  UsageChart,
  UsageRow,
  UsageSeries,
  UsageSums,
} from "./api-usage.ts";

export interface Failure {
  /** What happened and what to do, in words. */
  readonly error: string;
}

/** POST /api/session */
export interface SessionRequest {
  /** Out of the address's fragment: #code=… Good once, for 60 s. */
  readonly code: string;
}

export interface SessionAnswer {
  readonly token: string;
  /** Of the daemon. */
  readonly version: string;
}

/**
 * GET /api/events: server-sent events, to be read with fetch because EventSource cannot send a header.
 * `now` comes at once, then whenever something changed, four times a second at most; `record` for each request that is
 * over; `lost` where the reader was too slow for some of them, which are in the log. Comment lines every 15 s.
 * Each event has one `data:` line of JSON. An open stream counts as use, and keeps the port from closing: a page that
 * nobody sees ends its own.
 */
export interface Events {
  readonly now: Now;
  readonly record: ShownRecord;
  readonly lost: { readonly count: number };
}

/** GET /api/now */
export interface Now {
  readonly at: number;
  readonly status: Status;
  /** Those under way, oldest first; at most 200. */
  readonly running: readonly RunningCall[];
  /** How many there are in all. */
  readonly running_total: number;
  /** null: the log cannot be read now. */
  readonly today: Today | null;
  /** The last 20, newest first. */
  readonly refusals: readonly RefusedRecord[];
}

export interface RunningCall {
  /** Its record's, once it is over. */
  readonly id: string;
  readonly tool: string;
  readonly model: string | null;
  readonly endpoint: string;
  readonly started_at: number;
  /** How long it waited for room under its tool's limits, or has by now. */
  readonly waited_ms: number;
  /** It waits for room: nothing of it went to the gateway. */
  readonly waiting: boolean;
  /** When the gateway's first byte came. */
  readonly first_byte_at: number | null;
  /** Whether the answer is an event stream; null: none yet. */
  readonly stream: boolean | null;
  readonly bytes_out: number;
  /** So far; null: nothing is known yet. */
  readonly output_tokens: number | null;
  /**
   * reported: the stream said so on its way. pieces: events of the stream that brought a piece of the answer, most of
   * which are about one token each. null: not known.
   */
  readonly tokens_by: "reported" | "pieces" | null;
}

export interface Today {
  /** Midnight of the daemon's calendar. */
  readonly since: number;
  readonly total: DaySums;
  /** What cost most comes first. */
  readonly tools: readonly (DaySums & {
    /** null: callers that nobody recognised. */
    readonly tool: string | null;
  })[];
}

export interface DaySums {
  readonly requests: number;
  readonly refused: number;
  /** In all: input, cache read, cache write, output. */
  readonly tokens: number;
  /** What we reckon. */
  readonly cost_microdollars: number;
  /** What the console charged for those that it told of; null: for none. */
  readonly billed_microdollars: number | null;
  /** Requests whose cost nobody knows: they are in no sum of money. */
  readonly unknown_cost: number;
}

export type RefusedRecord = ShownRecord & RefusalWords;

/** GET /api/tools */
export interface ToolsAnswer {
  readonly tools: readonly ToolSettings[];
  /** Where tools reach keybearer: http://localhost:5397 */
  readonly origin: string;
  readonly groups: readonly GroupSettings[];
  /** The sandbox's tools come from no file, and cannot be disabled. */
  readonly sandbox: boolean;
}

export interface ToolSettings extends ToolStatus {
  readonly enabled: boolean;
  /** For the settings that `use` shows; null: none is set. */
  readonly model: string | null;
  /** Where its key comes from, in words; never the key. */
  readonly source: string;
  /** Its token may stand in the address: /t/<token>/… */
  readonly token_in_url: boolean;
  readonly watch_only: boolean;
}

export interface GroupSettings {
  readonly gateway: string;
  readonly name: string;
  readonly multiplier: number;
  readonly models: readonly string[];
  readonly enabled: boolean;
}

/** POST /api/tools/<name> */
export interface SwitchRequest {
  readonly enabled: boolean;
}

export interface SwitchAnswer {
  readonly ok: true;
  /** false: it was so already. */
  readonly changed: boolean;
  /** The daemon goes by it; false: it did not take it up within 5 s. */
  readonly in_force: boolean;
}

/** GET /api/models?tool=<name>: asks the gateway, which may take seconds. null: there is no such tool, or it is disabled. */
export interface ModelsAnswer {
  readonly models: ToolModels | null;
}

/** GET /api/mirror */
export interface MirrorAnswer {
  /** One for each gateway with a console. */
  readonly reports: readonly MirrorReport[];
  /** Rows that deserve a look, foreign ones first, then the newest; at most 500. */
  readonly diff: readonly ComparedRow[];
  readonly keys: readonly KeyReport[];
  /** Consoles whose keys could not be listed, and why. */
  readonly keys_problems: readonly KeysProblem[];
  /** The last 30 days of the daemon's calendar, oldest first, those with nothing in them left out. */
  readonly over_time: readonly MirrorDay[];
}

export interface KeysProblem {
  readonly gateway: string;
  readonly why: string;
  readonly next: string | null;
}

/** What comparing came to, by the day of the row, or of the record where there is none: matched, differs, pending,
 * foreign_certain, foreign_suspected, missing (ours alone) and other (never an alarm). */
export type MirrorDay = VerdictDay;
