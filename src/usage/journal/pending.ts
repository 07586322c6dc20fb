/** While the disk says no, this many lines wait at most, and this many bytes of them. */
const MAX_LINES = 1000;
const MAX_BYTES = 4 * 1024 * 1024;

interface Waiting {
  readonly text: string;
  readonly isRefusal: boolean;
}

/** Lines that the disk has not taken yet, in order. Bounded: refusals go before anything that was sent to a gateway. */
export class PendingLines {
  #lines: Waiting[] = [];
  #bytes = 0;
  #lost = 0;
  #refusalsLost = 0;
  #reportedLost = 0;
  #reportedRefusals = 0;

  get size(): number {
    return this.#lines.length;
  }

  get lost(): number {
    return this.#lost;
  }

  get refusalsLost(): number {
    return this.#refusalsLost;
  }

  add(text: string, isRefusal: boolean): void {
    this.#lines.push({ text, isRefusal });
    this.#bytes += text.length;
    while (this.#lines.length > MAX_LINES || this.#bytes > MAX_BYTES) this.#dropOne();
  }

  text(): string {
    return this.#lines.map(({ text }) => text).join("");
  }

  /** They are written. */
  clear(): void {
    this.#lines = [];
    this.#bytes = 0;
  }

  /** They will never be written. */
  giveUp(): void {
    while (this.#lines.length > 0) this.#dropOne();
  }

  /** What was lost since the last call. */
  newLosses(): { readonly records: number; readonly refusals: number } {
    const records = this.#lost - this.#reportedLost;
    const refusals = this.#refusalsLost - this.#reportedRefusals;
    this.#reportedLost = this.#lost;
    this.#reportedRefusals = this.#refusalsLost;
    return { records, refusals };
  }

  #dropOne(): void {
    const refusal = this.#lines.findIndex(({ isRefusal }) => isRefusal);
    const [dropped] = this.#lines.splice(Math.max(0, refusal), 1);
    if (dropped === undefined) return;
    this.#bytes -= dropped.text.length;
    if (dropped.isRefusal) this.#refusalsLost += 1;
    else this.#lost += 1;
  }
}
