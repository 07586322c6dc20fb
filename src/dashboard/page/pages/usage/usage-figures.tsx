import { dollars, duration, exact, percent, short } from "../../../../usage/reports/format.ts";
import type { UsageSums } from "../../../api.ts";
import { useFrame } from "../../frame.tsx";

/** What the period comes to, in a few large numbers. */
export function UsageFigures({ total }: { readonly total: UsageSums }) {
  const { t } = useFrame();
  const { billed_microdollars: billed, first_byte_p50_ms: p50, first_byte_p95_ms: p95 } = total;
  return (
    <dl class="figures">
      <div>
        <dt>{t("usage.figure.cost")}</dt>
        <dd>
          {dollars(total.cost_microdollars)}{" "}
          {billed === null ? null : <small>{t("usage.figure.billed", { money: dollars(billed) })}</small>}
        </dd>
      </div>
      <div>
        <dt>{t("usage.figure.tokens")}</dt>
        <dd title={exact(total.tokens)}>{short(total.tokens)}</dd>
      </div>
      <div>
        <dt>{t("usage.figure.requests")}</dt>
        <dd>
          {exact(total.requests)}{" "}
          {total.refused === 0 ? null : (
            <small>{t("usage.figure.refused", { n: exact(total.refused) })}</small>
          )}
        </dd>
      </div>
      <div>
        <dt>{t("usage.figure.cache")}</dt>
        <dd>{total.cache_share === null ? "–" : percent(total.cache_share)}</dd>
      </div>
      <div>
        <dt>{t("usage.figure.first-byte")}</dt>
        <dd>
          {p50 === null ? "–" : duration(p50)} <small>{p95 === null ? null : duration(p95)}</small>
        </dd>
      </div>
    </dl>
  );
}
