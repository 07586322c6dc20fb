import { Lexer } from "yaml";

/** A file of a thousand tools stays well below these; what goes beyond them was not written for us. */
const MOST_BYTES = 1_000_000;
const MOST_TOKENS = 100_000;
const MOST_DEPTH = 32;

/** The text's tokens, for the parser to go on with; or why it must not even be parsed. */
export type Lexed =
  | { readonly ok: true; readonly lexemes: readonly string[] }
  | { readonly ok: false; readonly why: string };

/**
 * The composer of `yaml` recurses, and near the end of the stack V8 can
 * abort the whole process while it compiles a regular expression, which no catch block sees (a thousand `[` do it).
 * Its lexer does not recurse, so the depth is measured on its tokens first.
 */
export function lexInBounds(text: string): Lexed {
  if (Buffer.byteLength(text) > MOST_BYTES) return { ok: false, why: "the file is larger than 1 MB" };
  const lexemes: string[] = [];
  let flowDepth = 0;
  let column = 0;
  let lineStart = true;
  const blockColumns: number[] = [];
  for (const token of new Lexer().lex(text)) {
    lexemes.push(token);
    if (lexemes.length > MOST_TOKENS)
      return { ok: false, why: "the file has more in it than a configuration can hold" };
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
      return { ok: false, why: "the file is nested deeper than a configuration can be" };
  }
  return { ok: true, lexemes };
}

/** What the lexer puts between the tokens: a document begins, a flow ends in error, a scalar follows. */
const MARKS: readonly string[] = ["\u{FEFF}", "\x02", "\x18", "\x1f"];
