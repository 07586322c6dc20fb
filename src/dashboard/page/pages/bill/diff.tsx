import { useState } from "preact/hooks";
import type { ComparedRow } from "../../../../mirror/report/shape.ts";
import { differing, type FactName, type Side, sidesOf, verdictInWords } from "../../components/compared.ts";
import { FactsTable } from "../../components/facts-table.tsx";
import { State } from "../../components/panel.tsx";
import { type Column, column, numberColumn, TablePanel } from "../../components/table.tsx";
import { useFrame } from "../../frame.tsx";

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
  const both = (name: keyof Side) => (compared: ComparedRow) => (
    <Both compared={compared} name={name} now={now} />
  );
  const columns: readonly Column<ComparedRow>[] = [
    column(t("bill.diff.verdict"), (compared) => (
      <State state={compared.verdict}>{verdictInWords(compared, t)}</State>
    )),
    column(t("bill.diff.side"), ({ record, row }) => (
      <div class="muted">
        {t("mirror.ours")} {record === null ? t("bill.diff.absent.ours") : null}
        <br />
        {t("mirror.theirs")} {row === null ? t("bill.diff.absent.theirs") : null}
      </div>
    )),
    column(t("word.time"), both("time")),
    column(t("bill.diff.who"), both("who")),
    column(t("word.model"), both("model")),
    numberColumn(t("mirror.fact.input"), both("input")),
    numberColumn(t("bill.diff.cache"), both("cache")),
    numberColumn(t("mirror.fact.output"), both("output")),
    numberColumn(t("bill.diff.money"), both("money")),
  ];
  return (
    <TablePanel
      name="bill-diff one-line"
      title={t("bill.diff")}
      rows={rows}
      first={FIRST}
      keyOf={({ gateway, row, record }) => JSON.stringify([gateway, row?.identity, record?.id])}
      empty={t(blind ? "bill.diff.blind" : "bill.diff.empty")}
      below={(compared) => <Reason compared={compared} />}
      columns={columns}
    >
      {rows.length >= MOST ? <p class="panel-part muted">{t("bill.diff.most", { n: MOST })}</p> : null}
    </TablePanel>
  );
}

interface BothProps {
  readonly compared: ComparedRow;
  readonly name: keyof Side;
  readonly now: number;
}

/** Ours above theirs. */
function Both({ compared, name, now }: BothProps) {
  const { ours, theirs } = sidesOf(compared, now);
  const marks = differing(compared);
  const facts: Readonly<Partial<Record<keyof Side, readonly FactName[]>>> = {
    input: ["input"],
    cache: ["cache-read", "cache-write"],
    output: ["output"],
    money: ["billed"],
  };
  const differs = (facts[name] ?? []).some((fact) => marks.has(fact));
  return (
    <>
      {/* What was billed does not fit their own list price: nothing of ours is wrong with that. */}
      <Marked text={ours?.[name] ?? null} differs={differs && name !== "money"} />
      <Marked text={theirs?.[name] ?? null} differs={differs} />
    </>
  );
}

interface MarkedProps {
  /** null: this side knows nothing of it. */
  readonly text: string | null;
  readonly differs: boolean;
}

/** Not by color alone: a sign for the eye, a word for the ear. */
function Marked({ text, differs }: MarkedProps) {
  const { t } = useFrame();
  if (text === null || !differs) return <div>{text ?? "–"}</div>;
  return (
    <div class="differs">
      <span aria-hidden="true">≠ </span>
      <span class="visually-hidden">{t("mirror.differs")} </span>
      {text}
    </div>
  );
}

function Reason({ compared }: { readonly compared: ComparedRow }) {
  const { t } = useFrame();
  const [open, setOpen] = useState(false);
  return (
    <>
      {compared.reason}{" "}
      <button type="button" class="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
        {t("bill.diff.open")}
      </button>
      {open ? <FactsTable compared={compared} /> : null}
    </>
  );
}
