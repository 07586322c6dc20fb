import type { Ask } from "./counters.ts";

/*
 * How much is held for a call before it is sent.
 *
 * Output: the request's own maximum where it names one. The gateway holds the model to it, so the limit holds whatever the
 * answer turns out to be. Where it names none, the median of the tool's recent calls: one tool's calls resemble each
 * other, and the median shrugs off the one long answer that a mean would remember all day. It is kept above a floor, so
 * that a series of one-word answers (titles, checks) does not let a burst of real calls in unheld, and below a ceiling,
 * so that a series of long ones does not shut a small limit.
 *
 * Input: by the size of the body, four bytes to a token: the usual rule for English and code, and what JSON adds errs
 * to the safe side. Scripts of three bytes a character come out about a third too low, which the settling mends. An image
 * comes out far too high, so there is a ceiling: the context that most models have. A body of unknown size (chunked)
 * counts as the recent median.
 *
 * What is held too much comes back when the call settles; what was held too little is counted then. Either way the
 * error lasts no longer than the call.
 */

const BYTES_PER_TOKEN = 4;
const MOST_INPUT = 200_000;
/** No model writes more in one answer; a request may still name any number. */
const MOST_NAMED = 1_000_000;
const FLOOR = 1_000;
const CEILING = 32_000;
/** Before a tool's first call has ended. */
const FIRST = 4_000;
/** Odd, so that the median is a call that was made. */
const REMEMBERED = 31;

/** Tokens that a call is expected to use, or used. Input includes what was read from or written to a cache. */
export interface CallTokens {
  readonly input: number;
  readonly output: number;
}

/** What is known of a request before it is sent. */
export interface Sizing {
  /** The most output it lets itself have; null: it names none. */
  readonly named: number | null;
  /** null: not told. */
  readonly bodyBytes: number | null;
  /** false: its answer has no output that is counted in tokens, such as embeddings. */
  readonly hasOutput: boolean;
}

export function expectedTokens(sizing: Sizing, recent: CallTokens | null): CallTokens {
  const { named, bodyBytes, hasOutput } = sizing;
  const input =
    bodyBytes === null ? usual(recent?.input) : Math.min(Math.ceil(bodyBytes / BYTES_PER_TOKEN), MOST_INPUT);
  const output = named === null ? usual(recent?.output) : Math.min(Math.ceil(named), MOST_NAMED);
  return { input, output: hasOutput ? output : 0 };
}

function usual(median = FIRST): number {
  return Math.min(Math.max(median, FLOOR), CEILING);
}

/**
 * @param cost micro-dollars of so many tokens, input at the dearest way it can be billed (a write to a cache costs more than
 *   plain input), times the group's multiplier; null: nobody knows the price.
 */
export function askFor(expected: CallTokens, cost: (tokens: CallTokens) => number | null): Ask {
  return { tokens: expected.input + expected.output, spend: cost(expected) };
}

/**
 * The most output that a request lets itself have, from the fields of its body, by path, as far as they were seen. Of
 * several the greatest, because gateways differ in which one they pass on; times the number of answers asked for.
 */
export function namedMaximum(fields: Readonly<Record<string, unknown>>): number | null {
  const named = Math.max(
    amountIn(fields.max_tokens),
    amountIn(fields.max_completion_tokens),
    amountIn(fields.max_output_tokens),
    amountIn(fields["generationConfig.maxOutputTokens"]),
  );
  if (named === 0) return null;
  const answers = Math.max(
    1,
    amountIn(fields.n),
    amountIn(fields.best_of),
    amountIn(fields["generationConfig.candidateCount"]),
  );
  return named * answers;
}

/** What a tool's last calls used. */
export class RecentCalls {
  /** Once there are enough of them, the next one takes the oldest one's place. */
  readonly #calls: CallTokens[] = [];
  #oldest = 0;
  /** The same, each kind for itself and in order: every request asks for the median. */
  readonly #input: number[] = [];
  readonly #output: number[] = [];

  /** Only what the gateway reported: a guess must not be learnt from. */
  note(call: CallTokens): void {
    const forgotten = this.#calls.length < REMEMBERED ? undefined : this.#calls[this.#oldest];
    if (forgotten === undefined) this.#calls.push(call);
    else {
      remove(this.#input, forgotten.input);
      remove(this.#output, forgotten.output);
      this.#calls[this.#oldest] = call;
      this.#oldest = (this.#oldest + 1) % REMEMBERED;
    }
    insert(this.#input, call.input);
    insert(this.#output, call.output);
  }

  /** null: there was none yet. */
  median(): CallTokens | null {
    const middle = Math.floor(this.#calls.length / 2);
    const input = this.#input[middle];
    const output = this.#output[middle];
    return input === undefined || output === undefined ? null : { input, output };
  }
}

function insert(sorted: number[], value: number): void {
  let at = sorted.length;
  sorted.push(value);
  for (; at > 0 && (sorted[at - 1] ?? 0) > value; at -= 1) sorted[at] = sorted[at - 1] ?? 0;
  sorted[at] = value;
}

function remove(sorted: number[], value: number): void {
  for (let at = sorted.indexOf(value) + 1; at < sorted.length; at += 1) sorted[at - 1] = sorted[at] ?? 0;
  sorted.pop();
}

/** 0: none. */
function amountIn(value: unknown): number {
  return typeof value === "number" && value > 0 ? value : 0;
}
