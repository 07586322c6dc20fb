import { useState } from "preact/hooks";
import { duration, exact, localTime } from "../../../../core/units.ts";
import { short } from "../../../../usage/reports/format.ts";
import type { ShownRecord } from "../../../api.ts";
import type { RecordAnswer } from "../../../routes.ts";
import type { RecordsPage } from "../../../usage-api.ts";
import { Answered, useAnswer } from "../../answer.tsx";
import { nameInWords } from "../../components/chart-layers.ts";
import { factorInWords, verdictInWords, wholeInput } from "../../components/compared.ts";
import { Dialog } from "../../components/dialog.tsx";
import { FactsTable } from "../../components/facts-table.tsx";
import { type Pair, Pairs, Panel } from "../../components/panel.tsx";
import { type Column, column, numberColumn, Table } from "../../components/table.tsx";
import { RefusalText } from "../../components/text.tsx";
import { clockInWords, dayOfYear, joined, orDash } from "../../format.ts";
import { useFrame, useProblem } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";
import { causeMessage } from "../../refusals.ts";
import { reasonInWords } from "../../sentences.ts";
import { datesOf, type Span } from "./period.ts";
import { type Change, hrefTo, selectionQuery, type View } from "./view.ts";
import { costOf, isFree, outcomeInWords, outcomeOf, sinceBegin } from "./words.ts";

interface ListProps {
  readonly view: View;
  /** Of the chosen bar, or the whole period. */
  readonly span: Span;
  /** Another number when there are new records. */
  readonly fresh: number;
}

/** The single records of what the chart shows, page by page. */
export function RecordList({ view, span, fresh }: ListProps) {
  const { t } = useFrame();
  const selection = selectionQuery(view, span);
  const { cursor } = view;
  const query = new URLSearchParams(selection);
  if (cursor !== null) query.set(...cursor);
  // Only the newest page changes.
  const asked = useAnswer("/api/records", { query, fresh: cursor === null ? fresh : 0 });
  const { from, to } = datesOf(span);
  return (
    <Panel
      name="records"
      title={t("records.title")}
      aside={<SaveButton query={selection.toString()} name={`keybearer-${from}-${to}.csv`} />}
    >
      <div aria-busy={asked.busy}>
        <Answered asked={asked}>
          {(page) => (
            <>
              <Table
                caption={t("records.title")}
                columns={columnsFor(t)}
                rows={page.records}
                keyOf={({ id }) => id}
                hrefOf={({ id }) => hrefTo(view, { record: id })}
                empty={t("records.empty")}
              />
              <PageLinks view={view} page={page} />
            </>
          )}
        </Answered>
      </div>
    </Panel>
  );
}

function PageLinks({ view, page: { newer, older } }: { readonly view: View; readonly page: RecordsPage }) {
  const { t } = useFrame();
  if (newer === null && older === null) return null;
  const link = (text: string, change: Change) => <a href={hrefTo(view, change)}>{text}</a>;
  return (
    <nav class="row body" aria-label={t("records.pages")}>
      {newer === null ? null : link(t("records.newer"), { after: newer, before: null })}
      {older === null ? null : link(t("records.older"), { before: older, after: null })}
      {view.cursor === null ? null : link(t("records.newest"), { before: null, after: null })}
    </nav>
  );
}

function columnsFor(t: Translate): readonly Column<ShownRecord>[] {
  return [
    column(t("mirror.fact.began"), ({ started_at: at }) => `${dayOfYear(at)} ${clockInWords(at)}`),
    column(t("word.tool"), ({ tool }) => nameInWords(tool, "tool", t)),
    column(t("word.model"), ({ model, model_answered: answered }) => model ?? answered ?? "–"),
    column(t("word.outcome"), (record) => <Outcome record={record} />),
    numberColumn(t("records.column.input"), (record) => orDash(wholeInput(record), short)),
    numberColumn(t("records.column.output"), ({ output_tokens: tokens }) => orDash(tokens, short)),
    numberColumn(t("word.first-byte"), (record) => sinceBegin(record, record.first_byte_at)),
    numberColumn(t("mirror.fact.took"), (record) => sinceBegin(record, record.ended_at)),
    numberColumn(t("word.cost"), (record) => costOf(record, record.cost_microdollars)),
  ];
}

function Outcome({ record }: { readonly record: ShownRecord }) {
  const { t } = useFrame();
  return <span data-state={outcomeOf(record)}>{outcomeInWords(record, t)}</span>;
}

