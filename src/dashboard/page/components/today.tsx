import { costInWords, dollars, exact } from "../../../core/units.ts";
import { short } from "../../../usage/reports/format.ts";
import type { DaySums, Now } from "../../api.ts";
import { timeInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { type ToolDay, toolDays } from "../tool-days.ts";
import { useTime } from "../use-time.ts";
import { Gauge } from "./gauge.tsx";

export function TodayFigures({ now }: { readonly now: Now }) {
  const { t } = useFrame();
  const { today } = now;
  if (today === null) return <p class="empty">{t("overview.today.unreadable")}</p>;
  const { total } = today;
  const billed = total.billed_microdollars;
  return (
    <dl class="figures">
      <div>
        <dt>
          {[
            t("overview.money"),
            t("overview.today.since", { time: timeInWords(today.since, now.at) }),
            ...(total.unknown_cost > 0 ? [t("overview.money.unknown", { n: total.unknown_cost })] : []),
          ].join(t("frame.comma"))}
        </dt>
        <dd>
          {costInWords(total.cost_microdollars, total.unknown_cost)}{" "}
          {billed === null ? null : <small>{t("overview.money.billed", { money: dollars(billed) })}</small>}
        </dd>
      </div>
      <div>
        <dt>{t("overview.tokens")}</dt>
        <dd title={exact(total.tokens)}>{short(total.tokens)}</dd>
      </div>
      <div>
        <dt>{t("overview.requests")}</dt>
        <dd>{exact(total.requests)}</dd>
      </div>
      <div>
        <dt>{t("overview.refused")}</dt>
        <dd>{exact(total.refused)}</dd>
      </div>
    </dl>
  );
}

export function ToolDays({ now }: { readonly now: Now }) {
  const { t } = useFrame();
  const days = toolDays(now);
  return (
    <section class="panel" aria-labelledby="tool-days">
      <header>
        <h2 id="tool-days">{t("overview.limits")}</h2>
        <span class="muted">{t("overview.today")}</span>
      </header>
      {days.length === 0 ? (
        <p class="empty">{t("overview.limits.empty")}</p>
      ) : (
        <div class="table-wrap">
          <table class="data tool-days" aria-labelledby="tool-days">
            <thead>
              <tr>
                <th scope="col">{t("overview.tool")}</th>
                <th scope="col" class="num">
                  {t("overview.money")}
                </th>
                <th scope="col" class="num">
                  {t("overview.tokens")}
                </th>
                <th scope="col" class="num">
                  {t("overview.requests")}
                </th>
                <th scope="col" class="num">
                  {t("overview.refused")}
                </th>
              </tr>
            </thead>
            {days.map((day) => (
              <Rows key={day.name ?? ""} day={day} />
            ))}
          </table>
        </div>
      )}
    </section>
  );
}

function Rows({ day: { name, status, sums } }: { readonly day: ToolDay }) {
  const { t } = useFrame();
  const time = useTime(10_000);
  const limits = status?.limits ?? [];
  const known = (show: (sums: DaySums) => string) => (sums === null ? "–" : show(sums));
  return (
    <tbody>
      <tr>
        <th scope="row">
          <span class="row">
            {name ?? t("overview.stranger")}
            {status === null || status.state === "active" ? null : (
              <span class="state" data-state={status.state}>
                {t(`state.${status.state}`)}
              </span>
            )}
          </span>
        </th>
        <td class="num">{known((day) => costInWords(day.cost_microdollars, day.unknown_cost))}</td>
        <td class="num">{known((day) => short(day.tokens))}</td>
        <td class="num">{known((day) => exact(day.requests))}</td>
        <td class="num">{known((day) => exact(day.refused))}</td>
      </tr>
      {limits.length === 0 ? null : (
        <tr class="limits-row">
          <td colSpan={5}>
            <ul class="limits">
              {limits.map((limit) => (
                <Gauge key={`${limit.limit} ${limit.per}`} status={limit} time={time} />
              ))}
            </ul>
          </td>
        </tr>
      )}
    </tbody>
  );
}
