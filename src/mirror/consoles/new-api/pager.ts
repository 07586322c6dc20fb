import { otherShape } from "../answers.ts";
import { asObject, countAt, fieldAt, listAt } from "../json.ts";
import type { Ask } from "./envelope.ts";

export interface Listed {
  readonly rows: readonly unknown[];
  /** null: this version does not tell. */
  readonly total: number | null;
  readonly last: boolean;
}

/** The pages of one list, from its first. */
export interface Pages {
  next(): Promise<Listed>;
}

export interface PagerMeans {
  readonly ask: Ask;
  readonly about: string;
  /** How this kind counts its pages; found out anew whenever it answers in the other shape. */
  readonly zeroBased: boolean;
}

/**
 * Lists come in two shapes: `{page, page_size, total, items}` with pages from 1, and, from one-api and from what is close
 * to it, a bare array with pages from 0 and without a total.
 */
export function createPager({ ask, about, zeroBased }: PagerMeans): (path: (p: number) => string) => Pages {
  let first = zeroBased ? 0 : 1;

  async function ask1(path: (p: number) => string, index: number): Promise<unknown> {
    const data = await ask(path(first + index), about);
    const counted = asObject(data) !== null;
    if (counted === (first === 1)) return data;
    first = counted ? 1 : 0;
    return ask(path(first + index), about);
  }

  return (path) => {
    let index = 0;
    let size = 0;
    return {
      async next() {
        const { rows, total, pageSize } = shapeOf(await ask1(path, index), about);
        if (index === 0) size = sizeOf(rows.length, total, pageSize);
        index += 1;
        const last = total === null ? rows.length < size : rows.length === 0 || index * size >= total;
        return { rows, total, last };
      },
    };
  };
}

/** No version has smaller pages. */
const SMALLEST_PAGE = 10;

/** What was asked for is not always what is given: the first page says how large pages are. */
function sizeOf(rows: number, total: number | null, told: number | null): number {
  if (total === null) return Math.max(rows, SMALLEST_PAGE);
  if (rows > 0 && total > rows) return Math.min(told ?? rows, rows);
  return Math.max(rows, told ?? rows, 1);
}

interface Shape {
  readonly rows: readonly unknown[];
  readonly total: number | null;
  readonly pageSize: number | null;
}

function shapeOf(data: unknown, about: string): Shape {
  // Go writes a list that was never filled as null.
  if (data === null) return { rows: [], total: null, pageSize: null };
  if (Array.isArray(data)) return { rows: data, total: null, pageSize: null };
  const object = asObject(data);
  if (object === null) throw otherShape(about, "data");
  const rows = fieldAt(object, "items") === null ? [] : listAt(object, "items");
  if (rows === null) throw otherShape(about, "items");
  const total = countAt(object, "total");
  if (total === null) throw otherShape(about, "total");
  const pageSize = countAt(object, "page_size");
  return { rows, total, pageSize: pageSize === 0 ? null : pageSize };
}

/** Everything on a list that is not long. */
export async function readAll(pages: Pages, mostPages: number): Promise<unknown[]> {
  const all: unknown[] = [];
  for (let read = 0; read < mostPages; read += 1) {
    const { rows, last } = await pages.next();
    all.push(...rows);
    if (last) break;
  }
  return all;
}
