import { visible } from "./table.ts";

/** One column of a table that has to fit. */
export interface Column {
  readonly head: string;
  /** One for each line. */
  readonly cells: readonly string[];
  /** Numbers stand at the right. Default left. */
  readonly right?: boolean;
  /** The larger goes first where there is no room. 0: never goes, but is cut short. */
  readonly goes: number;
}

const GAP = "  ";
/** A name cut shorter than this says nothing. */
const SHORTEST = 6;

/** Lines no wider than `width`: columns go, then names are cut. `sum` sets the last line apart. */
export function fitted(
  columns: readonly Column[],
  width: number,
  options: { readonly sum: boolean },
): string {
  let kept = columns.map(measured);
  while (widthOf(kept.map(({ widest }) => widest)) > width && kept.some(({ goes }) => goes > 0)) {
    const first = Math.max(...kept.map(({ goes }) => goes));
    const at = kept.findLastIndex(({ goes }) => goes === first);
    kept = kept.filter((_, index) => index !== at);
  }
  const widths = shortened(kept, width);
  const lines: string[] = [];
  const count = kept[0]?.texts.length ?? 0;
  for (let row = 0; row < count; row += 1) lines.push(line(kept, widths, row));
  const rule = widths.map((cells) => "-".repeat(cells)).join(GAP);
  if (options.sum) lines.splice(-1, 0, rule);
  return lines.join("\n");
}

/** A column whose texts are safe to show, each measured once: a long report has a hundred thousand of them. */
interface Measured {
  /** The head first. */
  readonly texts: readonly string[];
  readonly sizes: readonly number[];
  readonly widest: number;
  readonly right: boolean;
  readonly goes: number;
}

function measured({ head, cells, right = false, goes }: Column): Measured {
  const texts = [head, ...cells].map(visible);
  const sizes = texts.map(cellsOf);
  return { texts, sizes, widest: largest(sizes), right, goes };
}

/** Of any number of values: as many arguments to a function as a long report has lines would overflow the stack. */
export function largest(values: readonly number[]): number {
  return values.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
}

/** The widest of the columns that may be cut gives a character, until it fits. */
function shortened(columns: readonly Measured[], width: number): number[] {
  const widths = columns.map(({ widest }) => widest);
  for (;;) {
    const over = widthOf(widths) > width;
    const names = widths.map((cells, at) => (columns[at]?.goes === 0 && !columns[at]?.right ? cells : 0));
    const widest = names.indexOf(Math.max(...names));
    const current = widths[widest];
    if (!over || current === undefined || (names[widest] ?? 0) <= SHORTEST) return widths;
    widths[widest] = current - 1;
  }
}

function line(columns: readonly Measured[], widths: readonly number[], row: number): string {
  return columns
    .map(({ texts, sizes, right }, at) => {
      const room = widths[at] ?? 0;
      const whole = texts[row] ?? "";
      const size = sizes[row] ?? 0;
      const text = size <= room ? whole : cut(whole, room);
      const space = " ".repeat(Math.max(0, room - (size <= room ? size : cellsOf(text))));
      return right ? `${space}${text}` : `${text}${space}`;
    })
    .join(GAP)
    .trimEnd();
}

function widthOf(widths: readonly number[]): number {
  return widths.reduce((sum, cells) => sum + cells, 0) + GAP.length * Math.max(0, widths.length - 1);
}

/** Cut to so many cells of the terminal, with a sign that something is missing. */
export function cut(text: string, room: number): string {
  if (cellsOf(text) <= room) return text;
  let kept = "";
  let used = 1;
  for (const character of text) {
    used += cellsOf(character);
    if (used > room) break;
    kept += character;
  }
  return `${kept}…`;
}

/** A sentence on as many lines as it needs, the later ones set in. A word that is too long stays whole. */
export function wrapped(text: string, width: number): string {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line === "") line = word;
    else if (cellsOf(line) + 1 + cellsOf(word) <= width) line = `${line} ${word}`;
    else {
      lines.push(line);
      line = `  ${word}`;
    }
  }
  return [...lines, line].join("\n");
}

/** How many cells of a terminal a text takes: Chinese, Japanese, Korean and emoji take two, marks above others none. */
export function cellsOf(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let cells = 0;
  for (const character of text) cells += NONE.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
  return cells;
}

const NONE = /^[\p{Mn}\p{Me}\p{Cf}]$/u;
const WIDE =
  /^[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{1f1e6}-\u{1f1ff}\u{20000}-\u{3fffd}\p{Emoji_Presentation}]$/u;

const BLOCKS = "▁▂▃▄▅▆▇█";
const PLAIN = "_.-=+*#@";

/** One character a value. What is none at all is a blank. */
export function sparkline(values: readonly number[], utf8: boolean): string {
  const most = Math.max(...values, 0);
  const steps = utf8 ? BLOCKS : PLAIN;
  return values
    .map((value) => {
      if (value <= 0 || most === 0) return " ";
      return steps.charAt(Math.min(steps.length - 1, Math.floor((value / most) * steps.length)));
    })
    .join("");
}

const EIGHTHS = " ▏▎▍▌▋▊▉█";

export function bar(value: number, most: number, width: number, utf8: boolean): string {
  if (value <= 0 || most <= 0) return "";
  const length = (value / most) * width;
  if (!utf8) return "#".repeat(Math.max(1, Math.round(length)));
  const whole = Math.floor(length);
  const rest = EIGHTHS.charAt(Math.floor((length - whole) * 8));
  const drawn = `${"█".repeat(whole)}${rest === " " ? "" : rest}`;
  return drawn === "" ? "▏" : drawn;
}

export interface Screen {
  readonly width: number;
  readonly utf8: boolean;
}

/** What is at the other end of stdout: 80 columns where nothing says how many. */
export function screenOf(env: NodeJS.ProcessEnv, columns: number | undefined): Screen {
  const wished = /^\d{1,4}$/.test(env.COLUMNS ?? "") ? Number(env.COLUMNS) : 0;
  const width = columns || wished || 80;
  const locale = env.LC_ALL || env.LC_CTYPE || env.LANG || "";
  return { width: Math.max(20, width), utf8: /utf-?8/i.test(locale) };
}
