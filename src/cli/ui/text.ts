/* Text that is safe to print and fits a terminal. */

/**
 * Names and texts come from files and gateways. Escape sequences and bidirectional control characters in them must not
 * reach the terminal.
 */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, "?");
}

/** The same for a text of several lines. */
export function printableLines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}

const ZERO_WIDTH = /^[\p{Mn}\p{Me}\p{Cf}]$/u;
const DOUBLE_WIDTH =
  /^[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{1f1e6}-\u{1f1ff}\u{20000}-\u{3fffd}\p{Emoji_Presentation}]$/u;

/** The number of terminal columns: Chinese, Japanese, Korean and emoji take two, combining marks none. */
export function textWidth(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let width = 0;
  for (const character of text) {
    if (ZERO_WIDTH.test(character)) continue;
    width += DOUBLE_WIDTH.test(character) ? 2 : 1;
  }
  return width;
}

/** At most `width` columns; `…` marks a text that was shortened. */
export function truncate(text: string, width: number): string {
  if (textWidth(text) <= width) return text;
  let kept = "";
  let used = 1;
  for (const character of text) {
    used += textWidth(character);
    if (used > width) break;
    kept += character;
  }
  return `${kept}…`;
}

/**
 * Breaks one line between words. Later lines are indented two columns more than the first. A word that is too long stays
 * whole, because it may be an address or a path. A command stays on one line if it fits, so that it can be copied.
 */
export function wrap(text: string, width: number): string {
  const indent = /^ */.exec(text)?.[0] ?? "";
  const lines: string[] = [];
  let line = "";
  for (const part of unbreakableParts(text.slice(indent.length))) {
    const fits = textWidth(indent) + 2 + textWidth(part) <= width;
    for (const word of fits ? [part] : part.split(" ")) {
      if (line === "") line = `${indent}${word}`;
      else if (textWidth(line) + 1 + textWidth(word) <= width) line = `${line} ${word}`;
      else {
        lines.push(line);
        line = `${indent}  ${word}`;
      }
    }
  }
  return [...lines, line].join("\n");
}

/** A command in a sentence, as in "(keybearer service install)", "→ keybearer doctor" or "see: keybearer status". */
const COMMAND = /(?:→ |(?<=\(|: ))keybearer (?:(?!\. )[^(),;])+\S*/g;

/** Words and whole commands. */
function unbreakableParts(text: string): string[] {
  const joined = text.replace(COMMAND, (command) => command.replaceAll(" ", "\0"));
  return joined.split(" ").map((part) => part.replaceAll("\0", " "));
}
