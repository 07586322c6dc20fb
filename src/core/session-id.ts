import { dayName } from "./units.ts";

/** What says which session a request belongs to. */
export interface SessionOrigin {
  /** As the client names it, or its process; null: neither is known. */
  readonly session: string | null;
  /** The name of its token; null: it has none. */
  readonly token: string | null;
}

/** Instead of the name of a token, for requests without one. */
export const NO_TOKEN = "no-token";

/** What begins the id of a session that is the calling process, because its client names none. */
export const PROCESS_SESSION = "process-";

/**
 * Requests that name no session share one: those of a tool that showed the same token on the same day, local time. Such as
 * 2026-11-19/laptop. No client can send an id with a slash.
 */
export function sharedSession(at: number, token: string | null): string {
  return `${dayName(at)}/${token ?? NO_TOKEN}`;
}

/**
 * The session in which limits count a request that was admitted at this time. A process counts as none: a loop of curl would
 * have a new session with each request.
 */
export function countedSession({ session, token }: SessionOrigin, at: number): string {
  const isNamed = session !== null && !session.startsWith(PROCESS_SESSION);
  return isNamed ? session : sharedSession(at, token);
}
