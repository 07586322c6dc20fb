import type { Tool } from "../config/schema.ts";
import type { Kind, SessionLevel } from "../limits/counters.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { SessionInFlight } from "../proxy/in-flight.ts";

/** What the daemon knows of a session that runs, is limited or was stopped. The usage index knows all others. */
export interface SessionStatus {
  readonly tool: string;
  /** As it is counted: the client's id, or `<local day>/<token>` for requests without one. */
  readonly session: string;
  /** Calls in flight, those that wait included. */
  readonly running: number;
  readonly stopped: boolean;
  /** Empty: the tool has no limit for a session. */
  readonly limits: readonly SessionLimitStatus[];
}

/** In requests, tokens or micro-dollars. */
export interface SessionLimitStatus {
  readonly limit: Kind;
  readonly used: number;
  /** Reserved for calls in flight, which may return a part. */
  readonly held: number;
  /** The total that can be used, `extra` included. */
  readonly most: number;
  /** How much of it is an extra allowance, by `keybearer sessions lift`. */
  readonly extra: number;
}

export function sessionStatuses(
  tools: readonly Tool[],
  limiter: Pick<Limiter, "sessionLevels">,
  inFlight: readonly SessionInFlight[],
): SessionStatus[] {
  return tools.flatMap((tool) => {
    const running = new Map(
      inFlight.filter((one) => one.tool === tool.name).map(({ session, calls }) => [session, calls]),
    );
    const counted = limiter.sessionLevels(tool).map((level) => {
      const calls = running.get(level.session.id) ?? 0;
      running.delete(level.session.id);
      return countedStatus(tool.name, level, calls);
    });
    const others = [...running].map(([session, calls]) => uncountedStatus(tool.name, session, calls));
    return [...counted, ...others];
  });
}

function countedStatus(tool: string, level: SessionLevel, running: number): SessionStatus {
  const { id, isStopped } = level.session;
  return { tool, session: id, running, stopped: isStopped, limits: sessionLimits(level) };
}

export function sessionLimits({ limits }: SessionLevel): SessionLimitStatus[] {
  return limits.map(({ kind, used, held, max, extra }) => ({ limit: kind, used, held, most: max, extra }));
}

function uncountedStatus(tool: string, session: string, running: number): SessionStatus {
  return { tool, session, running, stopped: false, limits: [] };
}
