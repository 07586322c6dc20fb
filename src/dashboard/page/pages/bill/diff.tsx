import { useState } from "preact/hooks";
import type { ComparedRow } from "../../../../mirror/report/shape.ts";
import { differing, type FactName, verdictInWords } from "../../components/compared.ts";
import { FactsTable } from "../../components/facts-table.tsx";
import { useFrame } from "../../frame.tsx";
import { cellsOf, type DiffCells, keyOf } from "./diff-cells.ts";

interface DiffProps {
  readonly rows: readonly ComparedRow[];
  /** Not everything could be compared: then an empty list is no good news. */
  readonly blind: boolean;
  readonly now: number;
}

/** As many as the daemon lists. */
const MOST = 500;
/** The first page. */
const FIRST = 8;

/** Rows that deserve a look, ours above theirs, foreign ones first. */
export function RowsToCheck({ rows, blind, now }: DiffProps) {
  const { t } = useFrame();
  const [shown, setShown] = useState(FIRST);
  return (
    <section class="panel" aria-labelledby="bill-diff">
      <header>
        <h2 id="bill-diff">{t("bill.diff")}</h2>
      </header>
      {rows.length === 0 ? (
        <p class="empty">{t(blind ? "bill.diff.blind" : "bill.diff.empty")}</p>
      ) : (
        <div class="table-wrap">
          <table class="data bill-diff">
            <DiffHead />
            {rows.slice(0, shown).map((row) => (
              <DiffPair key={keyOf(row)} compared={row} now={now} />
            ))}
          </table>
        </div>
      )}
      {rows.length > shown ? (
        <button type="button" class="quiet" onClick={() => setShown(rows.length)}>
          {t("bill.diff.rest", { n: rows.length - shown })}
        </button>
      ) : null}
      {rows.length >= MOST ? <p class="panel-part muted">{t("bill.diff.most", { n: MOST })}</p> : null}
    </section>
  );
}

function DiffHead() {
  const { t } = useFrame();
  return (
    <thead>
      <tr>
        <th scope="col">{t("bill.diff.verdict")}</th>
        <th scope="col">{t("bill.diff.side")}</th>
        <th scope="col">{t("bill.diff.time")}</th>
        <th scope="col">{t("bill.diff.who")}</th>
        <th scope="col">{t("bill.model")}</th>
        <th scope="col" class="num">
          {t("mirror.fact.input")}
        </th>
        <th scope="col" class="num">
          {t("bill.diff.cache")}
        </th>
        <th scope="col" class="num">
          {t("mirror.fact.output")}
        </th>
        <th scope="col" class="num">
          {t("bill.diff.money")}
        </th>
      </tr>
    </thead>
  );
}

function DiffPair({ compared, now }: { readonly compared: ComparedRow; readonly now: number }) {
  const { t } = useFrame();
  const [open, setOpen] = useState(false);
  const { ours, theirs } = cellsOf(compared, now);
  const marks = differing(compared);
  // What was billed does not fit their own list price: nothing of ours is wrong with that.
  const ourMarks = new Set([...marks].filter((name) => name !== "billed"));
  return (
    <tbody data-verdict={compared.verdict}>
      <tr>
        <th scope="rowgroup" rowSpan={2}>
          <span class="verdict" data-verdict={compared.verdict}>
            {verdictInWords(compared, t)}
          </span>
        </th>
        <Side side={t("mirror.ours")} cells={ours} marks={ourMarks} absent={t("bill.diff.absent.ours")} />
      </tr>
      <tr>
        <Side side={t("mirror.theirs")} cells={theirs} marks={marks} absent={t("bill.diff.absent.theirs")} />
      </tr>
      <tr class="bill-reason">
        <td colSpan={9}>
          <div class="bill-said">
            {compared.reason}{" "}
            <button type="button" class="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
              {t("bill.diff.open")}
            </button>
            {open ? <FactsTable compared={compared} /> : null}
          </div>
        </td>
      </tr>
    </tbody>
  );
}

interface SideProps {
  readonly side: string;
  /** null: this side knows nothing of it. */
  readonly cells: DiffCells | null;
  readonly marks: ReadonlySet<FactName>;
  readonly absent: string;
}

function Side({ side, cells, marks, absent }: SideProps) {
  const { t } = useFrame();
  if (cells === null) {
    return (
      <>
        <th scope="row">{side}</th>
        <td colSpan={7} class="muted">
          {absent}
        </td>
      </>
    );
  }
  const isCache = marks.has("cache-read") || marks.has("cache-write");
  return (
    <>
      <th scope="row">{side}</th>
      <td class="time">{cells.time}</td>
      <td class="who">{cells.who}</td>
      <td class="model">{cells.model}</td>
      <Marked label={t("mirror.fact.input")} text={cells.input} differs={marks.has("input")} />
      <Marked label={t("bill.diff.cache")} text={cells.cache} differs={isCache} />
      <Marked label={t("mirror.fact.output")} text={cells.output} differs={marks.has("output")} />
      <Marked label={t("bill.diff.money")} text={cells.money} differs={marks.has("billed")} />
    </>
  );
}

interface MarkedProps {
  /** Where there is no room for the head of the table. */
  readonly label: string;
  readonly text: string;
  readonly differs: boolean;
}

/** Not by color alone: a sign for the eye, a word for the ear. */
function Marked({ label, text, differs }: MarkedProps) {
  const { t } = useFrame();
  return (
    <td class="num" data-label={label} data-differs={differs}>
      {differs ? (
        <strong>
          <span aria-hidden="true">≠ </span>
          <span class="visually-hidden">{t("mirror.differs")} </span>
        </strong>
      ) : null}
      {text}
    </td>
  );
}
