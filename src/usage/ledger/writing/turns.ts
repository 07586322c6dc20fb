/**
 * After records were written, those that come meanwhile wait to be written together: a millisecond for each that was
 * finished, within these bounds. To write their cell and the pages of the indexes costs as much as fifty of them, and under
 * load a turn of the event loop brings fewer; where little goes on, each is written at once. Nobody waits for them: they
 * are noted, or their answers have left; whoever asks the ledger has them written first. If the process is killed
 * meanwhile, they are there as interrupted, as if it had been killed so many milliseconds earlier.
 */
const SHORTEST_REST_MS = 10;
const LONGEST_REST_MS = 50;

/** When what waits is written. */
export class Turns {
  readonly #means: TurnsMeans;
  readonly #write: () => void;
  readonly #afterRest: () => void;
  /** It is written by the end of this turn of the event loop. */
  #soon = false;
  /** It was just written. */
  #rests = false;
  #later: NodeJS.Timeout | undefined;

  constructor(means: TurnsMeans) {
    this.#means = means;
    this.#write = () => {
      this.#soon = false;
      this.#rests = false;
      clearTimeout(this.#later);
      this.#later = undefined;
      const finished = means.finished();
      means.write();
      if (finished > 0) this.#rest(finished);
    };
    this.#afterRest = () => {
      this.#rests = false;
      this.#later = undefined;
      if (this.#means.finished() > 0) this.#write();
      else if (this.#means.noted() > 0) this.note();
    };
  }

  /** Somebody waits for it. Everything that comes in one turn goes into one transaction. */
  open(): void {
    if (this.#soon) return;
    this.#soon = true;
    setImmediate(this.#write);
  }

  finish(): void {
    if (!this.#rests) this.open();
  }

  /** It is on disk: most of them are finished before they have to be written, and then written once instead of twice. */
  note(): void {
    if (!this.#soon && this.#later === undefined) this.#later = setTimeout(this.#write, LONGEST_REST_MS);
  }

  stop(): void {
    clearTimeout(this.#later);
  }

  #rest(finished: number): void {
    this.#rests = true;
    const rest = Math.max(SHORTEST_REST_MS, Math.min(finished, LONGEST_REST_MS));
    this.#later = setTimeout(this.#afterRest, rest);
  }
}

export interface TurnsMeans {
  /** Everything that waits. */
  readonly write: () => void;
  /** How many finished ones wait, unless they have to wait longer. */
  readonly finished: () => number;
  /** How many wait that are only noted. */
  readonly noted: () => number;
}
