import type { SessionStatus } from "../control/session-status.ts";
import { MINUTE_MS } from "../core/units.ts";
import type { Ask } from "../usage/index/indexer.ts";
import type { GatewayFirstByte } from "../usage/reports/gateways.ts";
import type { SessionName, SessionRow } from "../usage/reports/sessions.ts";
import type { RunningCall, RunningSession } from "./api.ts";

/** What the overview shows of the log beside today's sums. */
export interface Recent {
  readonly firstBytes: readonly GatewayFirstByte[];
  readonly sessions: readonly LoggedSession[];
}

/** One in flight. */
type Call = SessionName & Pick<RunningCall, "started_at">;

type LoggedSession = Omit<RunningSession, "stopped"> & { readonly last_at: number };

/** How long a session is shown after its last request: an agent works on its own in between. */
const SESSION_MS = 10 * MINUTE_MS;
const MAX_SESSIONS = 50;

/** @param running a session is shown while it has one of these calls, however long ago they began */
export async function readRecent(ask: Ask, now: number, running: readonly Call[]): Promise<Recent> {
  const from = now - SESSION_MS;
  const since = running.reduce((first, { started_at: at }) => Math.min(first, at), from);
  const [firstBytes, sessions] = await Promise.all([
    ask("firstBytes", [now]),
    ask("sessions", [{ since, tools: [], projects: [] }]),
  ]);
  const isRunning = new Set(running.map(keyOf));
  const shown = sessions.filter((session) => session.last_at >= from || isRunning.has(keyOf(session)));
  return { firstBytes, sessions: shown.slice(0, MAX_SESSIONS).map(loggedSession) };
}

function loggedSession(row: SessionRow): LoggedSession {
  const { tool, session, project, branch, last_at, requests, cost_microdollars, unknown_cost } = row;
  return { tool, session, project, branch, last_at, requests, cost_microdollars, unknown_cost };
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
