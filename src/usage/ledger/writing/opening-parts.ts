import type { Opening } from "../../record.ts";
import type { Value } from "./row-statements.ts";

/** What many records have in common when they are opened. */
export const OPENING_KIND = [
  "tool",
  "gateway",
  "group",
  "multiplier",
  "key",
  "protocol",
  "method",
  "endpoint",
  "model",
  "process",
] as const satisfies readonly (keyof Opening)[];

/** What is each record's own, in the order in which it is handed over. */
export const OPENING_OWN = [
  "id",
  "started_at",
  "waited_ms",
  "held_tokens",
  "held_microdollars",
  "admitted_at",
] as const satisfies readonly (keyof Opening)[];

export function pushOpening(opening: Opening, values: Value[]): void {
  values.push(
    opening.id,
    opening.started_at,
    opening.waited_ms,
    opening.held_tokens,
    opening.held_microdollars,
    opening.admitted_at,
  );
}

export function openingKind(opening: Opening): Value[] {
  return OPENING_KIND.map((name) => opening[name]);
}

/** What differs most often comes first. */
export function isSameOpeningKind(one: Opening, other: Opening): boolean {
  return (
    one.model === other.model &&
    one.tool === other.tool &&
    one.endpoint === other.endpoint &&
    one.key === other.key &&
    one.method === other.method &&
    one.process === other.process &&
    one.protocol === other.protocol &&
    one.group === other.group &&
    one.gateway === other.gateway &&
    one.multiplier === other.multiplier
  );
}
