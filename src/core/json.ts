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

/** null: there is no such field, or it is no text. */
export function textAt(object: JsonObject, name: string): string | null {
  const value = fieldAt(object, name);
  return typeof value === "string" ? value : null;
}

export function numberAt(object: JsonObject, name: string): number | null {
  const value = fieldAt(object, name);
  // 1e999 is valid JSON and reads as Infinity.
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** The fields of an object that are texts. */
export function textsIn(value: unknown): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const [name, text] of Object.entries(asFields(value)))
    if (typeof text === "string") texts[name] = text;
  return texts;
}
