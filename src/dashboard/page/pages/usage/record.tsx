import { duration, exact } from "../../../../core/units.ts";
import type { RecordAnswer, ShownRecord } from "../../../api.ts";
import { factorInWords, verdictInWords } from "../../components/compared.ts";
import { Dialog } from "../../components/dialog.tsx";
import { FactsTable } from "../../components/facts-table.tsx";
import { NotLoaded } from "../../components/not-loaded.tsx";
import { type Pair, Pairs } from "../../components/pairs.tsx";
import { Text } from "../../components/text.tsx";
import { clockInWords, dayOf, momentInWords } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import { causeMessage, refusalAdvice } from "../../refusal-advice.ts";
import { useAnswer } from "../../use-answer.ts";
import { changed, hrefTo, type View, withFilter } from "./view.ts";
import { costOf, isFree, nameInWords, outcomeInWords, outcomeOf, sinceBegin } from "./words.ts";

interface OpenRecordProps {
  readonly id: string;
  readonly view: View;
  readonly onClose: () => void;
}

/** One record with everything that is known about it. */
export function OpenRecord({ id, view, onClose }: OpenRecordProps) {
  const { t, client } = useFrame();
  const asked = useAnswer((signal) => client.record(id, signal), [id]);
  // While another one is fetched, the one before must not pass for it.
  const answer = asked.value?.record.id === id ? asked.value : null;
  return (
    <Dialog
      title={answer === null ? t("record.title") : titleOf(answer.record, t("usage.nameless.tool"))}
      onClose={onClose}
    >
      {answer !== null ? (
        <Details answer={answer} view={view} />
      ) : asked.busy ? (
        <p class="muted">{t("frame.loading")}</p>
      ) : (
        <NotLoaded asked={asked} />
      )}
    </Dialog>
  );
}

function titleOf({ tool, model, model_answered: answered }: ShownRecord, noTool: string): string {
  return [tool ?? noTool, model ?? answered].filter((part) => part !== null).join(" · ");
}

function Details({ answer, view }: { readonly answer: RecordAnswer; readonly view: View }) {
  const { t, language } = useFrame();
  const { record, attempts, compared } = answer;
  return (
    <>
      <p class="row">
        <strong class="outcome" data-outcome={outcomeOf(record)}>
          {outcomeInWords(record, t)}
        </strong>
        <time class="muted" dateTime={new Date(record.started_at).toISOString()}>
          {momentInWords(record.started_at, language)}
        </time>
      </p>
      <Why record={record} />
      <Facts record={record} view={view} />
      {attempts.length < 2 ? null : (
        <section>
          <h3>{t("record.attempts")}</h3>
          <ol class="attempts">
            {attempts.map((attempt) => (
              <li key={attempt.id}>
                <a
                  href={hrefTo(changed(view, { record: attempt.id }))}
                  aria-current={attempt.id === record.id ? "true" : undefined}
                >
                  {dayOf(attempt.started_at)} {clockInWords(attempt.started_at)}
                </a>{" "}
                {outcomeInWords(attempt, t)}
              </li>
            ))}
          </ol>
        </section>
      )}
      <section>
        <h3>{t("record.console")}</h3>
        {compared === null ? (
          <p class="muted">{t("record.console.none")}</p>
        ) : (
          <>
            <p>{t("record.verdict", { verdict: verdictInWords(compared, t), reason: compared.reason })}</p>
            {compared.row === null ? null : <FactsTable compared={compared} />}
          </>
        )}
      </section>
    </>
  );
}

/** Why it did not work, and what to do. Nothing for a request that did. */
function Why({ record }: { readonly record: ShownRecord }) {
  const { t } = useFrame();
  const outcome = outcomeOf(record);
  if (outcome === null || outcome === "complete") return null;
  // null: a code of a newer daemon, of which there is no more to say.
  const advice = record.refusal === null ? null : refusalAdvice(record);
  const cause = causeMessage(record);
  return (
    <div class="record-why">
      {record.refusal === null ? null : <p>{advice === null ? record.refusal : t(advice.words)}</p>}
      {cause !== null ? (
        <p>{t(cause)}</p>
      ) : record.refusal === null && outcome !== "refused" ? (
        <p>{t(`record.why.${outcome}`)}</p>
      ) : null}
      {advice !== null && advice.next !== null ? (
        <p class="next">
          <Text id={advice.next} values={advice.values} />
        </p>
      ) : null}
    </div>
  );
}

