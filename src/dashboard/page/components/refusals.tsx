import type { RefusedRecord } from "../../api.ts";
import { momentInWords, timeInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { refusalAdvice } from "../refusal-advice.ts";
import { refusedRuns } from "../refused-runs.ts";
import { useTime } from "../use-time.ts";
import { Text } from "./text.tsx";

export function Refusals({ records }: { readonly records: readonly RefusedRecord[] }) {
  const { t, language } = useFrame();
  const time = useTime(30_000);
  return (
    <section class="panel refusals" aria-labelledby="refusals">
      <header>
        <h2 id="refusals">{t("overview.refusals")}</h2>
      </header>
      {records.length === 0 ? <p class="empty">{t("overview.refusals.empty")}</p> : null}
      <ol>
        {refusedRuns(records).map(({ record, times }) => (
          <li key={record.id}>
            <p>
              <b>{record.tool ?? t("overview.stranger")}</b> <RefusalText record={record} />
            </p>
            <RefusalNext record={record} />
            <p class="muted small">
              <time
                dateTime={new Date(record.started_at).toISOString()}
                title={momentInWords(record.started_at, language)}
              >
                {timeInWords(record.started_at, time)}
              </time>
              {times > 1 ? ` · ${t("overview.refusals.times", { n: times })}` : ""}
              {record.model === null ? "" : ` · ${record.model}`}
              {record.endpoint === "" ? "" : ` · ${record.endpoint}`}
            </p>
          </li>
        ))}
      </ol>
    </section>
  );
}

function RefusalText({ record }: { readonly record: RefusedRecord }) {
  const { t } = useFrame();
  const advice = refusalAdvice(record);
  return <>{advice === null ? record.words : t(advice.words)}</>;
}

function RefusalNext({ record }: { readonly record: RefusedRecord }) {
  const advice = refusalAdvice(record);
  if (advice === null) return record.next === null ? null : <p class="next">{record.next}</p>;
  if (advice.next === null) return null;
  return (
    <p class="next">
      <Text id={advice.next} values={advice.values} />
    </p>
  );
}
