import { useState } from "preact/hooks";
import { short } from "../../../../usage/reports/format.ts";
import type { ShownRecord } from "../../../api.ts";
import { type Column, Table } from "../../components/table.tsx";
import { clockInWords, dayOf } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import { Failed, wordsOf } from "../../live/failed.ts";
import type { Translate } from "../../messages/messages.ts";
import { useAnswer } from "../../use-answer.ts";
import { datesOf, type Span } from "./period.ts";
import { changed, hrefTo, selectionQuery, type View } from "./view.ts";
import { costOf, nameInWords, outcomeInWords, outcomeOf, sinceBegin } from "./words.ts";

interface ListProps {
  readonly view: View;
  /** Of the chosen bar, or the whole period. */
  readonly span: Span;
  /** Another number when there are new records. */
  readonly fresh: number;
}

const PAGE = "50";

/** The single records of what the chart shows, page by page. */
export function RecordList({ view, span, fresh }: ListProps) {
  const { t, client } = useFrame();
  const selection = selectionQuery(view, span);
  const { cursor } = view;
  const query = new URLSearchParams(selection);
  query.set("limit", PAGE);
  if (cursor !== null) query.set(cursor.to === "older" ? "before" : "after", cursor.id);
  const asked = query.toString();
  // Only the newest page changes.
  const { value, failure, busy } = useAnswer(
    (signal) => client.get("/api/records", new URLSearchParams(asked), signal),
    [asked],
    cursor === null ? fresh : 0,
  );
  const records = value?.records ?? [];
  const { from, to } = datesOf(span);
  return (
    <section class="panel records" aria-labelledby="records-title" aria-busy={busy}>
      <header>
        <h2 id="records-title">{t("records.title")}</h2>
        <SaveButton query={selection.toString()} name={`keybearer-${from}-${to}.csv`} />
      </header>
      {failure === null ? null : (
        <p class="empty" role="alert">
          {t("frame.failed", { why: failure })}
        </p>
      )}
      {records.length === 0 ? (
        failure === null && <p class="empty">{t(busy ? "frame.loading" : "records.empty")}</p>
      ) : (
        <Table
          caption={t("records.title")}
          columns={columnsFor(t)}
          rows={records}
          keyOf={({ id }) => id}
          hrefOf={({ id }) => hrefTo(changed(view, { record: id }))}
        />
      )}
      {value === null || (value.newer === null && value.older === null) ? null : (
        <nav class="row body" aria-label={t("records.pages")}>
          <PageLink
            view={view}
            cursor={value.newer === null ? null : { to: "newer", id: value.newer }}
            text={t("records.newer")}
          />
          <PageLink
            view={view}
            cursor={value.older === null ? null : { to: "older", id: value.older }}
            text={t("records.older")}
          />
          {cursor === null ? null : (
            <a href={hrefTo(changed(view, { cursor: null }))}>{t("records.newest")}</a>
          )}
        </nav>
      )}
    </section>
  );
}

interface PageLinkProps {
  readonly view: View;
  /** null: there is no such page. */
  readonly cursor: View["cursor"];
  readonly text: string;
}

function PageLink({ view, cursor, text }: PageLinkProps) {
  if (cursor === null) return <span class="muted">{text}</span>;
  return <a href={hrefTo(changed(view, { cursor }))}>{text}</a>;
}

function columnsFor(t: Translate): readonly Column<ShownRecord>[] {
  const column = (
    id: "began" | "tool" | "model" | "end" | "input" | "output" | "first-byte" | "took" | "cost",
    cell: Column<ShownRecord>["cell"],
  ): Column<ShownRecord> => ({ id, title: t(`records.column.${id}`), cell });
  const number = (...given: Parameters<typeof column>) => ({ ...column(...given), isNumber: true });
  return [
    column("began", ({ started_at: at }) => `${dayOf(at).slice(5)} ${clockInWords(at)}`),
    column("tool", ({ tool }) => nameInWords(tool, "tool", t)),
    column("model", ({ model, model_answered: answered }) => model ?? answered ?? "–"),
    column("end", (record) => (
      <span class="outcome" data-outcome={outcomeOf(record)}>
        {outcomeInWords(record, t)}
      </span>
    )),
    number("input", (record) => countOf(inputOf(record))),
    number("output", ({ output_tokens: tokens }) => countOf(tokens)),
    number("first-byte", (record) => sinceBegin(record, record.first_byte_at)),
    number("took", (record) => sinceBegin(record, record.ended_at)),
    number("cost", (record) => costOf(record, record.cost_microdollars)),
  ];
}

function inputOf({ input_tokens, cache_read_tokens, cache_write_tokens }: ShownRecord): number | null {
  if (input_tokens === null && cache_read_tokens === null) return null;
  return (input_tokens ?? 0) + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0);
}

/** Unknown is not zero. */
function countOf(tokens: number | null): string {
  return tokens === null ? "–" : short(tokens);
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
