import { randomBytes, randomInt } from "node:crypto";
import type { Confirmations, ConfirmedAction, Digits, WaitingAction } from "../../control/confirmation.ts";
import type { Clock } from "../../core/clock.ts";
import { hashToken } from "../../core/token.ts";
import { MINUTE_MS } from "../../core/units.ts";
import { failure } from "../failure.ts";
import type { Plan } from "./action.ts";

/** How long a plan can be run, and how long the digits for it hold. */
const VALID_MS = 2 * MINUTE_MS;
const MAX_TRIES = 3;
/** If there are more, the oldest are dropped. */
const MAX_WAITING = 16;

interface Waiting {
  readonly id: string;
  /** The page that asked; another one cannot run it. */
  readonly session: string;
  readonly plan: Plan;
  readonly askedAt: number;
  digits: string | null;
  tries: number;
  /** It is dropped then. */
  timer: NodeJS.Timeout;
  readonly ended: Promise<ConfirmedAction>;
  readonly end: (how: ConfirmedAction) => void;
}

/** The plans that pages were shown, until they are run. What widens needs the digits that `keybearer confirm` prints. */
export class WaitingActions implements Confirmations {
  readonly #clock: Clock;
  readonly #validMs: number;
  #waiting: readonly Waiting[] = [];

  constructor(clock: Clock, validMs: number = VALID_MS) {
    this.#clock = clock;
    this.#validMs = validMs;
  }

  /** Returns the id with which the page runs it. */
  add(plan: Plan, session: string): string {
    let end: Waiting["end"] = () => {};
    const ended = new Promise<ConfirmedAction>((resolve) => {
      end = resolve;
    });
    const id = randomBytes(16).toString("hex");
    const askedAt = this.#clock.now();
    const timer = this.#dropLater(id);
    const waiting: Waiting = { id, session, plan, askedAt, digits: null, tries: 0, timer, ended, end };
    this.#waiting = [...this.#waiting, waiting];
    for (const old of this.#waiting.slice(0, -MAX_WAITING))
      this.#drop(old, "other actions were asked for since");
    return id;
  }

  /** Takes a plan out to run it. It can be taken once. Throws an HttpError. */
  take(id: string, session: string, digits: string | null): Pick<Waiting, "plan" | "end"> {
    const found = this.#find(id);
    if (found?.session !== session) throw failure(409, "action-gone");
    if (found.plan.change === "widens") this.#checkDigits(found, digits);
    this.#remove(found);
    return found;
  }

  waiting(): readonly WaitingAction[] {
    return this.#waiting
      .filter(({ plan }) => plan.change === "widens")
      .map(({ id, plan, askedAt }) => ({ id, what: plan.what, diff: plan.diff, asked_at: askedAt }));
  }

  confirm(id: string): Digits | null {
    const found = this.#find(id);
    if (found === null || found.plan.change !== "widens") return null;
    found.digits = String(randomInt(1_000_000)).padStart(6, "0");
    found.tries = 0;
    clearTimeout(found.timer);
    found.timer = this.#dropLater(id);
    return { digits: found.digits, expires_in: this.#validMs / 1000 };
  }

  ended(id: string): Promise<ConfirmedAction> | null {
    return this.#find(id)?.ended ?? null;
  }

  leave(id: string): void {
    const found = this.#find(id);
    if (found !== null) found.digits = null;
  }

  /** Ends all of them: keybearer stops. */
  stop(): void {
    for (const each of this.#waiting) this.#drop(each, "keybearer stopped");
  }

  #find(id: string): Waiting | null {
    return this.#waiting.find((each) => each.id === id) ?? null;
  }

  #checkDigits(found: Waiting, digits: string | null): void {
    if (found.digits === null || digits === null) throw failure(403, "digits-missing");
    // How long it takes to compare hashes says nothing about the digits.
    if (hashToken(found.digits) === hashToken(digits)) return;
    found.tries += 1;
    const left = MAX_TRIES - found.tries;
    if (left > 0) throw failure(403, "digits-wrong", `${left} more ${left === 1 ? "try" : "tries"}`);
    this.#drop(found, "the digits were wrong three times");
    throw failure(403, "digits-wrong-thrice");
  }

  /** Somebody waits for how it ends, and perhaps no page asks for anything any more. */
  #dropLater(id: string): NodeJS.Timeout {
    const drop = () => {
      const found = this.#find(id);
      if (found !== null) this.#drop(found, "the digits were not typed within two minutes");
    };
    return setTimeout(drop, this.#validMs);
  }

  #remove(waiting: Waiting): void {
    clearTimeout(waiting.timer);
    this.#waiting = this.#waiting.filter((each) => each !== waiting);
  }

  #drop(waiting: Waiting, problem: string): void {
    this.#remove(waiting);
    waiting.end({ state: "dropped", what: `nothing was changed: ${problem}`, next: null, token: null });
  }
}
