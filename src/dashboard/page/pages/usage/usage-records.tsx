import { useState } from "preact/hooks";
import { exact } from "../../../../core/units.ts";
import { RecordList } from "../../components/record-list.tsx";
import { type RecordSource, useRecords } from "../../components/record-source.ts";
import { MOST_ROWS } from "../../components/record-window.ts";
import { useFrame } from "../../frame.tsx";
import { Failed, wordsOf } from "../../live/failed.ts";
import { Chip } from "./usage-chips.tsx";
import type { Span } from "./usage-period.ts";
import { dayName } from "./usage-period.ts";
import { belongs, recordsQuery } from "./usage-query.ts";
import { ENDS, type End, type View, withFilter, withoutFilter } from "./usage-view.ts";

interface RecordsProps {
  readonly view: View;
  /** Of the chosen bar, or the whole period. */
  readonly span: Span;
  readonly onView: (view: View) => void;
}

/** The single records of what the chart shows, or of one of its bars. */
export function UsageRecords({ view, span, onView }: RecordsProps) {
  const { t } = useFrame();
  const query = recordsQuery(view, span).toString();
  const source = useRecords(query, (record) => belongs(record, view.filters, span));
  return (
    <section class="panel" aria-labelledby="records-title">
      <header>
        <h2 id="records-title">
          {t("records.title")}{" "}
          <small class="muted" role="status">
            {countInWords(source, t)}
          </small>
        </h2>
        {view.filters.end === undefined ? null : (
          <Chip
            words={t("usage.filter.end", { name: t(`records.end.${view.filters.end}`) })}
            onRemove={() => onView(withoutFilter(view, "end"))}
          />
        )}
        <EndSelect view={view} onView={onView} />
        <SaveButton query={query} name={`keybearer-${dayName(span.since)}-${dayName(span.until - 1)}.csv`} />
      </header>
      {source.failure === null ? null : (
        <p class="empty" role="alert">
          {t("frame.failed", { why: source.failure })}{" "}
          <button type="button" class="plain" onClick={source.again}>
            {t("frame.again")}
          </button>
        </p>
      )}
      {source.records.length === 0 ? (
        source.failure === null && <p class="empty">{t(source.busy ? "frame.loading" : "records.empty")}</p>
      ) : (
        <RecordList
          key={query}
          source={source}
          open={view.record}
          tight={view.record !== null}
          onOpen={(record) => onView({ ...view, record: record === view.record ? null : record })}
        />
      )}
      {source.records.length < MOST_ROWS ? null : (
        <p class="empty">{t("records.most", { n: exact(MOST_ROWS) })}</p>
      )}
    </section>
  );
}

/** Where the daemon does not count them, those that were fetched are known; where there are no more, they are all. */
function countInWords(source: RecordSource, t: ReturnType<typeof useFrame>["t"]): string {
  const { busy, records, count } = source;
  if (count === null) return t("records.count.many", { n: exact(records.length) });
  return busy && records.length === 0 ? "" : t("records.count", { n: exact(count) });
}

function EndSelect({ view, onView }: Pick<RecordsProps, "view" | "onView">) {
  const { t } = useFrame();
  const choose = (value: string) =>
    onView(value === "" ? withoutFilter(view, "end") : withFilter(view, "end", value));
  return (
    <label>
      <span class="visually-hidden">{t("records.end")}</span>
      <select value={view.filters.end ?? ""} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">{t("records.end.all")}</option>
        {ENDS.map((end: End) => (
          <option key={end} value={end}>
            {t(`records.end.${end}`)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Fetched with the session's header, which a plain link could not send, and then saved from memory. */
function SaveButton({ query, name }: { readonly query: string; readonly name: string }) {
  const { t, client, live } = useFrame();
  const [state, setState] = useState<"idle" | "busy" | { readonly failure: string }>("idle");
  const save = async () => {
    setState("busy");
    try {
      saveAs(await client.csv(new URLSearchParams(query)), name);
      setState("idle");
    } catch (error) {
      if (error instanceof Failed && error.kind === "session") live.sessionOver();
      setState({ failure: wordsOf(error) });
    }
  };
  return (
    <>
      <button type="button" class="plain" disabled={state === "busy"} onClick={() => void save()}>
        {t(state === "busy" ? "records.csv.busy" : "records.csv")}
      </button>
      {typeof state === "string" ? null : (
        <span role="alert">{t("frame.failed", { why: state.failure })}</span>
      )}
    </>
  );
}

function saveAs(file: Blob, name: string): void {
  const address = URL.createObjectURL(file);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // The browser reads it after this turn.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
