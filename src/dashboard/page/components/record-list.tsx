import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useFrame } from "../frame.tsx";
import { useNarrow } from "./chart-theme.ts";
import { type ColumnName, columnsFor, RecordRow } from "./record-row.tsx";
import type { RecordSource } from "./record-source.ts";
import { MOST_ROWS, rowAfterKey, scrollFor, stepOf, wantsMore, windowOf } from "./record-window.ts";

interface ListProps {
  readonly source: RecordSource;
  /** The id of the one that is open. */
  readonly open: string | null;
  /** Little room: the record that is open takes it. */
  readonly tight: boolean;
  readonly onOpen: (id: string) => void;
}

/** Two lines each where there is little room. The style sheet has the same numbers. */
const ROW_PX = 32;
const NARROW_ROW_PX = 54;
const HEAD_PX = 30;

/**
 * Any number of records: only those in sight are drawn, between two empty rows as tall as all the others, and more are
 * fetched on the way down. One row at a time is reached by Tab, the others from there by the arrow keys.
 */
export function RecordList({ source, open, tight, onOpen }: ListProps) {
  const { t } = useFrame();
  const narrow = useNarrow();
  const rowHeight = narrow ? NARROW_ROW_PX : ROW_PX;
  const columns = columnsFor(narrow ? "narrow" : tight ? "tight" : "wide");
  const frame = useRef<HTMLDivElement>(null);
  const seen = useSeen(frame, rowHeight);
  const { records, count } = source;
  const shown = Math.min(records.length, MOST_ROWS);
  const scroll = { ...seen, rowHeight, count: shown };
  const { first, end } = windowOf(scroll);
  const { active, setActive, move, wanted } = useActive(frame, shown);
  const tabbable = active >= first && active < end ? active : first;
  useEffect(() => {
    if (wantsMore({ first, end }, records.length)) source.more();
  }, [first, end, records.length, source.more]);

  const onKeyDown = useSteady((event: KeyboardEvent, row: number) => {
    const page = Math.max(1, Math.floor(seen.height / rowHeight) - 2);
    // A key that is held down is faster than the rows are drawn.
    const next = rowAfterKey(event.key, wanted.current ?? row, shown, page);
    if (next === null) return;
    event.preventDefault();
    move(next, scrollFor(next, { ...scroll, top: frame.current?.scrollTop ?? 0 }, HEAD_PX));
  });
  const onOpenRow = useSteady((id: string, row: number) => {
    setActive(row);
    onOpen(id);
  });

  return (
    <div class="records" ref={frame}>
      <table aria-rowcount={count === null ? -1 : count + 1} data-columns={columns.length}>
        <caption class="visually-hidden">{`${t("records.title")}. ${t("records.hint")}`}</caption>
        <Head columns={columns} />
        <tbody>
          <Space rows={first} rowHeight={rowHeight} />
          {records.slice(first, end).map((record, at) => (
            <RecordRow
              key={record.id}
              record={record}
              columns={columns}
              place={first + at}
              tabbable={first + at === tabbable}
              open={record.id === open}
              onKeyDown={onKeyDown}
              onOpen={onOpenRow}
            />
          ))}
          <Space rows={shown - end} rowHeight={rowHeight} />
        </tbody>
      </table>
    </div>
  );
}

function Head({ columns }: { readonly columns: readonly (readonly ColumnName[])[] }) {
  const { t } = useFrame();
  return (
    <thead>
      <tr aria-rowindex={1}>
        {columns.map((names) => (
          <th key={names[0]} scope="col" data-column={names[0]}>
            {names.map((name) => t(`records.column.${name}`)).join(", ")}
          </th>
        ))}
      </tr>
    </thead>
  );
}

function Space({ rows, rowHeight }: { readonly rows: number; readonly rowHeight: number }) {
  if (rows <= 0) return null;
  return <tr class="records-space" style={{ height: `${rows * rowHeight}px` }} />;
}

/** The same function for as long as the list is there, so that rows which stay are not drawn again for it. */
function useSteady<A extends unknown[]>(work: (...given: A) => void): (...given: A) => void {
  const latest = useRef(work);
  latest.current = work;
  return useCallback((...given: A) => latest.current(...given), []);
}

interface Seen {
  readonly top: number;
  readonly height: number;
}

/** The visible part of the list. It changes only when other rows must be drawn. */
function useSeen(frame: { readonly current: HTMLDivElement | null }, rowHeight: number): Seen {
  const [seen, setSeen] = useState<Seen>({ top: 0, height: 660 });
  useEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const read = () => {
      const { scrollTop: top, clientHeight: height } = element;
      setSeen((before) =>
        before.height === height && stepOf(before.top, rowHeight) === stepOf(top, rowHeight)
          ? before
          : { top, height },
      );
    };
    const watch = new ResizeObserver(read);
    watch.observe(element);
    element.addEventListener("scroll", read, { passive: true });
    return () => {
      watch.disconnect();
      element.removeEventListener("scroll", read);
    };
  }, [frame, rowHeight]);
  return seen;
}

/** The row that Tab comes to. After a key the focus follows, once the row is there. */
function useActive(frame: { readonly current: HTMLDivElement | null }, shown: number) {
  const [active, setActive] = useState(0);
  const wanted = useRef<number | null>(null);
  useLayoutEffect(() => {
    if (wanted.current === null) return;
    const button = frame.current?.querySelector<HTMLElement>(`[data-place="${wanted.current}"] button`);
    if (button === null || button === undefined) return;
    wanted.current = null;
    button.focus({ preventScroll: true });
  });
  const move = (row: number, top: number | null) => {
    wanted.current = row;
    setActive(row);
    if (top !== null) frame.current?.scrollTo({ top });
  };
  return { active: Math.min(active, Math.max(0, shown - 1)), setActive, move, wanted };
}
