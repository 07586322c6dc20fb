import type { ComparedRow } from "../../../mirror/report/shape.ts";
import { useFrame } from "../frame.tsx";
import { differing, factsOf } from "./compared.ts";
import { TableWrap } from "./table-wrap.tsx";

/** Everything both sides say of one request; what they do not agree on is marked by a sign and a word. */
export function FactsTable({ compared }: { readonly compared: ComparedRow }) {
  const { t, language } = useFrame();
  const marks = differing(compared);
  return (
    <TableWrap>
      <table class="data facts">
        <thead>
          <tr>
            <th scope="col">
              <span class="visually-hidden">{t("mirror.fact")}</span>
            </th>
            <th scope="col">{t("mirror.ours")}</th>
            <th scope="col">{t("mirror.theirs")}</th>
          </tr>
        </thead>
        <tbody>
          {factsOf(compared, t, language).map(({ name, ours, theirs }) => (
            <tr key={name}>
              <th scope="row">
                {t(`mirror.fact.${name}`)}
                {marks.has(name) ? <strong class="differs"> ≠ {t("mirror.differs")}</strong> : null}
              </th>
              <td data-differs={marks.has(name) && ours !== null}>{ours ?? "–"}</td>
              <td data-differs={marks.has(name) && theirs !== null}>{theirs ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableWrap>
  );
}
