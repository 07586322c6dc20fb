import { type ComponentChildren, Fragment } from "preact";
import { useRef, useState } from "preact/hooks";
import { useFrame, useResize } from "../frame.tsx";
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
  const { caption, columns, rows, keyOf, empty, sort = null, onSort, below, first = Infinity } = props;
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
                <Cells row={row} {...props} />
                {below === undefined ? null : <Below span={columns.length}>{below(row)}</Below>}
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

function Cells<Row>({ row, columns, hrefOf }: TableProps<Row> & { readonly row: Row }) {
  const [first, ...others] = columns;
  const name = first?.cell(row);
  return (
    <tr>
      <th scope="row">{hrefOf === undefined ? name : <a href={hrefOf(row)}>{name}</a>}</th>
      {others.map(({ cell, isNumber }, at) => (
        <td key={at} class={isNumber ? "num" : undefined}>
          {cell(row)}
        </td>
      ))}
    </tr>
  );
}

/** The table may be wider than the page; what is said below a row is not. */
function Below({ span, children }: { readonly span: number; readonly children: ComponentChildren }) {
  return (
    <tr class="below">
      <td colSpan={span}>
        <div class="said">{children}</div>
      </td>
    </tr>
  );
}

/** Where it is too wide, the keyboard must be able to scroll it: it may have nothing else to focus. */
function ScrollingTable({ children }: { readonly children: ComponentChildren }) {
  const wrap = useRef<HTMLDivElement>(null);
  useResize(wrap, (element) => {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
  });
  return (
    <div class="table-wrap" ref={wrap}>
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
  const style = isNumber ? "num" : undefined;
  if (sortBy === undefined || onSort === undefined)
    return (
      <th scope="col" class={style}>
        {title}
      </th>
    );
  const up = `${id}`;
  const down = `-${id}`;
  const [first, second] = isNumber ? [down, up] : [up, down];
  const order = sort === up ? "ascending" : sort === down ? "descending" : "none";
  return (
    <th scope="col" class={style} aria-sort={order}>
      <button type="button" class="sort" onClick={() => onSort(sort === first ? second : first)}>
        {title}
      </button>
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
