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
  /** What it is about: a tool, gateway, console or key, such as `tool codex`. */
  readonly subject: string;
  /** One sentence. */
  readonly message: string;
  /** What to type next; null: nothing is needed. */
  readonly next: string | null;
  /** ended: what an earlier event said is over. summary: how many more of its kind and subject there were in an hour. */
  readonly state: "begun" | "ended" | "summary";
}

/**
 * What may be reported as an event. It becomes one unless the same was reported in the last hour, or, where `once` is set,
 * ever. What is muted becomes an event too, but is not sent.
 */
export interface Occurrence extends Omit<Event, "id" | "at" | "state"> {
  /** Absent: it may happen again, and is then reported at most once an hour. */
  readonly once?: Once;
  /** Absent: an earlier version stored it. */
  readonly said?: Said;
}

/** The sentence without its words, so that the dashboard says it in the reader's language. */
export interface Said {
  readonly code: SentenceCode;
  /** Of a name that ends in _at it is a time, in _ms a duration, both in milliseconds. */
  readonly values: Readonly<Record<string, string | number>>;
}

export const SENTENCE_CODES = [
  "leak",
  "leak-of-tools",
  "suspicion",
  "suspicion-of-tools",
  "alarm-over",
  "key-refused",
  "key-accepted",
  "needs-trust",
  "trusted",
  "gateway-down",
  "gateway-back",
  "gateway-unknown",
  "mirror-blind",
  "mirror-read",
  "log-unavailable",
  "log-back",
  "config-rejected",
  "config-accepted",
  "gone",
  "limit",
  "quota",
  "session-limit",
  "tool-expires",
  "key-expires",
  "login-expires",
  "spending",
  "other-model",
] as const;
export type SentenceCode = (typeof SENTENCE_CODES)[number];

/** Names what is reported a single time, among the events of a kind and subject. */
export interface Once {
  /** Such as `spend/day 100 2026-11-18`. */
  readonly name: string;
  /** The name is remembered until this time. */
  readonly until: number;
}

/** The `until` of what must never be reported again: the last time that a Date can have. */
export const FOREVER = 8.64e15;

/** An event as it is listed and stored. */
export interface ListedEvent extends Event {
  /** It was not sent: its subject was muted, or what it ends was. */
  readonly muted: boolean;
  /** It says that something lasts that did not end until now. */
  readonly active: boolean;
  readonly said?: Said;
}

/** Kinds of which an event says that something has begun, and a later one that it is over. All others just happen. */
export const LASTING_KINDS: readonly EventKind[] = [
  "leak",
  "suspicion",
  "key-refused",
  "needs-trust",
  "gateway-down",
  "log-unavailable",
  "mirror-blind",
  "config-rejected",
];
