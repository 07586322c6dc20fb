import { asObject, countAt, listAt, objectAt } from "../json.ts";

/** What is remembered of each key when nothing but keys is known. Milliseconds. */
export interface KeyMark {
  /** When questions were asked that still count. */
  readonly calls: readonly number[];
  readonly keys: ReadonlyMap<string, KeyRead>;
}

export interface KeyRead {
  /** When it was last asked for, by our clock. */
  readonly read: number;
  /** The newest row that was seen, by the console's; null: there was none. */
  readonly newest: number | null;
  /** When the console last accepted it, by our clock; null: never. */
  readonly accepted: number | null;
}

export function writeKeyMark({ calls, keys }: KeyMark): string {
  return JSON.stringify({ calls, keys: Object.fromEntries(keys) });
}

export function readKeyMark(text: string | null): KeyMark {
  const object = text === null ? null : parsed(text);
  const calls = object === null ? null : listAt(object, "calls");
  const reads = object === null ? null : objectAt(object, "keys");
  const keys = new Map<string, KeyRead>();
  for (const [fingerprint, value] of Object.entries(reads ?? {})) {
    const one = asObject(value);
    const read = one === null ? null : countAt(one, "read");
    if (one === null || read === null) continue;
    // Marks of earlier versions say only that it was accepted.
    const accepted = countAt(one, "accepted") ?? (one.known === true ? read : null);
    keys.set(fingerprint, { read, newest: countAt(one, "newest"), accepted });
  }
  return { calls: (calls ?? []).filter((time) => typeof time === "number"), keys };
}

function parsed(text: string) {
  try {
    return asObject(JSON.parse(text));
  } catch {
    return null;
  }
}
