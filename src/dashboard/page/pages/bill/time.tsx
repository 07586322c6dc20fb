import { useMemo } from "preact/hooks";
import { exact } from "../../../../core/units.ts";
import type { MirrorReport } from "../../../../mirror/report/shape.ts";
import type { MirrorDay } from "../../../api.ts";
import { Chart } from "../../components/chart.tsx";
import type { Layer } from "../../components/chart-stack.ts";
import { Swatch } from "../../components/chart-swatch.tsx";
import { useFrame } from "../../frame.tsx";
import { binWords, ownZone } from "../usage/usage-labels.ts";
import { UsageNumbers } from "../usage/usage-numbers.tsx";
import { DAY_VERDICTS, type DayVerdict, daysOf, layersOfDays } from "./days.ts";

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
  const { t, language, clock } = useFrame();
  const bins = useMemo(() => daysOf(days, clock()), [days, clock]);
  const layers = useMemo(() => layersOfDays(days, bins), [days, bins]);
  const words = useMemo(() => binWords(bins, "day", language, ownZone()), [bins, language]);
  const nameOf = ({ name }: Layer) => t(`bill.day.${verdictOf(name)}`);
  return (
    <div class="body stack">
      {gateway === null ? null : <h3>{gateway}</h3>}
      {layers.length === 0 ? (
        <p class="muted">{t("bill.time.empty")}</p>
      ) : (
        <>
          <Chart
            count={bins.length}
            layers={layers}
            chosen={null}
            label={t("bill.time.label")}
            tick={words.tick}
            title={words.title}
            amount={exact}
            nameOf={nameOf}
            paint={paintOf}
            least={LEAST}
            total={t("bill.time.total")}
            onChoose={null}
          />
          <ul class="legend">
            {layers.map((layer) => (
              <li key={layer.name}>
                <Swatch paint={paintOf(layer)} /> {nameOf(layer)} {exact(layer.total)}
              </li>
            ))}
          </ul>
          <UsageNumbers
            layers={layers}
            count={bins.length}
            title={words.title}
            amount={exact}
            nameOf={nameOf}
          />
        </>
      )}
    </div>
  );
}

function verdictOf(name: string | null): DayVerdict {
  return DAY_VERDICTS.find((verdict) => verdict === name) ?? "other";
}

function paintOf({ name }: Layer): string {
  return `--verdict-${verdictOf(name).replace("_", "-")}`;
}
