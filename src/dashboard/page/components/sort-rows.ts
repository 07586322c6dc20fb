export interface Sortable<Row> {
  /** In the address bar, of a column that can be sorted. */
  readonly id?: string;
  /** By what its rows are sorted; null comes last. Without it the column cannot be sorted. */
  readonly sortBy?: (row: Row) => string | number | null;
}

/** A sort that the columns do not have, such as an old bookmark's, leaves the rows as they are. */
export function sortRows<Row>(
  rows: readonly Row[],
  columns: readonly Sortable<Row>[],
  sort: string | null,
): readonly Row[] {
  const isDown = sort?.startsWith("-") ?? false;
  const sortBy = columns.find(({ id }) => id === (isDown ? sort?.slice(1) : sort))?.sortBy;
  if (sortBy === undefined) return rows;
  return rows.toSorted((a, b) => {
    const one = sortBy(a);
    const other = sortBy(b);
    if (one === null || other === null) return Number(one === null) - Number(other === null);
    const order =
      typeof one === "number" && typeof other === "number"
        ? one - other
        : String(one).localeCompare(String(other), undefined, { numeric: true });
    return isDown ? -order : order;
  });
}
