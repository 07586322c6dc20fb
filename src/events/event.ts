import type { EventKind } from "../config/schema.ts";

/** critical: money or keys are in danger. warning: something does not work, or soon will not. info: something ended. */
export type Severity = "critical" | "warning" | "info";

/** Something the owner should know. Never a key, a token, a prompt or a whole address. */
export interface Event {
  /** A ULID, so that ids sort by time. */
  readonly id: string;
  /** Milliseconds UTC. */
  readonly at: number;
  readonly kind: EventKind;
  readonly severity: Severity;
  /** What it is about: a tool, gateway, console or session, such as `tool codex`. */
  readonly subject: string;
  /** One sentence. */
  readonly message: string;
  /** What to type next; null: nothing is needed. */
  readonly next: string | null;
  /** ended: what an earlier event said is over. summary: how many more of its kind and subject there were in an hour. */
  readonly state: "begun" | "ended" | "summary";
}

/** What may be reported as an event: it becomes one unless the same was reported in the last hour, or is muted. */
export type Occurrence = Omit<Event, "id" | "at" | "state">;
