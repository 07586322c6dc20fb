import type { Database } from "libsql";
import type { SessionStatus } from "../control/session-status.ts";
import { PROCESS_SESSION } from "../core/session-id.ts";
import { MINUTE_MS } from "../core/units.ts";
import { startOfDay } from "../usage/reports/calendar.ts";
import { type GatewayFirstByte, readFirstBytes } from "../usage/reports/gateways.ts";
import { countedWith, readSessions, type SessionName } from "../usage/reports/sessions.ts";
import { compareToday, type TodayComparison } from "../usage/reports/today.ts";
import type { RunningSession } from "./api.ts";

/** What the overview shows of the log beside today's sums. It takes longer to read, and changes slowly. */
export interface Outlook {
  readonly usual: TodayComparison["usual"];
  readonly forecast: TodayComparison["forecast"];
  readonly firstBytes: readonly GatewayFirstByte[];
  readonly sessions: readonly LoggedSession[];
}

type LoggedSession = Omit<RunningSession, "stopped"> & { readonly last_at: number };

export const EMPTY_OUTLOOK: Outlook = { usual: null, forecast: null, firstBytes: [], sessions: [] };

/** How long a session is shown after its last request: an agent works on its own in between. */
const SESSION_MS = 10 * MINUTE_MS;
const MAX_SESSIONS = 50;
/** No names: any. */
const EVERYTHING = {
  period: { since: null, until: null },
  tools: [],
  models: [],
  machines: [],
  projects: [],
  sessions: [],
};

export function* readOutlook(db: Database, now: number): Generator<undefined, Outlook> {
  const { usual, forecast } = yield* compareToday(db, EVERYTHING, now);
  const firstBytes = yield* readFirstBytes(db, now);
  const sessions = yield* countedSessions(db, now);
  return { usual, forecast, firstBytes, sessions };
}

/** The sessions of the last minutes as limits count them: all processes of a token and day are one. */
function* countedSessions(db: Database, now: number): Generator<undefined, LoggedSession[]> {
  const sessions = new Map<string, LoggedSession>();
  const today = { since: startOfDay(now), tools: [], projects: [] };
  for (const row of yield* readSessions(db, today)) {
    const isProcess = row.session.startsWith(PROCESS_SESSION);
    const session = (isProcess ? countedWith(db, row) : null) ?? row.session;
    const key = keyOf({ tool: row.tool, session });
    const other = sessions.get(key);
    // The last one comes first.
    sessions.set(key, {
      tool: row.tool,
      session,
      project: other === undefined ? row.project : other.project,
      branch: other === undefined ? row.branch : other.branch,
      last_at: other?.last_at ?? row.last_at,
      requests: row.requests + (other?.requests ?? 0),
      cost_microdollars: row.cost_microdollars + (other?.cost_microdollars ?? 0),
      unknown_cost: row.unknown_cost + (other?.unknown_cost ?? 0),
    });
    yield;
  }
  return [...sessions.values()].filter(({ last_at }) => now - last_at <= SESSION_MS).slice(0, MAX_SESSIONS);
}

/** Those of the log, after those that are not in it yet: their first request is in flight, or has just ended. */
export function runningSessions(
  logged: readonly LoggedSession[],
  unlogged: readonly SessionName[],
  known: readonly SessionStatus[],
): RunningSession[] {
  const sessions = new Map<string, Omit<RunningSession, "stopped">>();
  const isLogged = new Set(logged.map(keyOf));
  for (const { tool, session } of unlogged) {
    if (isLogged.has(keyOf({ tool, session }))) continue;
    const nothing = { project: null, branch: null, last_at: null, requests: 0, cost_microdollars: 0 };
    sessions.set(keyOf({ tool, session }), { tool, session, ...nothing, unknown_cost: 0 });
  }
  const stopped = new Set(known.filter((one) => one.stopped).map(keyOf));
  return [...sessions.values(), ...logged]
    .slice(0, MAX_SESSIONS)
    .map((session) => ({ ...session, stopped: stopped.has(keyOf(session)) }));
}

function keyOf({ tool, session }: SessionName): string {
  return JSON.stringify([tool, session]);
}
