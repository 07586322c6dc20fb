import type { Problem } from "../core/display.ts";
import type { ChannelKind } from "./channels.ts";

/** Where events are sent, as `keybearer status --json` prints it. Times in milliseconds UTC. */
export interface NotifyStatus {
  readonly channels: readonly ChannelStatus[];
  /** Quiet hours: only what is critical is sent now. */
  readonly quiet: boolean;
  /** Why what waits would not survive a restart; null: it would. */
  readonly problem: string | null;
}

export interface ChannelStatus {
  readonly name: string;
  readonly kind: ChannelKind;
  /**
   * - ok: the last message was delivered, or there was none
   * - held: it waits for `keybearer trust notify`
   * - unavailable: its address or secret cannot be read or used
   * - failing: the last attempt failed, and it is tried again
   * - gone: the receiver accepts no more messages
   * - absent: there is no desktop here
   */
  readonly state: "ok" | "held" | "unavailable" | "failing" | "gone" | "absent";
  /** Since when it is failing or gone; null: it is neither. */
  readonly since: number | null;
  /** Messages that it has not delivered yet. */
  readonly waiting: number;
  /** Messages that were given up since the start: after a day, or because more than a thousand waited. */
  readonly lost: number;
  readonly delivered_at: number | null;
  /** Why it is not ok; null: it is. */
  readonly why: string | null;
  /** What to do about it; null: nothing is needed, or nothing is known that helps. */
  readonly next: string | null;
}

/** How the test of one channel ended. */
export interface TestResult extends Problem {
  readonly channel: string;
  readonly kind: ChannelKind;
  readonly result: "delivered" | "failed" | "held" | "absent";
}
