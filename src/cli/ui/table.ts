import { printable, textWidth, truncate, wrap } from "./text.ts";
import { joinNames } from "./units.ts";

export interface Column {
  readonly head: string;
  /** One text per row. */
  readonly cells: readonly string[];
  /** Numbers are aligned right. Default left. */
  readonly right?: boolean;
  /** Columns with the largest number are left out first if the table is too wide. 0: stays, and is shortened instead. */
  readonly dropOrder: number;
}

type ColumnFor<Row> = (head: string, dropOrder: number, cell: (row: Row) => string) => Column;

/** Makes columns of texts and of numbers for these rows. */
export function columnsFor<Row>(rows: readonly Row[]): {
  readonly text: ColumnFor<Row>;
  readonly number: ColumnFor<Row>;
} {
  return {
    text: (head, dropOrder, cell) => ({ head, cells: rows.map(cell), dropOrder }),
    number: (head, dropOrder, cell) => ({ head, cells: rows.map(cell), dropOrder, right: true }),
  };
}

export interface Table {
  /** The heads first, then one line per row. */
  readonly lines: readonly string[];
  /** Says which columns were left out or that texts were shortened. null: everything is there. */
  readonly note: string | null;
}

const GAP = "  ";
/** A name shortened to less than this says nothing. */
const MIN_WIDTH = 6;
const MIN_NAME_WIDTH = 16;

/** A table no wider than `width`, with a note below it if something did not fit. `sum` puts a rule above the last row. */
export function renderTable(
  columns: readonly Column[],
  width: number,
  options: { readonly sum?: boolean } = {},
): string {
  return withNote(layoutTable(columns, width, options)).join("\n");
}

export function withNote({ lines, note }: Table): readonly string[] {
  return note === null ? lines : [...lines, note];
}

/** The same, for callers that put their own lines between the rows. */
export function layoutTable(
  columns: readonly Column[],
  width: number,
  { sum = false }: { readonly sum?: boolean } = {},
): Table {
  let kept = columns.map(measure);
  const dropped: string[] = [];
  // One long name is shortened to this before a column is left out for it.
  const enough = Math.max(MIN_NAME_WIDTH, Math.floor(width / 4));
  const needed = (column: MeasuredColumn) =>
    canShrink(column) ? Math.min(column.widest, enough) : column.widest;
  while (totalWidth(kept.map(needed)) > width && kept.some(({ dropOrder }) => dropOrder > 0)) {
    const first = Math.max(...kept.map(({ dropOrder }) => dropOrder));
    const index = kept.findLastIndex(({ dropOrder }) => dropOrder === first);
    dropped.unshift(kept[index]?.texts[0] ?? "");
    kept = kept.filter((_, at) => at !== index);
  }
  const widths = shrink(kept, width);
  const isShortened = widths.some((columnWidth, at) => columnWidth < (kept[at]?.widest ?? 0));
  const count = kept[0]?.texts.length ?? 0;
  const lines = Array.from({ length: count }, (_, row) => renderRow(kept, widths, row));
  if (sum) lines.splice(-1, 0, widths.map((columnWidth) => "-".repeat(columnWidth)).join(GAP));
  return { lines, note: formatOmissions(dropped, isShortened, width) };
}

function formatOmissions(dropped: readonly string[], isShortened: boolean, width: number): string | null {
  const names = dropped.filter((head) => head.trim() !== "");
  const facts = [
    ...(names.length === 0 ? [] : [`not shown: ${joinNames(names, 3)}`]),
    ...(isShortened ? ["… marks shortened texts"] : []),
  ];
  if (facts.length === 0) return null;
  const note = wrap(`(${facts.join("; ")}; --json has everything)`, width);
  return note
    .split("\n")
    .map((line) => truncate(line, width))
    .join("\n");
}

/** Texts are safe to print and measured once: a long report has a hundred thousand of them. */
interface MeasuredColumn {
  /** The head first. */
  readonly texts: readonly string[];
  readonly textWidths: readonly number[];
  readonly widest: number;
  readonly right: boolean;
  readonly dropOrder: number;
}

function measure({ head, cells, right = false, dropOrder }: Column): MeasuredColumn {
  const texts = [head, ...cells].map(printable);
  const textWidths = texts.map(textWidth);
  return { texts, textWidths, widest: maxOf(textWidths), right, dropOrder };
}

/** Math.max with as many arguments as a long report has lines would overflow the stack. */
export function maxOf(values: readonly number[]): number {
  return values.reduce((max, value) => Math.max(max, value), Number.NEGATIVE_INFINITY);
}

/** Numbers are never shortened. */
function canShrink({ dropOrder, right }: MeasuredColumn): boolean {
  return dropOrder === 0 && !right;
}

/** Takes a character from the widest text column until the table fits. */
function shrink(columns: readonly MeasuredColumn[], width: number): number[] {
  const widths = columns.map(({ widest }) => widest);
  const isShrinkable = columns.map(canShrink);
  while (totalWidth(widths) > width) {
    const candidates = widths.map((columnWidth, at) => (isShrinkable[at] ? columnWidth : 0));
    const widest = Math.max(...candidates);
    if (widest <= MIN_WIDTH) break;
    widths[candidates.indexOf(widest)] = widest - 1;
  }
  return widths;
}

function renderRow(columns: readonly MeasuredColumn[], widths: readonly number[], row: number): string {
  const cells = columns.map(({ texts, textWidths, right }, at) => {
    const width = widths[at] ?? 0;
    const whole = texts[row] ?? "";
    const fits = (textWidths[row] ?? 0) <= width;
    const text = fits ? whole : truncate(whole, width);
    const padding = " ".repeat(Math.max(0, width - (fits ? (textWidths[row] ?? 0) : textWidth(text))));
    return right ? `${padding}${text}` : `${text}${padding}`;
  });
  return cells.join(GAP).trimEnd();
}

function totalWidth(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width, 0) + GAP.length * Math.max(0, widths.length - 1);
}
