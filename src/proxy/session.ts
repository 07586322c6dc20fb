import type { IncomingHttpHeaders } from "node:http";
import type { Snapshot } from "../config/snapshot.ts";
import type { ConnectionOwner } from "../core/process-lookup.ts";
import { loggableSession } from "./loggable.ts";

/**
 * The headers in which clients name the run they are in, captured from them in November 2026. Any program can send
 * `x-session-id` to name a run of its own. The table in docs/sessions.md says which client sends what.
 */
const SESSION_HEADERS = [
  // Claude Code 2.1.
  "x-claude-code-session-id",
  // opencode 1.18 and Kilo 7.7.
  "x-session-id",
  // Codex 0.169, and what it sent before.
  "session-id",
  "session_id",
  "conversation_id",
] as const;

/** The session that a request names, as it may be recorded; null: none. Only for counting: any client can invent one. */
export function readSession(headers: IncomingHttpHeaders, snapshot: Snapshot): string | null {
  for (const name of SESSION_HEADERS) {
    const value = headers[name];
    if (typeof value !== "string") continue;
    const session = loggableSession(value, snapshot);
    if (session !== null) return session;
  }
  return null;
}

/** The session of a request whose client names none: its process. null: the system does not say when that started. */
export function processSession({ pid, startedAt }: ConnectionOwner): string | null {
  return startedAt === null ? null : `process-${pid}-${startedAt}`;
}
