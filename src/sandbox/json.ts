/** A parsed JSON object of which nothing is known yet. */
export type JsonObject = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The object in a body, or null when it is not JSON or is something else than an object. */
export function parseObject(bytes: Buffer): JsonObject | null {
  try {
    const value: unknown = JSON.parse(bytes.toString("utf8"));
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

export function textAt(object: JsonObject, name: string): string | null {
  const value = object[name];
  return typeof value === "string" ? value : null;
}

export function numberAt(object: JsonObject, name: string): number | null {
  const value = object[name];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function listAt(object: JsonObject, name: string): readonly unknown[] {
  const value = object[name];
  return Array.isArray(value) ? value : [];
}
