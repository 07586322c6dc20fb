import type { SessionStatus } from "../control/session-status.ts";
import type { SessionName, SessionRow } from "../usage/reports/sessions.ts";
import type { ToolSession } from "./api.ts";

const NOT_LOGGED = {
  project: null,
  branch: null,
  started_at: null,
  last_at: null,
  requests: null,
  cost_microdollars: null,
  unknown_cost: 0,
};
const NOT_KNOWN = { running: 0, stopped: false, limits: [] };

/**
 * The sessions of the usage log, and those that the daemon knows because they run, are limited or were stopped. Those that run
 * come first, then those with the latest request.
 */
export function listSessions(
  logged: readonly SessionRow[],
  known: readonly (SessionName & Partial<SessionStatus>)[],
): ToolSession[] {
  const sessions = new Map<string, ToolSession>();
  for (const row of logged) sessions.set(keyOf(row), { ...NOT_KNOWN, ...row });
  for (const status of known) {
    const found = sessions.get(keyOf(status)) ?? { ...status, ...NOT_LOGGED, ...NOT_KNOWN };
    sessions.set(keyOf(status), { ...found, ...status });
  }
  const isRunning = (one: ToolSession) => Number(one.running > 0);
  return [...sessions.values()].sort(
    (a, b) => isRunning(b) - isRunning(a) || lastUse(b) - lastUse(a) || (a.session < b.session ? -1 : 1),
  );
}

/** The first request of a session that is not in the log yet has only begun. */
function lastUse({ last_at, running }: ToolSession): number {
  return last_at ?? (running > 0 ? Number.MAX_SAFE_INTEGER : 0);
}

function keyOf({ tool, session }: SessionName): string {
  return JSON.stringify([tool, session]);
}
