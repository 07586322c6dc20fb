import { advice } from "../core/advice.ts";
import { HttpError } from "../core/errors.ts";

/** A response that is not 200. */
export interface Failure {
  /** What happened and what to do, in English. */
  readonly error: string;
  /** A FailureCode, for which the page has a text of its own; null: it shows the message. */
  readonly code: string | null;
}

const TEXTS = {
  "other-user":
    "this connection belongs to another user of this machine. only the user that runs keybearer may use the dashboard",
  "no-session": `this page has no session, or its session has ended → ${advice.open()}`,
  "code-over": `this code was used before, or is older than a minute → ${advice.open()}`,
  "wrong-signature": `the signature of this browser does not hold → ${advice.open()}`,
  "unknown-browser": `this browser is not remembered, or not any more → ${advice.open()}`,
  "too-many-challenges": `too many attempts. wait a minute → ${advice.open()}`,
  "too-many-questions": "too many requests are waiting. try again in a moment",
  "action-gone": "this action waits no longer: ask for it again",
  "digits-missing": `this needs six digits from a terminal → ${advice.confirm()}`,
  "digits-wrong": "these are not the digits for this action; {}",
  "digits-wrong-thrice": "the digits were wrong three times: ask for the action again",
  "config-not-in-force": "config.yaml is not in force, so nothing was changed: {}",
  "rows-changed": "there are other rows than the page showed: look at them again",
  "nothing-held": "nothing of {} is held any more",
  "bookmark-user-unknown": `no browser can be remembered here: this system does not show which user a connection belongs to → ${advice.open()}`,
  "bookmark-port-closed":
    "a bookmark opens the dashboard only where its port is always open, and dashboard.when is {} → write dashboard: { when: always } into config.yaml",
};

/** control/followers.ts has one of them. */
export type FailureCode = keyof typeof TEXTS | "too-many-followers";

/** @param detail takes the place of {} */
export function failure(status: number, code: keyof typeof TEXTS, detail = ""): HttpError {
  const [problem = "", next = null] = TEXTS[code].split(" → ");
  return new HttpError(status, { problem: problem.replace("{}", () => detail), next }, code);
}