function Facts({ record, view }: { readonly record: ShownRecord; readonly view: View }) {
  const { t } = useFrame();
  const tokens = (count: number | null) => (count !== null ? exact(count) : isFree(record) ? "–" : "?");
  const only = (by: "session" | "project" | "machine" | "group" | "key") => (
    <a href={hrefTo({ ...withFilter(view, by, record[by] ?? ""), record: null })}>
      {nameInWords(record[by], by, t)}
    </a>
  );
  const some = (name: string, value: string | number | null): Pair[] =>
    value === null || value === "" ? [] : [[name, value]];
  const from = isFree(record) ? "free" : record.tokens_from;
  const answered = record.model_answered === record.model ? null : record.model_answered;
  return (
    <div class="record-facts">
      <Group
        title={t("record.timing")}
        pairs={[
          ...(record.waited_ms === 0 ? [] : [[t("record.waited"), duration(record.waited_ms)] as Pair]),
          [t("record.first-byte"), sinceBegin(record, record.first_byte_at)],
          [t("record.took"), sinceBegin(record, record.ended_at)],
        ]}
      />
      <Group
        title={t("record.tokens")}
        note={t(`record.tokens-from.${from}`)}
        pairs={[
          [t("record.input"), tokens(record.input_tokens)],
          [t("record.cache-read"), tokens(record.cache_read_tokens)],
          [t("record.cache-write"), tokens(record.cache_write_tokens)],
          [t("record.output"), tokens(record.output_tokens)],
          [t("record.reasoning"), tokens(record.reasoning_tokens)],
        ]}
      />
      <Group
        title={t("record.money")}
        note={pricing(record, t)}
        pairs={[
          [t("record.list"), costOf(record, record.list_microdollars)],
          [t("record.multiplier"), factorInWords(record.multiplier)],
          [t("record.cost"), costOf(record, record.cost_microdollars)],
          [t("record.billed"), costOf(record, record.billed_microdollars)],
        ]}
      />
      <Group
        title={t("record.sender")}
        pairs={[
          [t("usage.by.session"), only("session")],
          [t("usage.by.project"), only("project")],
          ...some(t("record.branch"), record.branch),
          [t("usage.by.machine"), only("machine")],
          ...some(t("record.token"), record.token),
          ...some(t("record.process"), record.process),
          ...some(t("record.user-agent"), record.user_agent),
        ]}
      />
      <Group
        title={t("record.request")}
        pairs={[
          [t("record.endpoint"), `${record.method} ${record.endpoint}`],
          ...some(t("record.model"), record.model),
          ...some(t("record.model-answered"), answered),
          ...some(t("record.gateway"), record.gateway),
          [t("usage.by.group"), only("group")],
          [t("usage.by.key"), only("key")],
          ...some(
            t("record.stream"),
            record.stream === null ? null : t(record.stream ? "record.yes" : "record.no"),
          ),
          ...some(t("record.status"), record.status),
          ...some(t("record.refusal"), record.refusal),
          ...some(
            t("record.cause"),
            [record.cause, record.cause_detail].filter((one) => one !== null).join(", "),
          ),
          [t("record.bytes"), `${exact(record.bytes_in)}, ${exact(record.bytes_out)}`],
        ]}
      />
      <Group
        title={t("record.ids")}
        pairs={[
          [t("record.id"), <code key="id">{record.id}</code>],
          ...(record.last_id === null
            ? []
            : [[t("record.last-id"), <code key="last">{record.last_id}</code>] as Pair]),
          ...Object.entries(record.gateway_ids).map(
            ([name, id]): Pair => [name, <code key={name}>{id}</code>],
          ),
        ]}
      />
    </div>
  );
}

/** How its cost was found, or why it was not. */
function pricing(record: ShownRecord, t: ReturnType<typeof useFrame>["t"]): string {
  if (isFree(record)) return t("record.priced.free");
  if (record.cost_microdollars !== null) return t("record.priced.list");
  return t(record.tokens_from === "none" ? "record.priced.no-tokens" : "record.priced.no-price");
}

interface GroupProps {
  readonly title: string;
  readonly note?: string;
  readonly pairs: readonly Pair[];
}

function Group({ title, note, pairs }: GroupProps) {
  return (
    <section>
      <h3>
        {title} {note === undefined ? null : <small class="muted">{note}</small>}
      </h3>
      <Pairs pairs={pairs} />
    </section>
  );
}
