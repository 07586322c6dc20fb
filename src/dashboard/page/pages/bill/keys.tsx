import { dollars } from "../../../../core/units.ts";
import { consoleFigures } from "../../../../limits/format.ts";
import type { KeyReport } from "../../../../mirror/report/shape.ts";
import type { KeysProblem } from "../../../api.ts";
import { factorInWords } from "../../components/record-facts-table.tsx";
import { TableWrap } from "../../components/table-wrap.tsx";
import { agoInWords, dayOf } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";

interface KeysProps {
  readonly keys: readonly KeyReport[];
  readonly problems: readonly KeysProblem[];
  readonly now: number;
}

/** The console's key list beside the tools that hold each key here. */
export function ConsoleKeys({ keys, problems, now }: KeysProps) {
  const { t } = useFrame();
  const several = keys.some(({ gateway }) => gateway !== keys[0]?.gateway);
  return (
    <section class="panel" aria-labelledby="bill-keys">
      <header>
        <h2 id="bill-keys">{t("bill.keys")}</h2>
      </header>
      {problems.map(({ gateway, why, next }) => (
        <p class="panel-part" key={gateway}>
          {t("bill.keys.problem", { gateway, why })} {next === null ? null : <code>{next}</code>}
        </p>
      ))}
      {keys.length === 0 ? (
        problems.length === 0 && <p class="empty">{t("bill.keys.empty")}</p>
      ) : (
        <TableWrap>
          <table class="data bill-keys">
            <thead>
              <tr>
                <th scope="col">{t("bill.keys.name")}</th>
                {several ? <th scope="col">{t("bill.keys.gateway")}</th> : null}
                <th scope="col">{t("bill.keys.key")}</th>
                <th scope="col">{t("bill.keys.tool")}</th>
                <th scope="col">{t("bill.keys.state")}</th>
                <th scope="col">{t("bill.keys.group")}</th>
                <th scope="col" class="num">
                  {t("bill.keys.quota")}
                </th>
                <th scope="col">{t("bill.keys.windows")}</th>
                <th scope="col">{t("bill.keys.expires")}</th>
                <th scope="col">{t("bill.keys.last-use")}</th>
                <th scope="col">{t("bill.keys.as-of")}</th>
              </tr>
            </thead>
            <tbody>
              {keys.map((key) => (
                <KeyLine key={`${key.gateway} ${key.ref}`} each={key} several={several} now={now} />
              ))}
            </tbody>
          </table>
        </TableWrap>
      )}
    </section>
  );
}

interface LineProps {
  readonly each: KeyReport;
  readonly several: boolean;
  readonly now: number;
}

function KeyLine({ each, several, now }: LineProps) {
  const { t } = useFrame();
  return (
    <tr>
      <th scope="row">{each.name}</th>
      {several ? <td>{each.gateway}</td> : null}
      <td>{each.key === null ? "–" : <code>{each.key}</code>}</td>
      <td>
        {each.tools.length === 0 ? (
          <span class="muted">{t("bill.keys.not-held")}</span>
        ) : (
          each.tools.join(", ")
        )}
      </td>
      <td>
        <span class="state" data-state={each.state}>
          {t(`bill.keys.state.${each.state}`)}
        </span>
      </td>
      <td>
        {each.group ?? "–"} {each.multiplier === null ? null : factorInWords(each.multiplier)}
      </td>
      <td class="num">{quotaOf(each, t)}</td>
      <td>
        {each.windows
          .map(({ window, used, most }) => {
            const figures = consoleFigures(used, most);
            return `${window} ${figures.used}/${figures.max}`;
          })
          .join(", ") || "–"}
      </td>
      <td>{each.expires_at === null ? "–" : dayOf(each.expires_at)}</td>
      <td>{each.last_used_at === null ? "–" : agoInWords(each.last_used_at, now, t)}</td>
      <td>{each.as_of === null ? "–" : agoInWords(each.as_of, now, t)}</td>
    </tr>
  );
}

function quotaOf({ quota, unlimited, quota_used: used }: KeyReport, t: Translate): string {
  if (quota === null) {
    const without = t(unlimited ? "bill.keys.unlimited" : "bill.keys.state.unknown");
    return used === null ? without : `${dollars(used)} / ${without}`;
  }
  const figures = consoleFigures(used, quota);
  return used === null ? figures.max : `${figures.used} / ${figures.max}`;
}
