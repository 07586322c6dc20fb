import { Choice } from "../../components/chart-choice.tsx";
import { useFrame } from "../../frame.tsx";
import { type BinSize, binsFor, datesOf, isDate, PRESETS, type Span, shifted } from "./usage-period.ts";
import { DIMENSIONS, MEASURES, type View, withBin, withPeriod } from "./usage-view.ts";

interface ControlsProps {
  readonly view: View;
  readonly span: Span;
  readonly bin: BinSize;
  readonly now: number;
  readonly onView: (view: View) => void;
}

/** Which period, and how it is cut, stacked and measured. */
export function UsageControls({ view, span, bin, now, onView }: ControlsProps) {
  const { t } = useFrame();
  return (
    <div class="usage-controls">
      <Choice
        label={t("usage.period")}
        options={PRESETS}
        chosen={view.period.kind === "custom" ? null : view.period.kind}
        nameOf={(kind) => t(`usage.period.${kind}`)}
        onChoose={(kind) => onView(withPeriod(view, { kind }))}
      />
      <Dates view={view} span={span} now={now} onView={onView} />
      <Choice
        label={t("usage.measure")}
        options={MEASURES}
        chosen={view.measure}
        nameOf={(measure) => t(`usage.measure.${measure}`)}
        onChoose={(measure) => onView({ ...view, measure })}
      />
      <Choice
        label={t("usage.by")}
        shown
        options={DIMENSIONS}
        chosen={view.by}
        nameOf={(by) => t(`usage.by.${by}`)}
        onChoose={(by) => onView({ ...view, by })}
      />
      <Choice
        label={t("usage.bin")}
        shown
        options={binsFor(span)}
        chosen={bin}
        nameOf={(each) => t(`usage.bin.${each}`)}
        onChoose={(each) => onView(withBin(view, each))}
      />
    </div>
  );
}

function Dates({ view, span, now, onView }: Omit<ControlsProps, "bin">) {
  const { t } = useFrame();
  const { from, to } = datesOf(span);
  const choose = (dates: { from: string; to: string }) => {
    // While a date is typed it is none yet.
    if (isDate(dates.from) && isDate(dates.to)) onView(withPeriod(view, { kind: "custom", ...dates }));
  };
  return (
    <div class="usage-dates">
      <button
        type="button"
        class="plain"
        aria-label={t("usage.period.earlier")}
        title={t("usage.period.earlier")}
        onClick={() => onView(withPeriod(view, shifted(span, -1)))}
      >
        ←
      </button>
      <label>
        <span class="visually-hidden">{t("usage.period.from")}</span>
        <input
          type="date"
          value={from}
          max={to}
          onChange={(event) => choose({ from: event.currentTarget.value, to })}
        />
      </label>
      <span aria-hidden="true">–</span>
      <label>
        <span class="visually-hidden">{t("usage.period.to")}</span>
        <input
          type="date"
          value={to}
          min={from}
          onChange={(event) => choose({ from, to: event.currentTarget.value })}
        />
      </label>
      <button
        type="button"
        class="plain"
        aria-label={t("usage.period.later")}
        title={t("usage.period.later")}
        disabled={span.until > now}
        onClick={() => onView(withPeriod(view, shifted(span, 1)))}
      >
        →
      </button>
    </div>
  );
}
