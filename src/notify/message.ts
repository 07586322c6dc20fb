import type { Event } from "../events/event.ts";

/** What a channel sends: an event, or a person's test of whether it arrives. */
export interface Message extends Omit<Event, "kind"> {
  readonly kind: Event["kind"] | "test";
}

/** How one attempt to send a message ended. */
export type Outcome =
  | { readonly result: "delivered" }
  /** There is nothing that it could be sent to now, which is no error. */
  | { readonly result: "absent"; readonly problem: string }
  | Unsent;

export interface Unsent {
  /** gone: the receiver accepts no more messages at all. */
  readonly result: "retry" | "gave-up" | "gone";
  readonly problem: string;
  /** What to do about it; null: it may end by itself. */
  readonly next: string | null;
  /** The receiver asks to be left alone for so long. */
  readonly afterMs?: number;
  /** The receiver is there and does not take this message, so others are tried before it. */
  readonly isRefused?: boolean;
}

export const DELIVERED: Outcome = Object.freeze({ result: "delivered" });

/** Longer texts are cut: phones show a few lines. */
const MAX_TEXT = 2000;

/** The name keybearer is in every title: robots of DingTalk and Feishu can demand a word in each message. */
export function titleOf({ state, severity, subject }: Message): string {
  if (state === "ended") return `keybearer, resolved: ${subject}`;
  return severity === "critical" ? `keybearer alert: ${subject}` : `keybearer: ${subject}`;
}

export function textOf({ message, next }: Message): string {
  const text = next === null ? message : `${message}\n→ ${next}`;
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}
