import { useEffect, useId, useRef } from "preact/hooks";
import type { RecordAnswer, RefusalAdvice, ShownRecord } from "../../api.ts";
import { momentInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { refusalAdvice } from "../refusal-advice.ts";
import { useAnswer } from "../use-answer.ts";
import { RecordDetails } from "./record-details.tsx";
import { FactsTable } from "./record-facts-table.tsx";
import { endInWords } from "./record-row.tsx";
import { RecordTimeline } from "./record-timeline-bar.tsx";
import { verdictInWords } from "./record-verdict.ts";
import { Text } from "./text.tsx";

interface PanelProps {
  readonly id: string;
  readonly onClose: () => void;
}

/** One record beside the list: how its time went, what it used, under which ids, and what the console says of it. */
export function RecordPanel({ id, onClose }: PanelProps) {
  const { t, client } = useFrame();
  const { value, failure, busy, again } = useAnswer((signal) => client.record(id, signal), [id]);
  const heading = useRef<HTMLHeadingElement>(null);
  const label = useId();
  useEffect(() => heading.current?.focus(), [id]);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === "Escape") onClose();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, [onClose]);
  // While another one is fetched, the one before must not pass for it.
  const answer = value?.record.id === id ? value : null;
  return (
    <aside class="record-panel" aria-labelledby={label}>
      <header>
        <h2 id={label} ref={heading} tabIndex={-1}>
          {answer === null ? t("record.title") : titleOf(answer, t("usage.nameless.tool"))}
        </h2>
        <button type="button" class="plain" onClick={onClose}>
          {t("frame.close")}
        </button>
      </header>
      {failure === null || answer !== null ? null : (
        <div class="body stack" role="alert">
          <p>{t("record.failed", { why: failure })}</p>
          <button type="button" class="plain" onClick={again}>
            {t("frame.again")}
          </button>
        </div>
      )}
      {answer === null ? busy ? <p class="empty">{t("frame.loading")}</p> : null : <Opened answer={answer} />}
    </aside>
  );
}

function titleOf({ record }: RecordAnswer, nobody: string): string {
  const model = record.model ?? record.model_answered;
  return [record.tool ?? nobody, ...(model === null ? [] : [model])].join(" · ");
}

function Opened({ answer }: { readonly answer: RecordAnswer }) {
  const { t, language } = useFrame();
  const { record, refusal, compared } = answer;
  return (
    <div class="body stack">
      <p class="row">
        <span class="record-end" data-end={record.end ?? "running"}>
          {endInWords(record, t)}
        </span>
        <time class="muted" dateTime={new Date(record.started_at).toISOString()}>
          {momentInWords(record.started_at, language)}
        </time>
      </p>
      {refusal === null ? null : <Refusal record={record} refusal={refusal} />}
      <RecordTimeline record={record} />
      <RecordDetails record={record} />
      <section>
        <h3>{t("record.console")}</h3>
        {compared === null ? (
          <p class="muted">{t("record.console.none")}</p>
        ) : (
          <>
            <p class="small">
              {t("record.verdict", { verdict: verdictInWords(compared, t), reason: compared.reason })}
            </p>
            {compared.row === null ? null : <FactsTable compared={compared} />}
          </>
        )}
      </section>
    </div>
  );
}

interface RefusalProps {
  readonly record: ShownRecord;
  readonly refusal: RefusalAdvice;
}

/** In the reader's language, or in the daemon's words where it is newer than this page. */
function Refusal({ record, refusal }: RefusalProps) {
  const { t } = useFrame();
  const advice = refusalAdvice(record);
  return (
    <div class="record-refusal">
      <p>{advice === null ? refusal.words : t(advice.words)}</p>
      {advice === null && refusal.next !== null ? <p class="next">{refusal.next}</p> : null}
      {advice === null || advice.next === null ? null : (
        <p class="next">
          <Text id={advice.next} values={advice.values} />
        </p>
      )}
    </div>
  );
}
