import type { ShownRecord } from "../../api.ts";
import { momentInWords, timeInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { refusalAdvice } from "../refusal-advice.ts";
import { refusedGroups } from "../refused-groups.ts";
import { useTime } from "../use-time.ts";
import { Text } from "./text.tsx";

export function Refusals({ records }: { readonly records: readonly ShownRecord[] }) {
  const { t, language } = useFrame();
  const time = useTime(30_000);
  return (
    <section class="panel refusals" aria-labelledby="refusals">
      <header>
        <h2 id="refusals">{t("overview.refusals")}</h2>
      </header>
      {records.length === 0 ? <p class="empty">{t("overview.refusals.empty")}</p> : null}
      <ol>
        {refusedGroups(records).map(({ record, times }) => (
          <li key={record.id}>
            <RefusalText record={record} />
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

/** Of a code of a newer daemon there is no more to say. */
function RefusalText({ record }: { readonly record: ShownRecord }) {
  const { t } = useFrame();
  const advice = refusalAdvice(record);
  const tool = record.tool ?? t("overview.stranger");
  return (
    <>
      <p>
        <b>{tool}</b> {advice === null ? record.refusal : t(advice.words)}
      </p>
      {advice?.next ? (
        <p class="next">
          <Text id={advice.next} values={advice.values} />
        </p>
      ) : null}
    </>
  );
}
