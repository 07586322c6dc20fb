import type { ComparedRow } from "../../../mirror/report/shape.ts";
import { useFrame } from "../frame.tsx";
import { differing, type Fact, factsOf } from "./compared.ts";
import { type Column, column, Table } from "./table.tsx";

/** Everything both sides say of one request; what they do not agree on is marked by a sign and a word. */
export function FactsTable({ compared }: { readonly compared: ComparedRow }) {
  const { t } = useFrame();
  const marks = differing(compared);
  const columns: readonly Column<Fact>[] = [
    column(<span class="visually-hidden">{t("mirror.fact")}</span>, ({ name }) => (
      <>
        {t(`mirror.fact.${name}`)}
        {marks.has(name) ? <strong class="wrong"> ≠ {t("mirror.differs")}</strong> : null}
      </>
    )),
    column(t("mirror.ours"), ({ ours }) => ours ?? "–"),
    column(t("mirror.theirs"), ({ theirs }) => theirs ?? "–"),
  ];
  return (
    <div class="facts">
      <Table
        caption={t("mirror.fact")}
        rows={factsOf(compared, t)}
        keyOf={({ name }) => name}
        columns={columns}
      />
    </div>
  );
}
