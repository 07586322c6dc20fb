import type { Config } from "../config/schema.ts";
import type { Controls } from "../control/routes.ts";
import { sessionLimits, sessionStatuses } from "../control/session-status.ts";
import { advice } from "../core/advice.ts";
import type { Logger } from "../core/log.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { InFlight } from "../proxy/in-flight.ts";
import type { Journal } from "../usage/journal/journal.ts";

interface SessionDeps {
  readonly journal: Journal;
  readonly limiter: Limiter;
  readonly inFlight: InFlight;
  readonly log: Logger;
  readonly config: () => Config;
  /** By the clock of this machine: sessions are not shared. */
  readonly now: () => number;
}

/** What the owner may do to one run of an agent. */
export function createSessionControls({
  journal,
  limiter,
  inFlight,
  log,
  config,
  now,
}: SessionDeps): Pick<Controls, "sessions" | "stopSession" | "liftSession"> {
  const notWritten = `the usage log cannot be written → ${advice.status()}`;
  return {
    sessions: () => sessionStatuses(Object.values(config().tools), limiter, inFlight.sessions()),
    stopSession(name, { session, stopped }, peer) {
      if (config().tools[name] === undefined) return null;
      const stop = { stopped, at: now() };
      // Also if it cannot be written: what runs away must stop.
      if (!limiter.stopSession(name, session, stop))
        return { cut: 0, problem: `tool ${name} has too many stopped sessions → ${advice.sessions()}` };
      const cut = stopped ? inFlight.cutSession(name, session) : 0;
      const what = stopped ? "was stopped" : "is allowed again";
      log.warn({ tool: name, session, cut, peer }, `session ${session} of tool ${name} ${what}`);
      const isKept = journal.append({ kind: "session-stop", tool: name, session, ...stop, given_by: peer });
      const problem = isKept
        ? null
        : `session ${session} ${what}, but only until the next start: ${notWritten}`;
      return { cut, problem };
    },
    liftSession(name, { session, kind, amount }, peer) {
      const tool = config().tools[name];
      if (tool === undefined) return null;
      const isLimited = (tool.limits.session?.[kind] ?? null) !== null;
      if (!isLimited) return { problem: `tool ${name} has no limit on ${kind} for a session`, limits: [] };
      const lift = { limit: kind, amount, given_at: now() };
      if (!journal.append({ kind: "session-lift", tool: name, session, ...lift, given_by: peer }))
        return { problem: notWritten, limits: [] };
      limiter.liftSession(name, session, lift);
      const what = amount === 0 ? "lost what it was given" : "was given more";
      log.warn({ tool: name, session, kind, amount, peer }, `session ${session} of tool ${name} ${what}`);
      const level = limiter.sessionLevels(tool).find((one) => one.session.id === session);
      return { problem: null, limits: level === undefined ? [] : sessionLimits(level) };
    },
  };
}
