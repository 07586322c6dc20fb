import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { costInWords, duration, exact } from "../../../core/units.ts";
import type { RecordAnswer, RefusalAdvice, ShownRecord } from "../../api.ts";
import { momentInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { refusalAdvice } from "../refusal-advice.ts";
import { useAnswer } from "../use-answer.ts";
import { FactsTable } from "./record-facts-table.tsx";
import { endInWords, isFree } from "./record-row.tsx";
import { barsOf, type Stretch, stretchesOf } from "./record-timeline.ts";
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

function titleOf({ record }: RecordAnswer, noTool: string): string {
  const model = record.model ?? record.model_answered;
  return [record.tool ?? noTool, ...(model === null ? [] : [model])].join(" · ");
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

/** The units of the drawing; the page stretches it. */
const WIDTH = 400;

/** How a request's time went, as one bar and in words. */
function RecordTimeline({ record }: { readonly record: ShownRecord }) {
  const { t, clock } = useFrame();
  const stretches = stretchesOf(record, clock());
  const nameOf = ({ what }: Pick<Stretch, "what">) =>
    t(what === "asked" && record.first_byte_at === null ? "record.asked.failed" : `record.${what}`);
  return (
    <section>
      <h3>{t("record.timeline")}</h3>
      <svg
        class="record-bar"
        viewBox={`0 0 ${WIDTH} 12`}
        preserveAspectRatio="none"
        width="100%"
        height="12"
        aria-hidden="true"
      >
        <rect class="ground" width={WIDTH} height="12" />
        {barsOf(stretches, WIDTH).map(({ what, x, width }) => (
          <rect key={what} class={what} x={x} width={Math.max(0, width - 1)} height="12" />
        ))}
      </svg>
      <dl class="pairs">
        {stretches.map((stretch) => (
          <div key={stretch.what}>
            <dt>
              <svg class="swatch record-bar" viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
                <rect class={stretch.what} width="10" height="10" rx="2" />
              </svg>{" "}
              {nameOf(stretch)}
            </dt>
            <dd>{duration(stretch.to - stretch.from)}</dd>
          </div>
        ))}
        <div>
          <dt>{t("record.took")}</dt>
          <dd>
            {record.ended_at === null
              ? t("record.running")
              : duration(Math.max(0, record.ended_at - record.started_at))}
          </dd>
        </div>
      </dl>
    </section>
  );
}

type Pair = readonly [name: string, value: ComponentChildren];

/** Tokens, money, and where it came from and went to. */
function RecordDetails({ record }: { readonly record: ShownRecord }) {
  const { t } = useFrame();
  // Unknown is not zero, and where nothing is billed there is nothing to know.
  const none = record.end === "refused" || isFree(record.method, record.endpoint) ? "–" : "?";
  const tokens = (count: number | null) => (count === null ? none : exact(count));
  const money = (microdollars: number | null) =>
    microdollars === null && none === "–" ? none : costInWords(microdollars);
  const some = (name: string, value: string | number | null): Pair[] =>
    value === null || value === "" ? [] : [[name, value]];
  const yesNo = (value: boolean | null) => (value === null ? null : t(value ? "record.yes" : "record.no"));
  return (
    <>
      <Pairs
        title={t("record.tokens")}
        note={none === "–" ? t("record.tokens-from.free") : t(`record.tokens-from.${record.tokens_from}`)}
        pairs={[
          [t("record.input"), tokens(record.input_tokens)],
          [t("record.cache-read"), tokens(record.cache_read_tokens)],
          [t("record.cache-write"), tokens(record.cache_write_tokens)],
          [t("record.output"), tokens(record.output_tokens)],
          [t("record.reasoning"), tokens(record.reasoning_tokens)],
        ]}
      />
      <Pairs
        title={t("record.money")}
        pairs={[
          [t("record.list"), money(record.list_microdollars)],
          [t("record.multiplier"), `×${record.multiplier}`],
          [t("record.cost"), money(record.cost_microdollars)],
          [t("record.billed"), money(record.billed_microdollars)],
        ]}
      />
      <Pairs
        title={t("record.request")}
        pairs={[
          [t("record.endpoint"), `${record.method} ${record.endpoint}`],
          ...some(t("record.gateway"), record.gateway),
          ...some(t("record.group"), record.group),
          ...some(t("record.key"), record.key),
          ...some(t("record.model-answered"), record.model_answered),
          ...some(t("record.stream"), yesNo(record.stream)),
          ...some(t("record.status"), record.status),
          ...some(t("record.refusal"), record.refusal),
          ...some(t("record.cause"), record.cause),
          ...some(t("record.cause-detail"), record.cause_detail),
          [t("record.bytes"), `${exact(record.bytes_in)}, ${exact(record.bytes_out)}`],
          ...some(t("record.process"), record.process),
          ...some(t("record.user-agent"), record.user_agent),
          ...some(t("record.machine"), record.machine),
        ]}
      />
      <Pairs
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
    </>
  );
}

interface PairsProps {
  readonly title: string;
  readonly note?: string;
  readonly pairs: readonly Pair[];
}

function Pairs({ title, note, pairs }: PairsProps) {
  return (
    <section>
      <h3>
        {title} {note === undefined ? null : <small class="muted">{note}</small>}
      </h3>
      <dl class="pairs">
        {pairs.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
