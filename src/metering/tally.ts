import type { Metering } from "./protocols.ts";
import type { Tokens } from "./usage.ts";
import { type Counts, countsOf, laterCounts, tokensOf } from "./usage.ts";
import { type Wanted, wantedFields } from "./wanted.ts";

/** Looks a path of one or two keys up in a document. */
export interface Lookup {
  get(path: string): unknown;
}

const USAGE = [
  "usage",
  "usageMetadata",
  "response.usage",
  "message.usage",
  // Gemini as its own CLI reaches it
  "response.usageMetadata",
  // Groq's streams
  "x_groq.usage",
];
const IDS = ["id", "response.id", "message.id", "responseId", "response.responseId"];
const MODELS = ["model", "response.model", "message.model", "modelVersion", "response.modelVersion"];

/** All that is looked for in a document that is too long to be parsed. */
export const WANTED: Wanted = wantedFields([...USAGE, ...IDS, ...MODELS, "type", "error"]);

/** Printable, and no longer than an id or the name of a model is. */
const NAME = /^[\x21-\x7e]{1,200}$/;

/** Adds up what the documents of one answer report: one where it is JSON, one an event where it is a stream. */
export class Tally {
  readonly #metering: Metering | null;
  #counts: Counts | null = null;
  #id: string | null = null;
  #model: string | null = null;

  constructor(metering: Metering | null) {
    this.#metering = metering;
  }

  get id(): string | null {
    return this.#id;
  }

  get model(): string | null {
    return this.#model;
  }

  /** null also where nothing is billed: a stored response that is fetched again names its old usage. */
  get tokens(): Tokens | null {
    return this.#metering === null || this.#counts === null ? null : tokensOf(this.#metering, this.#counts);
  }

  /** What stands in every document of an answer was found. */
  get known(): boolean {
    return this.#id !== null && this.#model !== null;
  }

  take(lookup: Lookup): void {
    // The first one counts: it is the answer's own, also where an error's document follows.
    this.#id ??= nameAmong(IDS, lookup);
    this.#model ??= nameAmong(MODELS, lookup);
    for (const path of USAGE) this.#count(lookup.get(path));
    // Moonshot's streams
    const choices = lookup.get("choices");
    if (Array.isArray(choices))
      for (const choice of choices.slice(0, 8)) this.#count(fieldOf(choice, "usage"));
  }

  #count(usage: unknown): void {
    const counts = countsOf(usage);
    if (counts !== null) this.#counts = this.#counts === null ? counts : laterCounts(this.#counts, counts);
  }
}

function nameAmong(paths: readonly string[], lookup: Lookup): string | null {
  for (const path of paths) {
    const name = lookup.get(path);
    if (typeof name === "string" && NAME.test(name)) return name;
  }
  return null;
}

/** A field of what JSON.parse made; undefined where it has none. No name that is asked for is one of a prototype's. */
export function fieldOf(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[key] : undefined;
}

/** Looks up in what JSON.parse made. */
export class Parsed implements Lookup {
  readonly #document: unknown;

  constructor(document: unknown) {
    this.#document = document;
  }

  get(path: string): unknown {
    const dot = path.indexOf(".");
    if (dot === -1) return fieldOf(this.#document, path);
    return fieldOf(fieldOf(this.#document, path.slice(0, dot)), path.slice(dot + 1));
  }
}
