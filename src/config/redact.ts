import { isPair, isScalar, parseDocument, visit } from "yaml";
import type { Span } from "../core/spans.ts";
import { redactConfig } from "./problems.ts";

/** The text of a valid config.yaml with its secrets hidden. The end of each value is known, so that what follows it stays. */
export function redactValidConfig(text: string): string {
  return redactConfig(text, valuesByName(text));
}

/** Where the scalar value of each setting is, by the offset of the setting's name. */
function valuesByName(text: string): ReadonlyMap<number, Span> {
  const values = new Map<number, Span>();
  visit(parseDocument(text), (_key, node) => {
    if (!isPair(node) || !isScalar(node.key) || !isScalar(node.value)) return;
    const [name] = node.key.range ?? [];
    const [from, to] = node.value.range ?? [];
    if (name !== undefined && from !== undefined && to !== undefined) values.set(name, { from, to });
  });
  return values;
}
