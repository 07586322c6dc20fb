/**
 * The few things that are under way, in the order in which they began. It does what a Set does, but is made for what comes
 * and goes all the time: a Set makes a new table every few turns, and in V8 each table that it gave up leads to the next
 * one. Once the first of them is old, all of them, and every request they ever held, outlive the quick collections of
 * garbage and wait for a full one.
 */
export class UnderWay<T> {
  /** Never made shorter, so that it is never made anew either. */
  readonly #places: (T | undefined)[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** To be added once only. */
  add(one: T): void {
    this.#places[this.#size] = one;
    this.#size += 1;
  }

  /** False: it was not there. */
  delete(one: T): boolean {
    const places = this.#places;
    const at = places.indexOf(one);
    if (at === -1) return false;
    this.#size -= 1;
    for (let i = at; i < this.#size; i += 1) places[i] = places[i + 1];
    places[this.#size] = undefined;
    return true;
  }

  /** As they are now, whatever happens to them later. */
  list(most = this.#size): T[] {
    return this.#places.slice(0, Math.min(most, this.#size)) as T[];
  }
}
