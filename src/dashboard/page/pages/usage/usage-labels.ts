import { costInWords, exact } from "../../../../core/units.ts";
import { short } from "../../../../usage/reports/format.ts";
import type { UsageSeries } from "../../../api.ts";
import type { Language, Translate } from "../../messages/messages.ts";
import type { BinSize } from "./usage-period.ts";
import type { Dimension, Measure } from "./usage-view.ts";

export function nameInWords(name: string | null, by: Dimension, t: Translate): string {
  return name === null || name === "" ? t(`usage.nameless.${by}`) : name;
}

/** The second number is how many requests the value lacks, because their cost is unknown. */
export function amountIn(measure: Measure): (value: number, unknown?: number) => string {
  return measure === "money" ? costInWords : measure === "tokens" ? short : exact;
}

export function valuesIn(series: UsageSeries, measure: Measure): readonly number[] {
  if (measure === "money") return series.cost_microdollars;
  return measure === "tokens" ? series.tokens : series.requests;
}

/** How bins are called: below the axis, and where there is room to say it all. */
export interface BinWords {
  readonly tick: (bar: number) => string;
  readonly title: (bar: number) => string;
}

export function binWords(bins: readonly number[], bin: BinSize, language: Language, zone: string): BinWords {
  const format = (options: Intl.DateTimeFormatOptions) => formatIn(language, zone, options);
  const month = format({ year: "numeric", month: "short" });
  const day = format({ month: "short", day: "numeric" });
  const clock = format({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const wholeMonth = format({ year: "numeric", month: "long" });
  const wholeDay = format({ weekday: "short", year: "numeric", month: "short", day: "numeric" });
  const offset = format({
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    timeZoneName: "shortOffset",
  });
  // For a single day, only the hours are shown.
  const oneDay = new Set([bins.at(0), bins.at(-1)].map((at) => day.format(at ?? 0))).size === 1;
  // When the clocks go back, one hour occurs twice. Its offset distinguishes the two.
  const isTwice = (bar: number) =>
    [bins[bar - 1], bins[bar + 1]].some(
      (at) => at !== undefined && clock.format(at) === clock.format(bins[bar] ?? 0),
    );
  return {
    tick(bar) {
      const at = bins[bar] ?? 0;
      if (bin === "month") return month.format(at);
      if (bin === "day") return day.format(at);
      const hour = clock.format(at);
      return hour.startsWith("00") && !oneDay ? day.format(at) : hour;
    },
    title(bar) {
      const at = bins[bar] ?? 0;
      if (bin === "month") return wholeMonth.format(at);
      if (bin === "day") return wholeDay.format(at);
      return `${wholeDay.format(at)}, ${(isTwice(bar) ? offset : clock).format(at)}`;
    },
  };
}

/** A zone that this browser does not know is read as its own. */
function formatIn(
  language: Language,
  zone: string,
  options: Intl.DateTimeFormatOptions,
): Intl.DateTimeFormat {
  try {
    return new Intl.DateTimeFormat(language, { ...options, timeZone: zone });
  } catch {
    return new Intl.DateTimeFormat(language, options);
  }
}

export function ownZone(): string {
  return new Intl.DateTimeFormat().resolvedOptions().timeZone;
}
