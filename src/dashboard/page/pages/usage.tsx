import { useEffect, useMemo, useState } from "preact/hooks";
import type { UsageChart } from "../../api.ts";
import { type PageProps, useFrame } from "../frame.tsx";
import { useAnswer } from "../use-answer.ts";
import { useTime } from "../use-time.ts";
import { Controls, Filters } from "./usage/controls.tsx";
import { binFor, type Span, spanBefore, spanOf } from "./usage/period.ts";
import { OpenRecord } from "./usage/record.tsx";
import { RecordList } from "./usage/records.tsx";
import { Sums } from "./usage/sums.tsx";
import { changed, queryOf, selectionQuery, type View, viewOf } from "./usage/view.ts";

/** What was used, by whom and for what; and every single record of it. */
export function UsagePage({ query, setQuery }: PageProps) {
  const { t } = useFrame();
  const view = useMemo(() => viewOf(query), [query]);
  const now = useTime(30_000);
  const span = spanOf(view.period, now);
  const onView = (next: View) => setQuery(queryOf(next));
  const fresh = useFresh(span);
  const asked = useChart(view, span, fresh);
  // It is over, so it does not change any more.
  const before = useChart(view, spanBefore(view.period, span, now), 0);
  const { value, failure, busy, again } = asked;
  return (
    <>
      <h1>{t("usage.title")}</h1>
      <Controls view={view} span={span} now={now} onView={onView} />
      <Filters view={view} />
      {failure === null ? null : (
        <div class="notice" role="alert">
          <p>
            {t("frame.failed", { why: failure })}{" "}
            <button type="button" class="plain" onClick={again}>
              {t("frame.again")}
            </button>
          </p>
        </div>
      )}
      {value === null ? (
        busy && <p class="panel empty usage-waiting">{t("frame.loading")}</p>
      ) : (
        <div aria-busy={busy}>
          <Sums chart={value} before={before.value} view={view} onView={onView} />
        </div>
      )}
      <RecordList view={view} span={view.bar ?? span} fresh={fresh} />
      {view.record === null ? null : (
        <OpenRecord id={view.record} view={view} onClose={() => onView(changed(view, { record: null }))} />
      )}
    </>
  );
}

/** @param span null: nothing is asked. */
function useChart(view: View, span: Span | null, fresh: number) {
  const { client } = useFrame();
  const query = span === null ? new URLSearchParams() : selectionQuery(view, span);
  if (span !== null) {
    query.set("bin", binFor(span, view.bin));
    query.set("by", view.by);
  }
  const asked = query.toString();
  return useAnswer<UsageChart | null>(
    async (signal) =>
      asked === "" ? null : await client.get("/api/usage", new URLSearchParams(asked), signal),
    [asked],
    fresh,
  );
}

/** The page asks again at most this often. */
const FRESH_MS = 2000;

/** Another number after a request of the period has ended. */
function useFresh({ since, until }: Span): number {
  const { live } = useFrame();
  const [round, setRound] = useState(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | null = null;
    const stop = live.onRecord(({ started_at: at }) => {
      if (timer !== null || at < since || at >= until) return;
      timer = setTimeout(() => {
        timer = null;
        setRound((before) => before + 1);
      }, FRESH_MS);
    });
    return () => {
      stop();
      if (timer !== null) clearTimeout(timer);
    };
  }, [live, since, until]);
  return round;
}
