import { Lexer } from "yaml";

/** A file of a thousand tools stays well below these; what goes beyond them was not written for us. */
const MOST_BYTES = 1_000_000;
const MOST_TOKENS = 100_000;
const MOST_DEPTH = 32;

/**
 * Why a text must not even be parsed, or null. The composer of `yaml` recurses, and near the end of the stack V8 can
 * abort the whole process while it compiles a regular expression, which no catch block sees (a thousand `[` do it).
 * Its lexer does not recurse, so the depth is measured on its tokens first.
 */
export function outOfBounds(text: string): string | null {
  if (Buffer.byteLength(text) > MOST_BYTES) return "the file is larger than 1 MB";
  let tokens = 0;
  let flowDepth = 0;
  let column = 0;
  let lineStart = true;
  const blockColumns: number[] = [];
  for (const token of new Lexer().lex(text)) {
    tokens += 1;
    if (tokens > MOST_TOKENS) return "the file has more in it than a configuration can hold";
    if (MARKS.includes(token)) continue;
    if (token === "\n" || token === "\r\n") {
      lineStart = true;
      column = 0;
      continue;
    }
    if (token === "[" || token === "{") flowDepth += 1;
    else if ((token === "]" || token === "}") && flowDepth > 0) flowDepth -= 1;
    // Every `-` and `?` opens a level at its own column, wherever in its line it stands: `- - - x` is three deep.
    const opens = token === "-" || token === "?";
    if (opens || (lineStart && token.trim() !== "" && !token.startsWith("#"))) {
      while (blockColumns.length > 0 && (blockColumns.at(-1) ?? 0) >= column) blockColumns.pop();
      blockColumns.push(column);
      lineStart = opens;
    }
    column += token.length;
    if (flowDepth + blockColumns.length > MOST_DEPTH)
      return "the file is nested deeper than a configuration can be";
  }
  return null;
}

/** What the lexer puts between the tokens: a document begins, a flow ends in error, a scalar follows. */
const MARKS: readonly string[] = ["\u{FEFF}", "\x02", "\x18", "\x1f"];
