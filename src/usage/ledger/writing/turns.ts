/**
 * After finished records were written, those that come meanwhile wait to be written together: a millisecond for each that
 * was written, and at most so many. To write their cell and the pages of the indexes costs as much as thirty of them, and
 * under load a turn of the event loop brings fewer; where little goes on, each is written at once. Nobody waits for them,
 * the answers have left; whoever asks the ledger has them written first. If the process is killed meanwhile, they are
 * there as interrupted, as if it had been killed so many milliseconds earlier.
 */
const LONGEST_REST_MS = 20;

/** When what waits is written: an opening by the end of this turn of the event loop, what is finished soon. */
export class Turns {
  readonly #write: TurnsMeans;
  readonly #open: () => void;
  readonly #finish: () => void;
  #opens = false;
  /** Finished records are about to be written, or just were. */
  #rests = false;
  #rest: NodeJS.Timeout | undefined;

  constructor(write: TurnsMeans) {
    this.#write = write;
    this.#open = () => {
      this.#opens = false;
      this.#write.openings();
    };
    this.#finish = () => {
      const written = this.#write.finished();
      this.#rests = written > 0;
      if (this.#rests) this.#rest = setTimeout(this.#finish, Math.min(written, LONGEST_REST_MS));
    };
  }

  /** Every opening that comes in one turn goes into one transaction. */
  open(): void {
    if (this.#opens) return;
    this.#opens = true;
    setImmediate(this.#open);
  }

  finish(): void {
    if (this.#rests) return;
    this.#rests = true;
    // Not by the turn's own transaction: openings would wait for it.
    setImmediate(this.#finish);
  }

  stop(): void {
    clearTimeout(this.#rest);
  }
}

export interface TurnsMeans {
  readonly openings: () => void;
  /** How many there were to write. */
  readonly finished: () => number;
}
