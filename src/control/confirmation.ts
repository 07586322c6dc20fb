/** What the dashboard asks for, and a person confirms with `keybearer confirm`. The daemon's answers to that command. */

export interface WaitingAction {
  readonly id: string;
  /** One sentence. */
  readonly what: string;
  /** Of config.yaml, without secrets; empty: it stays as it is. */
  readonly diff: readonly string[];
  readonly asked_at: number;
}

export interface Digits {
  /** Six of them, for this action alone. */
  readonly digits: string;
  /** Whole seconds. */
  readonly expires_in: number;
}

/** How it ended. dropped: too late, too many wrong digits, or the page asked for something else. */
export interface ConfirmedAction {
  readonly state: "done" | "failed" | "dropped";
  /** What was done, or why not. */
  readonly what: string;
  readonly next: string | null;
  /** A new token, which no page may see. */
  readonly token: string | null;
}

export interface Confirmations {
  /** The newest last. */
  waiting(): readonly WaitingAction[];
  /** Makes the digits for one of them. null: it waits no longer. */
  confirm(id: string): Digits | null;
  /** Resolves when it has ended. null: there is no such action. */
  ended(id: string): Promise<ConfirmedAction> | null;
  /** Nobody waits any more for how it ends, so its digits are void. */
  leave(id: string): void;
}
