import { useMemo } from "preact/hooks";
import { Answered, useAnswer } from "../answer.tsx";
import { type PageProps, useFrame, useTime } from "../frame.tsx";
import { Controls, Filters } from "./usage/controls.tsx";
import { binFor, type Span, spanBefore, spanOf } from "./usage/period.ts";
import { OpenRecord, RecordList } from "./usage/records.tsx";
import { Sums } from "./usage/sums.tsx";
import { type Change, changed, selectionQuery, type View, viewOf } from "./usage/view.ts";

/** What was used, by whom and for what; and every single record of it. */
export function UsagePage({ state, query, setQuery }: PageProps) {
  const { t } = useFrame();
  const view = useMemo(() => viewOf(query), [query]);
  const now = useTime();
  const span = spanOf(view.period, now);
  const onChange = (change: Change) => setQuery(changed(view, change));
  // Another number once the log has another request. A period that is over has none.
  const fresh = now < span.until ? (state.now.today?.total.requests ?? 0) : 0;
  const asked = useChart(view, span, fresh);
  // It is over, so it does not change any more.
  const before = useChart(view, spanBefore(view.period, span, now), 0);
  return (
    <>
      <h1>{t("usage.title")}</h1>
      <Controls view={view} span={span} onChange={onChange} />
      <Filters view={view} />
      <div class="usage-sums" aria-busy={asked.busy}>
        <Answered asked={asked}>
          {(chart) => <Sums chart={chart} before={before.value} view={view} onChange={onChange} />}
        </Answered>
      </div>
      <RecordList view={view} span={view.bar ?? span} fresh={fresh} />
      {view.record === null ? null : (
        <OpenRecord
          key={view.record}
          id={view.record}
          view={view}
          onClose={() => onChange({ record: null })}
        />
      )}
    </>
  );
}

/** @param span null: nothing is asked. */
function useChart(view: View, span: Span | null, fresh: number) {
  const query = span === null ? new URLSearchParams() : selectionQuery(view, span);
  if (span !== null) {
    query.set("bin", binFor(span, view.bin));
    query.set("by", view.by);
  }
  return useAnswer(span === null ? null : "/api/usage", { query, fresh });
}
