/*
 * How much is held for a request before it is sent.
 *
 * Output: the request's own maximum if it names one. The gateway enforces it, so the limit holds whatever the response turns
 * out to be. If it names none, the median of the tool's recent requests: one tool's requests resemble each other, and one
 * long response does not move a median as it would a mean. The median is kept above a floor, so that a series of one-word
 * responses (titles, checks) does not admit a burst of real requests for nothing, and below a ceiling, so that a series of
 * long ones does not close a small limit.
 *
 * Input: by the size of the body, four bytes per token. That is the usual rule for English and code, and what JSON adds is
 * on the safe side. Scripts with three bytes per character come out about a third too low. An image comes out far too
 * high, so there is a ceiling: the context of most models. A body of unknown size (chunked) counts as the recent median.
 *
 * Settling replaces what was held by what was used, so an error lasts no longer than the request.
 */

const BYTES_PER_TOKEN = 4;
const MAX_INPUT = 200_000;
/** No model writes more in one response; a request may still name any number. */
const MAX_NAMED = 1_000_000;
const FLOOR = 1_000;
const CEILING = 32_000;
/** Before the first request of a tool has ended. */
const FIRST = 4_000;
/** Odd, so that the median is the value of one request. */
const REMEMBERED = 31;

/** Tokens that a request is expected to use, or used. Input includes what was read from or written to a cache. */
export interface CallTokens {
  readonly input: number;
  readonly output: number;
}

/** What is known of a request before it is sent. */
interface Sizing {
  /** The request's own maximum of output tokens; null: it names none. */
  readonly named: number | null;
  /** null: unknown. */
  readonly bodyBytes: number | null;
  /** false: its response has no output that is counted in tokens, such as embeddings. */
  readonly hasOutput: boolean;
}

export function expectedTokens(sizing: Sizing, recent: CallTokens | null): CallTokens {
  const { named, bodyBytes, hasOutput } = sizing;
  const input =
    bodyBytes === null ? usual(recent?.input) : Math.min(Math.ceil(bodyBytes / BYTES_PER_TOKEN), MAX_INPUT);
  const output = named === null ? usual(recent?.output) : Math.min(Math.ceil(named), MAX_NAMED);
  return { input, output: hasOutput ? output : 0 };
}

function usual(median = FIRST): number {
  return Math.min(Math.max(median, FLOOR), CEILING);
}

/**
 * A request's own maximum of output tokens, from the fields of its body, by path. The greatest of several, because gateways
 * differ in which one they pass on; times the number of answers asked for.
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

/** 0: none. */
function amountIn(value: unknown): number {
  return typeof value === "number" && value > 0 ? value : 0;
}

/** What a tool's last requests used. */
export class RecentCalls {
  readonly #calls: CallTokens[] = [];

  /** Only what the gateway reported: estimates must not be learned from. */
  add(call: CallTokens): void {
    this.#calls.push(call);
    if (this.#calls.length > REMEMBERED) this.#calls.shift();
  }

  /** null: there was none yet. */
  median(): CallTokens | null {
    if (this.#calls.length === 0) return null;
    return {
      input: computeMedian(this.#calls.map(({ input }) => input)),
      output: computeMedian(this.#calls.map(({ output }) => output)),
    };
  }
}

function computeMedian(values: readonly number[]): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}
