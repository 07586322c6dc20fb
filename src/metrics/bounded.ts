/** Label values that others choose, such as names of models: so many of them, and every further one counts as `other`. */
export class BoundedNames {
  readonly #max: number;
  readonly #known = new Set<string>();

  constructor(max: number) {
    this.#max = max;
  }

  label(name: string): string {
    if (this.#known.has(name)) return name;
    if (this.#known.size >= this.#max) return OTHER;
    this.#known.add(name);
    return name;
  }
}

/** Stands for every name beyond the first ones. */
export const OTHER = "other";