/** Fetched with the session's header, which a plain link could not send, and then saved from memory. */
function SaveButton({ query, name }: { readonly query: string; readonly name: string }) {
  const { t, client } = useFrame();
  const problemOf = useProblem();
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const save = async () => {
    setBusy(true);
    setProblem(null);
    try {
      saveAs(await client.csv(query), name);
    } catch (error) {
      setProblem(problemOf(error));
    }
    setBusy(false);
  };
  return (
    <>
      <button type="button" disabled={isBusy} onClick={() => void save()}>
        {t(isBusy ? "records.csv.busy" : "records.csv")}
      </button>
      {problem === null ? null : <span role="alert">{t("frame.failed", { problem })}</span>}
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

interface OpenRecordProps {
  readonly id: string;
  readonly view: View;
  readonly onClose: () => void;
}

/** One record with everything that is known about it. */
export function OpenRecord({ id, view, onClose }: OpenRecordProps) {
  const { t } = useFrame();
  const asked = useAnswer(`/api/records/${encodeURIComponent(id)}`);
  const record = asked.value?.record ?? null;
  const title =
    record === null
      ? [t("record.title")]
      : [record.tool ?? t("usage.nameless.tool"), record.model ?? record.model_answered];
  return (
    <Dialog title={title.filter((part) => part !== null).join(" · ")} onClose={onClose}>
      <Answered asked={asked}>{(answer) => <Details answer={answer} view={view} />}</Answered>
    </Dialog>
  );
}

function Details({ answer, view }: { readonly answer: RecordAnswer; readonly view: View }) {
  const { t } = useFrame();
  const { record, attempts, compared } = answer;
  return (
    <>
      <p class="row">
        <strong>
          <Outcome record={record} />
        </strong>
        <span class="muted">{localTime(record.started_at)}</span>
      </p>
      <Why record={record} />
      <Facts record={record} view={view} />
      {attempts.length < 2 ? null : (
        <section>
          <h3>{t("record.attempts")}</h3>
          <ol>
            {attempts.map((attempt) => (
              <li key={attempt.id}>
                <a
                  href={hrefTo(view, { record: attempt.id })}
                  aria-current={attempt.id === record.id ? "true" : undefined}
                >
                  {localTime(attempt.started_at)}
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
            <p>
              {t("record.verdict", {
                verdict: verdictInWords(compared, t),
                reason: reasonInWords(compared.reason, t),
              })}
            </p>
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
  const cause = causeMessage(record);
  const isUnexplained = cause === null && record.refusal === null && outcome !== "refused";
  return (
    <div class="box stack" data-kind="bad">
      {record.refusal === null ? null : <RefusalText record={record} />}
      {cause === null ? null : <p>{t(cause)}</p>}
      {isUnexplained ? <p>{t(`record.why.${outcome}`)}</p> : null}
    </div>
  );
}

/** Everything that is known about a record. */
function Facts({ record, view }: { readonly record: ShownRecord; readonly view: View }) {
  const { t } = useFrame();
  const { stream, cause, cause_detail: detail } = record;
  const tokens = (count: number | null) => (count !== null ? exact(count) : isFree(record) ? "–" : "?");
  const only = (by: "session" | "project" | "machine" | "group" | "key"): Pair => [
    t(`usage.by.${by}`),
    <a href={hrefTo(view, { [by]: record[by] ?? "" })}>{nameInWords(record[by], by, t)}</a>,
  ];
  const code = (id: string | null) => (id === null ? null : <code>{id}</code>);
  const group = (title: string, note: string, pairs: readonly Pair[]) => (
    <section>
      <h3>
        {title} <small class="muted">{note}</small>
      </h3>
      <Pairs pairs={pairs} />
    </section>
  );
  return (
    <div class="grid record-facts">
      {group(t("record.timing"), "", [
        [t("record.waited"), record.waited_ms === 0 ? null : duration(record.waited_ms)],
        [t("record.first-byte"), sinceBegin(record, record.first_byte_at)],
        [t("record.took"), sinceBegin(record, record.ended_at)],
      ])}
      {group(t("limit.tokens"), t(`record.tokens-from.${isFree(record) ? "free" : record.tokens_from}`), [
        [t("mirror.fact.input"), tokens(record.input_tokens)],
        [t("record.cache-read"), tokens(record.cache_read_tokens)],
        [t("record.cache-write"), tokens(record.cache_write_tokens)],
        [t("mirror.fact.output"), tokens(record.output_tokens)],
        [t("record.reasoning"), tokens(record.reasoning_tokens)],
      ])}
      {group(t("limit.spend"), pricing(record, t), [
        [t("mirror.fact.list-price"), costOf(record, record.list_microdollars)],
        [t("record.multiplier"), factorInWords(record.multiplier)],
        [t("word.cost"), costOf(record, record.cost_microdollars)],
        [t("record.billed"), costOf(record, record.billed_microdollars)],
      ])}
      {group(t("record.sender"), "", [
        only("session"),
        only("project"),
        [t("record.branch"), record.branch],
        only("machine"),
        [t("record.token"), record.token],
        [t("record.process"), record.process],
        [t("mirror.fact.user-agent"), record.user_agent],
      ])}
      {group(t("record.request"), "", [
        [t("mirror.fact.endpoint"), `${record.method} ${record.endpoint}`],
        [t("word.model"), record.model],
        [t("record.model-answered"), record.model_answered === record.model ? null : record.model_answered],
        [t("word.gateway"), record.gateway],
        only("group"),
        only("key"),
        [t("mirror.fact.stream"), stream === null ? null : t(stream ? "record.yes" : "record.no")],
        [t("record.status"), record.status],
        [t("record.refusal"), record.refusal],
        [t("record.cause"), joined([cause, detail], t)],
        [t("record.bytes"), `${exact(record.bytes_in)}, ${exact(record.bytes_out)}`],
      ])}
      {group(t("record.ids"), "", [
        [t("record.id"), code(record.id)],
        [t("record.last-id"), code(record.last_id)],
        ...Object.entries(record.gateway_ids).map(([name, id]): Pair => [name, code(id)]),
      ])}
    </div>
  );
}

/** How its cost was found, or why it was not. */
function pricing(record: ShownRecord, t: Translate): string {
  if (isFree(record)) return t("record.priced.free");
  if (record.cost_microdollars !== null) return t("record.priced.list");
  return t(record.tokens_from === "none" ? "record.priced.no-tokens" : "record.priced.no-price");
}
