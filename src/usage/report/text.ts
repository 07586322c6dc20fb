/** Lines for other programs. */

/** JSON in which nothing can steer a terminal: beyond what JSON itself escapes, these are valid in it as they are. */
export function jsonText(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent).replace(
    STEERING,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Control characters, line ends and turns of direction, spelled out: a million records pass through here. */
const STEERING = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** RFC 4180: CRLF, quotes doubled, and no control characters. */
export function csvLine(cells: readonly unknown[]): string {
  return `${cells.map(csvCell).join(",")}\r\n`;
}

/**
 * A spreadsheet runs a cell that begins like a formula. An apostrophe makes it text. The wide forms of the same signs
 * count as well: Excel reads them so in East Asian settings. So does what comes behind another separator than ours:
 * where one is set to `;`, a cell begins there, and no quotes keep it together. (No tab gets that far.)
 */
function csvCell(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const first = /^\s*[=+\-@\t\r\n＝＋－＠]/u.test(text) && !isNumber(text) ? `'${text}` : text;
  const safe = first.replace(/[;|](?=[\s"]*[=+\-@＝＋－＠])/gu, "$&'");
  const shown = safe.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, "?");
  return /[",;|]|^\s|\s$/.test(shown) ? `"${shown.replaceAll('"', '""')}"` : shown;
}

function isNumber(text: string): boolean {
  return /^-?\d+(?:\.\d+)?$/.test(text);
}
