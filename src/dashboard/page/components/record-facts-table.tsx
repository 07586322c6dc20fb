import { costInWords, dollars, duration, exact } from "../../../core/units.ts";
import type { ComparedRow } from "../../../mirror/report/shape.ts";
import { momentInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { Language, Translate } from "../messages/messages.ts";
import { type Fact, type FactKind, type FactValue, factsOf } from "./record-facts.ts";
import { TableWrap } from "./table-wrap.tsx";

/** Everything both sides say of one request, side by side; what they do not agree on is marked by a sign and a word. */
export function FactsTable({ compared }: { readonly compared: ComparedRow }) {
  const { t } = useFrame();
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
          {factsOf(compared).map((fact) => (
            <FactLine key={fact.name} fact={fact} compared={compared} />
          ))}
        </tbody>
      </table>
    </TableWrap>
  );
}

function FactLine({ fact, compared }: { readonly fact: Fact; readonly compared: ComparedRow }) {
  const { t, language } = useFrame();
  const { name, kind, ours, theirs, differs } = fact;
  const cell = (value: FactValue, isThere: boolean) => (
    <td data-differs={differs && value !== null} data-unknown={value === null}>
      {isThere || value !== null ? valueInWords(value, kind, t, language) : "–"}
    </td>
  );
  return (
    <tr>
      <th scope="row">
        {t(`mirror.fact.${name}`)}
        {differs ? <strong class="differs"> ≠ {t("mirror.differs")}</strong> : null}
      </th>
      {cell(ours, compared.record !== null && kind === "tokens")}
      {cell(theirs, compared.row !== null && kind === "tokens")}
    </tr>
  );
}

/** Unknown is not zero. */
export function valueInWords(value: FactValue, kind: FactKind, t: Translate, language: Language): string {
  if (value === null) return kind === "money" ? costInWords(null) : "?";
  if (typeof value === "boolean") return t(value ? "record.yes" : "record.no");
  if (typeof value === "string") return value;
  switch (kind) {
    case "time":
      return momentInWords(value, language);
    case "milliseconds":
      return duration(value);
    case "money":
      return dollars(value);
    case "factor":
      return factorInWords(value);
    case "tokens":
    case "text":
    case "yes-no":
      return exact(value);
  }
}

/** ×1.5; what a float cannot hold exactly is not shown. */
export function factorInWords(value: number): string {
  return `×${Number(value.toPrecision(4))}`;
}
