import { useMemo } from "preact/hooks";
import { exact } from "../../../../core/units.ts";
import type { MirrorReport } from "../../../../mirror/report/shape.ts";
import type { MirrorDay } from "../../../api.ts";
import { Chart } from "../../components/chart.tsx";
import { useFrame } from "../../frame.tsx";
import { DAY_VERDICTS, type DayVerdict, daysOf, linesOfDays } from "./days.ts";

/** Of the chart's height: a foreign row must not vanish beside hundreds that matched. */
const LEAST = 0.025;

interface TimeProps {
  readonly days: readonly MirrorDay[];
  readonly reports: readonly MirrorReport[];
}

/** How comparing came out, day by day. */
export function VerdictsByDay({ days, reports }: TimeProps) {
  const { t } = useFrame();
  return (
    <section class="panel" aria-labelledby="bill-time">
      <header>
        <h2 id="bill-time">{t("bill.time")}</h2>
      </header>
      {days.length === 0 ? (
        <p class="empty">{t("bill.time.empty")}</p>
      ) : (
        reports.map(({ gateway }) => (
          <GatewayTime
            key={gateway}
            days={days.filter((day) => day.gateway === gateway)}
            gateway={reports.length > 1 ? gateway : null}
          />
        ))
      )}
    </section>
  );
}

function GatewayTime({
  days,
  gateway,
}: {
  readonly days: readonly MirrorDay[];
  readonly gateway: string | null;
}) {
  const { t, clock } = useFrame();
  const bins = useMemo(() => daysOf(days, clock()), [days, clock]);
  const lines = useMemo(() => linesOfDays(days, bins), [days, bins]);
  return (
    <div class="body stack">
      {gateway === null ? null : <h3>{gateway}</h3>}
      {days.length === 0 ? (
        <p class="muted">{t("bill.time.empty")}</p>
      ) : (
        <Chart
          label={t("bill.time.label")}
          bins={bins}
          bin="day"
          lines={lines}
          nameOf={(name) => t(`bill.day.${verdictOf(name)}`)}
          amount={exact}
          paintOf={paintOf}
          least={LEAST}
          hasLegend
        />
      )}
    </div>
  );
}

function verdictOf(name: string | null): DayVerdict {
  return DAY_VERDICTS.find((verdict) => verdict === name) ?? "other";
}

function paintOf(name: string | null): string {
  return `--verdict-${verdictOf(name).replace("_", "-")}`;
}
