import { costInWords } from "../../../../core/units.ts";
import type { ComparedRow } from "../../../../mirror/report/shape.ts";
import { verdictInWords } from "../../components/compared.ts";
import { FactsTable } from "../../components/facts-table.tsx";
import { Fold, State } from "../../components/panel.tsx";
import { type Column, column, numberColumn, TablePanel } from "../../components/table.tsx";
import { Moment } from "../../components/text.tsx";
import { useFrame } from "../../frame.tsx";
import { reasonInWords } from "../../sentences.ts";

interface DiffProps {
  readonly rows: readonly ComparedRow[];
  /** Not everything could be compared: then an empty list is no good news. */
  readonly blind: boolean;
}

/** As many as the daemon lists. */
const MOST = 500;
/** The first page. */
const FIRST = 8;

/** Rows that deserve a look, foreign ones first, each with the reason and all that both sides say. */
export function RowsToCheck({ rows, blind }: DiffProps) {
  const { t } = useFrame();
  const columns: readonly Column<ComparedRow>[] = [
    column(t("bill.diff.verdict"), (compared) => (
      <State state={compared.verdict}>{verdictInWords(compared, t)}</State>
    )),
    column(t("word.time"), ({ row, record }) => (
      <Moment at={row?.at ?? record?.ended_at ?? record?.started_at ?? 0} />
    )),
    column(t("word.tool"), ({ record }) => record?.tool ?? "–"),
    column(t("word.key"), ({ row, record }) => row?.key ?? row?.key_ref ?? record?.key ?? "–"),
    column(t("word.model"), ({ row, record }) => row?.model ?? record?.model ?? "–"),
    numberColumn(t("mirror.ours"), ({ record }) =>
      record === null ? t("bill.diff.absent.ours") : costInWords(record.cost_microdollars),
    ),
    numberColumn(t("mirror.theirs"), ({ row }) =>
      row === null ? t("bill.diff.absent.theirs") : costInWords(row.billed_microdollars),
    ),
  ];
  return (
    <TablePanel
      name="bill-diff"
      title={t("bill.diff")}
      rows={rows}
      first={FIRST}
      keyOf={({ gateway, row, record }) => JSON.stringify([gateway, row?.identity, record?.id])}
      empty={t(blind ? "bill.diff.blind" : "bill.diff.empty")}
      below={(compared) => (
        <>
          {reasonInWords(compared.reason, t)}
          <Fold title={t("bill.diff.open")}>{() => <FactsTable compared={compared} />}</Fold>
        </>
      )}
      columns={columns}
    >
      {rows.length >= MOST ? <p class="body muted">{t("bill.diff.most", { n: MOST })}</p> : null}
    </TablePanel>
  );
}
