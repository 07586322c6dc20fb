/** What a console answered, of which nothing is known until it is looked at. */
export type JsonObject = Readonly<Record<string, unknown>>;

export function asObject(value: unknown): JsonObject | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : null;
}

/** Own fields only: a console's `constructor` is not Object's. */
export function fieldAt(object: JsonObject, name: string): unknown {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}

export function objectAt(object: JsonObject, name: string): JsonObject | null {
  return asObject(fieldAt(object, name));
}

export function listAt(object: JsonObject, name: string): readonly unknown[] | null {
  const value = fieldAt(object, name);
  return Array.isArray(value) ? value : null;
}

/** As it was written, and not yet fit to be kept or shown: texts.ts cleans it. */
export function textAt(object: JsonObject, name: string): string | null {
  const value = fieldAt(object, name);
  return typeof value === "string" ? value : null;
}

export function numberAt(object: JsonObject, name: string): number | null {
  const value = fieldAt(object, name);
  // 1e999 is valid JSON and reads as Infinity.
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** A whole number that a double holds exactly. */
export function wholeAt(object: JsonObject, name: string): number | null {
  const value = fieldAt(object, name);
  return typeof value === "number" && Number.isSafeInteger(value) ? value : null;
}

/** A whole number that is not below zero, such as a count of tokens. */
export function countAt(object: JsonObject, name: string): number | null {
  const value = wholeAt(object, name);
  return value !== null && value >= 0 ? value : null;
}

export function flagAt(object: JsonObject, name: string): boolean | null {
  const value = fieldAt(object, name);
  return typeof value === "boolean" ? value : null;
}
