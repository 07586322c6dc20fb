import { advice } from "../../core/advice.ts";
import type { Clock } from "../../core/clock.ts";
import { type Refusal, refuse } from "../../core/refusal.ts";
import type { Secret } from "../../core/secret.ts";
import { durationInWords } from "../../limits/format.ts";
import type { Outcome } from "../outcome.ts";

/** Gateways lock an address out after many requests with a bad key: sub2api 0.1.179 after about 120. */
const MAX_REFUSALS = 5;
const PAUSE_MS = 60_000;

/** A tool whose requests keybearer refuses itself, because the gateway keeps answering 401 to its key. */
export interface KeyPause {
  readonly since: number;
  /** From then on one request may try the key. */
  readonly until: number;
  /** That request is in flight. */
  readonly probing: boolean;
  /** Requests refused here since the pause began. */
  readonly refused: number;
}

interface Row {
  readonly key: Secret;
  /** 401s in a row. */
  refusals: number;
  /** The gateway's last answer, and what to do about it. */
  answer: string;
  /** A new key may be accepted. One of an account that is disabled is not. */
  newKeyHelps: boolean;
  pause: { readonly since: number; until: number; refused: number } | null;
  /** The id of the request that tries the key. */
  probe: string | null;
}

/**
 * Stops sending a tool's requests after five 401s in a row, so that a tool that retries with a dead key does not lock the
 * others out. After a minute one request tries the key: if it is accepted, the pause ends; another 401 starts the next
 * minute. A new key starts afresh.
 */
export class KeyBreaker {
  readonly #clock: Clock;
  readonly #rows = new Map<string, Row>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** null: the request may be sent. Every request that may must be settled. */
  admit(tool: string, key: Secret, id: string): Refusal | null {
    const row = this.#rowOf(tool, key);
    if (row === null || row.pause === null) return null;
    const wait = row.pause.until - this.#clock.elapsed();
    if (wait <= 0 && row.probe === null) {
      row.probe = id;
      return null;
    }
    row.pause.refused += 1;
    const next =
      wait > 0
        ? `the next request is sent in ${durationInWords(wait)}`
        : "another request is trying the key right now";
    const rotate = row.newKeyHelps ? `. with a new key it works at once: ${advice.rotate(tool)}` : "";
    return refuse(
      "key-unavailable",
      `the gateway refused the key of tool ${tool} ${row.refusals} times in a row: ${row.answer}. ` +
        `nothing was sent, so that the gateway does not block this machine; ${next}${rotate}`,
    );
  }

  /** A good response began. The pause ends now: a stream may go on for minutes. */
  accept(tool: string, key: Secret): void {
    if (this.#rowOf(tool, key) !== null) this.#rows.delete(tool);
  }

  settle(tool: string, key: Secret, id: string, outcome: Outcome): void {
    const row = this.#rowOf(tool, key);
    const isProbe = row?.probe === id;
    if (row !== null && isProbe) row.probe = null;
    switch (verdictOf(outcome)) {
      case "accepted":
        this.accept(tool, key);
        return;
      case "refused":
        this.#countRefusal(tool, key, row, isProbe, outcome);
        return;
      case "unknown":
        return;
    }
  }

  /** null: the tool's requests are sent. */
  of(tool: string, key: Secret): KeyPause | null {
    const row = this.#rowOf(tool, key);
    if (row === null || row.pause === null) return null;
    const { since, until, refused } = row.pause;
    const wait = Math.max(0, Math.round(until - this.#clock.elapsed()));
    return { since, until: this.#clock.now() + wait, probing: row.probe !== null, refused };
  }

  /** The owner changed something: every key is tried again. */
  clear(): void {
    this.#rows.clear();
  }

  #countRefusal(tool: string, key: Secret, before: Row | null, isProbe: boolean, outcome: Outcome): void {
    const row = before ?? { key, refusals: 0, answer: "", newKeyHelps: true, pause: null, probe: null };
    this.#rows.set(tool, row);
    row.refusals += 1;
    row.answer = answerInWords(outcome);
    row.newKeyHelps = outcome.observed.cause?.detail !== "account-disabled";
    if (row.refusals < MAX_REFUSALS) return;
    const until = this.#clock.elapsed() + PAUSE_MS;
    if (row.pause === null) row.pause = { since: this.#clock.now(), until, refused: 0 };
    // Requests that were sent before the pause began may still be answered. They do not make it longer.
    else if (isProbe) row.pause.until = until;
  }

  #rowOf(tool: string, key: Secret): Row | null {
    const row = this.#rows.get(tool);
    return row?.key.equals(key) ? row : null;
  }
}

/** Whether the gateway accepted the key. A server error, a rate limit or no answer says nothing about it. */
function verdictOf({ status, refusal, end, observed }: Outcome): "accepted" | "refused" | "unknown" {
  if (status === null || refusal !== null || end === "refused") return "unknown";
  // Some gateways pass on the 401 of the provider behind them. It says nothing about this key.
  if (status === 401) return observed.cause?.concernsKey ? "refused" : "unknown";
  return status >= 500 || status === 429 ? "unknown" : "accepted";
}

function answerInWords({ status, observed }: Outcome): string {
  const said = observed.errorText === null ? "" : ` "${observed.errorText}"`;
  const next = observed.cause?.next;
  return `${status}${said}${next === undefined ? "" : `. ${next}`}`;
}
