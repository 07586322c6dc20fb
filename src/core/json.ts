/* JSON from outside. Nothing is known of it, so each field is checked when it is read. */

export type JsonObject = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Without any field if it is not an object. */
export function asFields(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

/** Empty if it is not a list. */
export function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** null: not JSON, or not an object. */
export function parseObject(text: string): JsonObject | null {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

/** undefined: there is no such field. Own fields only, so that "constructor" is never Object's. */
export function fieldAt(value: unknown, name: string): unknown {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

// A field of one type. null: there is no such field, or it has another type.

export function objectAt(value: unknown, name: string): JsonObject | null {
  const field = fieldAt(value, name);
  return isObject(field) ? field : null;
}

export function listAt(value: unknown, name: string): readonly unknown[] | null {
  const field = fieldAt(value, name);
  return Array.isArray(field) ? field : null;
}

export function textAt(value: unknown, name: string): string | null {
  const field = fieldAt(value, name);
  return typeof field === "string" ? field : null;
}

export function numberAt(value: unknown, name: string): number | null {
  const field = fieldAt(value, name);
  // 1e999 is valid JSON and reads as Infinity.
  return typeof field === "number" && Number.isFinite(field) ? field : null;
}

/** An integer that a double holds exactly. */
export function wholeAt(value: unknown, name: string): number | null {
  const field = fieldAt(value, name);
  return typeof field === "number" && Number.isSafeInteger(field) ? field : null;
}

/** An integer that is not negative. */
export function countAt(value: unknown, name: string): number | null {
  const field = wholeAt(value, name);
  return field !== null && field >= 0 ? field : null;
}

export function flagAt(value: unknown, name: string): boolean | null {
  const field = fieldAt(value, name);
  return typeof field === "boolean" ? field : null;
}

/** The fields of an object that are texts. */
export function textsIn(value: unknown): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const [name, text] of Object.entries(asFields(value)))
    if (typeof text === "string") texts[name] = text;
  return texts;
}
