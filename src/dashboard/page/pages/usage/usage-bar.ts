import type { UsageChart } from "../../../api.ts";
import { framed } from "../../components/chart-calendar.ts";
import type { Language } from "../../messages/messages.ts";
import { binWords, ownZone } from "./usage-labels.ts";
import { type BinSize, binSpan, type Span } from "./usage-period.ts";
import type { View } from "./usage-view.ts";

export interface ChosenBar {
  readonly span: Span;
  readonly words: string;
}

/** The bar that the address names; null: there is no such bar in this period. */
export function barOf(
  { at }: View,
  span: Span,
  bin: BinSize,
  chart: UsageChart | null,
  language: Language,
): ChosenBar | null {
  if (at === null) return null;
  // Before the chart is there, this machine's own calendar is most likely its daemon's too.
  const [known, zone] = chart?.bin === bin ? [chart, chart.zone] : [null, ownZone()];
  const given = { bins: known?.bins ?? [], end: known?.bins_end ?? null };
  const { bins, end } = framed(given, span, bin, zone === ownZone());
  const found = binSpan(bins, at, { since: span.since, until: Math.min(span.until, end) });
  return found === null
    ? null
    : { span: found, words: binWords(bins, bin, language, zone).title(bins.indexOf(at)) };
}
