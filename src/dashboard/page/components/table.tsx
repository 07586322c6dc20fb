import type { ComponentChildren } from "preact";
import { type Sortable, sortRows } from "./sort-rows.ts";
import { TableWrap } from "./table-wrap.tsx";

export interface Column<Row> extends Sortable<Row> {
  readonly title: string;
  readonly cell: (row: Row) => ComponentChildren;
  /** Right-aligned, and the first click on its head sorts the largest first. */
  readonly isNumber?: boolean;
}

interface TableProps<Row> {
  /** For who cannot see what it is a table of. */
  readonly caption: string;
  /** The first one names the row. */
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  /** As it is in the address bar: the id of a column, with a - before it when the largest is first; null: as in `rows`. */
  readonly sort?: string | null;
  readonly onSort?: (sort: string) => void;
  /** Where the first cell's link leads; null: nowhere. */
  readonly hrefOf?: (row: Row) => string | null;
}

export function Table<Row>({ caption, columns, rows, keyOf, sort = null, onSort, hrefOf }: TableProps<Row>) {
  const sorted = sortRows(rows, columns, sort);
  return (
    <TableWrap>
      <table class="data">
        <caption class="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <Head key={column.id} column={column} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {sorted.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map(({ id, cell, isNumber }, at) =>
                at === 0 ? (
                  <th key={id} scope="row">
                    {linked(cell(row), hrefOf?.(row) ?? null)}
                  </th>
                ) : (
                  <td key={id} class={isNumber ? "num" : undefined}>
                    {cell(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </TableWrap>
  );
}

interface HeadProps<Row> {
  readonly column: Column<Row>;
  readonly sort: string | null;
  readonly onSort: ((sort: string) => void) | undefined;
}

function Head<Row>({ column: { id, title, sortBy, isNumber }, sort, onSort }: HeadProps<Row>) {
  const style = isNumber ? "num" : undefined;
  if (sortBy === undefined || onSort === undefined)
    return (
      <th scope="col" class={style}>
        {title}
      </th>
    );
  const up = id;
  const down = `-${id}`;
  const first = isNumber ? down : up;
  const second = isNumber ? up : down;
  return (
    <th
      scope="col"
      class={style}
      aria-sort={sort === up ? "ascending" : sort === down ? "descending" : "none"}
    >
      <button type="button" class="sort" onClick={() => onSort(sort === first ? second : first)}>
        {title}
      </button>
    </th>
  );
}

function linked(content: ComponentChildren, href: string | null): ComponentChildren {
  return href === null ? content : <a href={href}>{content}</a>;
}
