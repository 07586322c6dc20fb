import type { Change } from "../../config/compare.ts";
import type { Controls } from "../../control/routes.ts";
import type { Clock } from "../../core/clock.ts";
import type { Paths } from "../../core/paths.ts";
import type { Bookmarks } from "../bookmarks/bookmarks.ts";

/** An action as it would be done now. */
export interface Plan {
  /** One sentence, such as "give codex $5 more". It is printed in the terminal and logged. */
  readonly what: string;
  readonly change: Change;
  /** Of config.yaml, without secrets; empty: it stays as it is. */
  readonly diff: readonly string[];
  /** The command that undoes it; null: nothing does. */
  readonly undo: string | null;
  /** Throws an HttpError if it cannot be done. */
  run(): Promise<Done>;
}

export interface Done {
  /** What is to be known beside that it was done; null: nothing. */
  readonly note: string | null;
  /** For `keybearer confirm`, which prints it; null: there is none. */
  readonly token: string | null;
}

export interface PlanDeps {
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly controls: Controls;
  readonly isSandbox: () => boolean;
  /** Reads config.yaml now, instead of when the save is noticed. Answers why it is not in force; null: it is. */
  readonly refresh: () => Promise<string | null>;
  readonly bookmarks: Pick<Bookmarks, "check" | "remember" | "revoke">;
  /** The address of the page that asks: http://localhost:5398 */
  readonly origin: string;
}

/** What the routes of the control socket call a caller. */
export const PEER = "the dashboard";

export const DONE: Done = { note: null, token: null };
