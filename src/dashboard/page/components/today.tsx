import { costInWords, dollars, exact } from "../../../core/units.ts";
import type { Now } from "../../api.ts";
import { useFrame } from "../frame.tsx";

/** Today in four large figures, each beside what is usual. */
export function TodayFigures({ now }: { readonly now: Now }) {
  const { t } = useFrame();
  const { today, running, running_total: inFlight } = now;
  const total = today?.total ?? null;
  const usual = today?.usual ?? null;
  const forecast = today?.forecast ?? null;
  const waiting = running.filter((call) => call.waiting).length;
  return (
    <dl class="panel today">
      <div>
        <dt>{t("overview.cost.today")}</dt>
        <dd>{total === null ? "–" : costInWords(total.cost_microdollars, total.unknown_cost)}</dd>
        <dd class="muted small">
          {total === null
            ? t("overview.unreadable")
            : usual === null
              ? t("overview.usual.none")
              : t("overview.usual", { n: usual.days, amount: dollars(usual.cost_microdollars) })}
        </dd>
      </div>
      <div>
        <dt>{t("overview.requests.today")}</dt>
        <dd>{total === null ? "–" : exact(total.requests)}</dd>
        <dd class="muted small">
          {[
            ...(usual === null ? [] : [t("overview.usual.short", { amount: exact(usual.requests) })]),
            ...(total === null || total.refused === 0
              ? []
              : [t("overview.refused", { n: exact(total.refused) })]),
          ].join(t("frame.comma"))}
        </dd>
      </div>
      <div>
        <dt>{t("overview.in-flight")}</dt>
        <dd>{exact(inFlight)}</dd>
        <dd class="muted small">{waiting === 0 ? "" : t("overview.waiting", { n: waiting })}</dd>
      </div>
      <div>
        <dt>{t("overview.forecast")}</dt>
        <dd>{forecast === null ? "–" : `≈ ${dollars(forecast.cost_microdollars)}`}</dd>
        <dd class="muted small">
          {forecast === null
            ? t("overview.forecast.none")
            : t("overview.forecast.how", {
                n: forecast.days,
                spent: dollars(forecast.spent_microdollars),
                usual: dollars(forecast.usual_day_microdollars),
              })}
        </dd>
      </div>
    </dl>
  );
}
