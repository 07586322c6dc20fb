import { type ComponentChildren, Fragment } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useFrame } from "../frame.tsx";
import { Panel } from "./panel.tsx";
import { type Sortable, sortRows } from "./sort-rows.ts";

export interface Column<Row> extends Sortable<Row> {
  readonly title: ComponentChildren;
  readonly cell: (row: Row) => ComponentChildren;
  /** Right-aligned, and the first click on its head sorts the largest first. */
  readonly isNumber?: boolean;
}

/** @param sort without it, the table cannot be sorted by this column */
export function column<Row>(
  title: ComponentChildren,
  cell: Column<Row>["cell"],
  sort: Sortable<Row> = {},
): Column<Row> {
  return { title, cell, ...sort };
}

export function numberColumn<Row>(...given: Parameters<typeof column<Row>>): Column<Row> {
  return { ...column(...given), isNumber: true };
}

export interface TableProps<Row> {
  /** For who cannot see what it is a table of. */
  readonly caption: string;
  /** The first one names the row. */
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  /** Said where there are no rows. */
  readonly empty?: ComponentChildren;
  /** As it is in the address bar: the id of a column, with a - before it when the largest is first; null: as in `rows`. */
  readonly sort?: string | null;
  readonly onSort?: (sort: string) => void;
  /** Where the first cell's link leads. */
  readonly hrefOf?: (row: Row) => string;
  /** Said about a row, below it. */
  readonly below?: (row: Row) => ComponentChildren;
  /** More rows than this are folded. */
  readonly first?: number;
}

export function Table<Row>(props: TableProps<Row>) {
  const { caption, columns, rows, keyOf, empty, sort = null, onSort, hrefOf, below } = props;
  const { first = Infinity } = props;
  const { t } = useFrame();
  const [all, setAll] = useState(false);
  if (rows.length === 0 && empty !== undefined) return <p class="empty">{empty}</p>;
  const more = rows.length - first;
  return (
    <>
      <ScrollingTable>
        <caption class="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column, at) => (
              <Head key={at} column={column} sort={sort} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {sortRows(rows, columns, sort)
            .slice(0, all ? rows.length : first)
            .map((row) => (
              <Fragment key={keyOf(row)}>
                <tr>
                  {columns.map(({ cell, isNumber }, at) =>
                    at > 0 ? (
                      <td key={at} class={isNumber ? "num" : undefined}>
                        {cell(row)}
                      </td>
                    ) : (
                      <th key={at} scope="row">
                        {hrefOf === undefined ? cell(row) : <a href={hrefOf(row)}>{cell(row)}</a>}
                      </th>
                    ),
                  )}
                </tr>
                {below === undefined ? null : (
                  <tr class="below">
                    <td colSpan={columns.length}>
                      <div class="said">{below(row)}</div>
                    </td>
                  </tr>
                )}
              </Fragment>
            ))}
        </tbody>
      </ScrollingTable>
      {more <= 0 ? null : (
        <button type="button" class="quiet" onClick={() => setAll(!all)} aria-expanded={all}>
          {all ? t("table.fewer") : t("table.more", { n: more })}
        </button>
      )}
    </>
  );
}

/** Where it is too wide, the keyboard must be able to scroll it: it may have nothing else to focus. */
function ScrollingTable({ children }: { readonly children: ComponentChildren }) {
  const wrap = useRef<HTMLDivElement>(null);
  const [isWide, setWide] = useState(false);
  useEffect(() => {
    const element = wrap.current;
    if (element === null) return;
    const watch = new ResizeObserver(() => setWide(element.scrollWidth > element.clientWidth));
    for (const each of [element, ...element.children]) watch.observe(each);
    return () => watch.disconnect();
  }, []);
  return (
    <div class="table-wrap" ref={wrap} tabIndex={isWide ? 0 : undefined}>
      <table class="data">{children}</table>
    </div>
  );
}

interface HeadProps<Row> {
  readonly column: Column<Row>;
  readonly sort: string | null;
  readonly onSort: ((sort: string) => void) | undefined;
}

function Head<Row>({ column: { id, title, sortBy, isNumber }, sort, onSort }: HeadProps<Row>) {
  const isSortable = sortBy !== undefined && onSort !== undefined;
  const up = `${id}`;
  const down = `-${id}`;
  const [first, second] = isNumber ? [down, up] : [up, down];
  const order = sort === up ? "ascending" : sort === down ? "descending" : "none";
  return (
    <th scope="col" class={isNumber ? "num" : undefined} aria-sort={isSortable ? order : undefined}>
      {isSortable ? (
        <button type="button" class="sort" onClick={() => onSort(sort === first ? second : first)}>
          {title}
        </button>
      ) : (
        title
      )}
    </th>
  );
}

interface TablePanelProps<Row> extends Omit<TableProps<Row>, "caption"> {
  /** See Panel. */
  readonly name: string;
  readonly title: string;
  readonly aside?: ComponentChildren;
  /** Said above the table. */
  readonly children?: ComponentChildren;
}

/** A panel with a table of what its title says. */
export function TablePanel<Row>({ name, title, aside, children, ...table }: TablePanelProps<Row>) {
  return (
    <Panel name={name} title={title} aside={aside}>
      {children}
      <Table caption={title} {...table} />
    </Panel>
  );
}
