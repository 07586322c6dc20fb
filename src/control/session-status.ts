import type { Tool } from "../config/schema.ts";
import type { Kind, SessionLevel } from "../limits/counters.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { Call } from "../proxy/call.ts";
import type { InFlight } from "../proxy/in-flight.ts";

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

/** The id under which a call is counted. */
export function sessionOf(
  { head, tokenName, startedAt, lease }: Call,
  limiter: Pick<Limiter, "sessionId">,
): string {
  const counted = lease?.reservation.session ?? null;
  if (counted !== null) return counted.id;
  const admittedAt = lease?.reservation.at ?? startedAt;
  return limiter.sessionId({ session: head.session, token: tokenName }, admittedAt);
}

export function sessionStatuses(
  tools: readonly Tool[],
  limiter: Pick<Limiter, "sessionLevels" | "sessionId" | "currentName">,
  inFlight: Pick<InFlight, "calls">,
): SessionStatus[] {
  const running = new Map<string, Map<string, number>>();
  for (const call of inFlight.calls()) {
    if (call.tool === null) continue;
    const name = limiter.currentName(call.tool.name);
    const ofTool = running.get(name) ?? new Map<string, number>();
    const session = sessionOf(call, limiter);
    running.set(name, ofTool.set(session, (ofTool.get(session) ?? 0) + 1));
  }
  return tools.flatMap((tool) => {
    const ofTool = running.get(tool.name) ?? new Map<string, number>();
    const counted = limiter.sessionLevels(tool).map((level) => {
      const { id } = level.session;
      const count = ofTool.get(id) ?? 0;
      ofTool.delete(id);
      return countedStatus(tool.name, level, count);
    });
    const others = [...ofTool].map(([session, count]) => uncountedStatus(tool.name, session, count));
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
