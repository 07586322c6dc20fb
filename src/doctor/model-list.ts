/** More than any gateway has, so that a hostile list cannot fill the screen and the memory. */
const MOST_MODELS = 5000;
const LONGEST_NAME = 200;

/**
 * The names in a gateway's list of models; null: it is no list. SPEC.md section 4 leaves its shape open: OpenAI's and the
 * messages style wrap it as `data`, Gemini as `models` with a path before the name, and some answer with a bare list.
 */
export function modelsIn(text: string): readonly string[] | null {
  const list = listIn(parsed(text));
  if (list === null) return null;
  const names = list.map(nameOf).filter((name) => name !== null);
  return [...new Set(names)].slice(0, MOST_MODELS);
}

function listIn(value: unknown): readonly unknown[] | null {
  if (Array.isArray(value)) return value;
  if (typeof value !== "object" || value === null) return null;
  const { data, models } = value as { data?: unknown; models?: unknown };
  if (Array.isArray(data)) return data;
  // Go writes a list that was never filled as null.
  if (data === null && "object" in value) return [];
  return Array.isArray(models) ? models : null;
}

function nameOf(entry: unknown): string | null {
  const { id, name } = Object(entry) as { id?: unknown; name?: unknown };
  const found = typeof entry === "string" ? entry : typeof id === "string" ? id : name;
  if (typeof found !== "string" || found === "" || found.length > LONGEST_NAME) return null;
  return found.replace(/^models\//, "");
}

export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
