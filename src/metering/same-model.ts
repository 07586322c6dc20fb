import { normalizeName } from "./model-names.ts";

/*
 * Whether the model that answered is the one that was asked for. A gateway writes its name in its own way: with a maker in
 * front, with the date of the version that the name stands for, in other letters.
 */

/** Pairs of model names that the owner knows to be the same: the names that may answer, by the name asked for. */
export type SameModels = Readonly<Record<string, readonly string[]>>;

/** The list of prices knows more names than the rules here. */
interface PricedNames {
  isSameModel(one: string, other: string): boolean;
}

/** This many pairs are remembered: finding both names in the list of prices takes up to 30 µs. */
const MAX_REMEMBERED = 1000;

/** Compares the names of models, and remembers what it found. */
export class ModelComparison {
  readonly #prices: PricedNames;
  /** By the name asked for, then by the one that answered. */
  readonly #remembered = new Map<string, Map<string, boolean>>();
  #size = 0;

  constructor(prices: PricedNames) {
    this.#prices = prices;
  }

  isSame(asked: string, answered: string, same: SameModels): boolean {
    // The usual case.
    if (asked === answered) return true;
    if (this.#isSameByName(asked, answered)) return true;
    return Object.hasOwn(same, asked) && (same[asked] ?? []).includes(answered);
  }

  #isSameByName(asked: string, answered: string): boolean {
    const remembered = this.#remembered.get(asked)?.get(answered);
    if (remembered !== undefined) return remembered;
    const isSame = isSameName(asked, answered) || this.#prices.isSameModel(asked, answered);
    if (this.#size >= MAX_REMEMBERED) {
      this.#remembered.clear();
      this.#size = 0;
    }
    const answers = this.#remembered.get(asked) ?? new Map<string, boolean>();
    answers.set(answered, isSame);
    this.#remembered.set(asked, answers);
    this.#size += 1;
    return isSame;
  }
}

/** Whether two names differ only in case, in what stands in front, and in the version's date. */
export function isSameName(one: string, other: string): boolean {
  return bareName(one) === bareName(other);
}

/** anthropic/, models/, publishers/google/models/, and Bedrock's us.anthropic. */
const IN_FRONT = /^(?:.*\/|(?:[a-z]{2,8}\.)?anthropic\.)/;
/** -20250929, -2025-08-07, -2025-08, -08-07, -0905, @20250929, @latest, -latest. */
const AT_END =
  /(?:-20\d\d-?(?:0[1-9]|1[0-2])(?:-?(?:0[1-9]|[12]\d|3[01]))?|-(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])|@.*|-latest)$/;

function bareName(name: string): string {
  return normalizeName(name.trim()).replace(IN_FRONT, "").replace(AT_END, "");
}
