import type { Database } from "libsql";
import { type Lane, SUMS } from "../ledger/cells.ts";
import type { Bin } from "./calendar.ts";
import type { FirstByteGatherer } from "./first-byte.ts";
import { binOf, IS_LANE, type LaneSums, namesOf } from "./lanes.ts";
import { sumsFrom } from "./sums.ts";

/** Of one lane, read in one step: it has at most one cell a slot. */
const STEP_SLOTS = 366 * 96;
/** Slot, sums, first bytes. */
const TEXT_AT = 1 + SUMS.length;

type FirstBytesOf = (lane: Lane, bin: Bin) => FirstByteGatherer;

/**
 * Sums up the lanes in each of the days or hours of the calendar, of which there are so many that a statement for each
 * would take longer than to read the cells themselves. Those come as the bytes of one text for each lane: to sort them all,
 * or to hand over a row for each, takes SQLite's binding three times as long. Lanes are told apart only by the columns in `by`; the
 * others are empty.
 * @param firstBytesOf where the first bytes belong; null: nobody asked for them.
 */
export function* sumsOfCalendar(
  db: Database,
  lanes: readonly Lane[],
  bins: readonly Bin[],
  by: readonly (keyof Lane)[],
  firstBytesOf: FirstBytesOf | null,
): Generator<Omit<LaneSums, "firstBytes">> {
  const columns = ["slot", ...SUMS, firstBytesOf === null ? "''" : "first_bytes"];
  const statement = db
    .prepare(
      `SELECT CAST(json_group_array(json_array(${columns.join(", ")})) AS BLOB)
       FROM cells WHERE ${IS_LANE} AND slot >= ? AND slot < ?`,
    )
    .raw();
  const sheets = new Map<string, Sheet>();
  const pieces = [...piecesOf(bins)];
  for (const lane of lanes) {
    const sheet = sheetOf(sheets, lane, by, bins, firstBytesOf);
    for (const { from, to } of pieces) {
      const [bytes] = statement.get(...namesOf(lane), from, to) as [Buffer];
      sheet.add(bytes);
    }
  }
  for (const sheet of sheets.values()) yield* sheet.sums();
}

/** Pieces of time that hold all of the bins, each short enough to be read at once. */
function* piecesOf(bins: readonly Bin[]): Generator<{ from: number; to: number }> {
  let from = bins[0]?.from ?? 0;
  let to = from;
  for (const bin of bins) {
    if (bin.from !== to || bin.to - from > STEP_SLOTS) {
      if (to > from) yield { from, to };
      from = bin.from;
    }
    to = bin.to;
  }
  if (to > from) yield { from, to };
}

function sheetOf(
  sheets: Map<string, Sheet>,
  lane: Lane,
  by: readonly (keyof Lane)[],
  bins: readonly Bin[],
  firstBytesOf: FirstBytesOf | null,
): Sheet {
  const told = { tool: "", gateway: "", group: "", key: "", model: "" };
  for (const name of by) told[name] = lane[name];
  const key = JSON.stringify(told);
  const found = sheets.get(key) ?? new Sheet(told, bins, firstBytesOf);
  sheets.set(key, found);
  return found;
}

/** What adds up in one bin. */
interface Entry {
  /** In the order of SUMS. */
  readonly sums: number[];
  readonly firstBytes: FirstByteGatherer | null;
}

/** The bins of all lanes that are not told apart. */
class Sheet {
  readonly #lane: Lane;
  readonly #bins: readonly Bin[];
  readonly #entries: (Entry | undefined)[];
  readonly #firstBytesOf: FirstBytesOf | null;
  /** The bin that was found last. */
  #last = 0;

  constructor(lane: Lane, bins: readonly Bin[], firstBytesOf: FirstBytesOf | null) {
    this.#lane = lane;
    this.#bins = bins;
    this.#firstBytesOf = firstBytesOf;
    this.#entries = Array.from(bins, () => undefined);
  }

  *sums(): Generator<Omit<LaneSums, "firstBytes">> {
    for (const [at, bin] of this.#bins.entries()) {
      const entry = this.#entries[at];
      if (entry !== undefined) yield { lane: this.#lane, bin, sums: sumsFrom(entry.sums) };
    }
  }

  /** Cells as json_group_array wrote them. */
  add(bytes: Buffer): void {
    // What stands in them as text needs no escape; where it has one, it is none of ours.
    if (bytes.includes(BACKSLASH)) this.#addParsed(bytes.toString());
    else this.#addPlain(bytes);
  }

  #addParsed(text: string): void {
    for (const cell of JSON.parse(text) as unknown[][]) {
      const entry = this.#entryOf(Number(cell[0]));
      if (entry === null) continue;
      for (let at = 0; at < SUMS.length; at += 1)
        entry.sums[at] = (entry.sums[at] ?? 0) + Number(cell[at + 1] ?? 0);
      entry.firstBytes?.addCells(String(cell[TEXT_AT] ?? ""));
    }
  }

  /**
   * `[[slot,number,number,…,"bucket:count bucket:count …"],…]`: a parser would make objects of all that, which takes
   * longer than to read it.
   */
  #addPlain(bytes: Uint8Array): void {
    for (let at = 1; bytes[at] === OPEN; ) {
      let entry: Entry | null = null;
      for (let column = 0; column < TEXT_AT; column += 1) {
        // Over the bracket or the comma before it.
        at += 1;
        const negative = bytes[at] === MINUS;
        if (negative) at += 1;
        let number = 0;
        for (let code = bytes[at] ?? 0; code >= ZERO && code <= NINE; code = bytes[at] ?? 0) {
          number = number * 10 + code - ZERO;
          at += 1;
        }
        if (column === 0) entry = this.#entryOf(number);
        else if (entry !== null && number > 0)
          entry.sums[column - 1] = (entry.sums[column - 1] ?? 0) + (negative ? -number : number);
      }
      const from = at + COMMA_QUOTE;
      at = bytes.indexOf(QUOTE, from);
      if (at < 0) return;
      entry?.firstBytes?.addCell(bytes, from, at);
      at += QUOTE_BRACKET_COMMA;
    }
  }

  /** null: in none of the bins. */
  #entryOf(slot: number): Entry | null {
    let bin = this.#bins[this.#last];
    // They come in order, so that it is nearly always the same one or the next.
    if (bin === undefined || slot < bin.from || slot >= bin.to) {
      this.#last = binOf(this.#bins, slot);
      bin = this.#bins[this.#last];
    }
    if (bin === undefined || slot < bin.from) return null;
    const known = this.#entries[this.#last];
    if (known !== undefined) return known;
    const firstBytes = this.#firstBytesOf?.(this.#lane, bin) ?? null;
    const entry: Entry = { sums: SUMS.map(() => 0), firstBytes };
    this.#entries[this.#last] = entry;
    return entry;
  }
}

const [ZERO, NINE, MINUS, OPEN, QUOTE, BACKSLASH] = [48, 57, 45, 91, 34, 92];
const COMMA_QUOTE = 2;
const QUOTE_BRACKET_COMMA = 3;
