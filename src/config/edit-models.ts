import { appendItem, type EditResult, type Path, readForEdit } from "./edit.ts";
import type { YamlMap, YamlValue } from "./edit-layout.ts";

/** The answers of one model are those of the other from now on. Changes nothing if they are already. */
export function addSameModel(text: string, asked: string, answered: string): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const path: Path = ["usage", "same_models", asked];
  const { usage } = source.value;
  const models = isMap(usage) ? usage.same_models : undefined;
  const known = isMap(models) && Object.hasOwn(models, asked) ? models[asked] : undefined;
  const isKnown = Array.isArray(known) ? known.includes(answered) : known === answered;
  return isKnown ? { ok: true, text } : appendItem(text, path, answered);
}

function isMap(value: YamlValue | undefined): value is YamlMap {
  return value !== undefined && typeof value !== "string" && !Array.isArray(value);
}
