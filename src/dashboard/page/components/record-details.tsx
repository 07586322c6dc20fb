import type { ComponentChildren } from "preact";
import { dollars, exact } from "../../../usage/reports/format.ts";
import type { ShownRecord } from "../../api.ts";
import { useFrame } from "../frame.tsx";
import { isFree } from "./record-row.tsx";

type Pair = readonly [name: string, value: ComponentChildren];

/** Tokens, money, and where it came from and went to. */
export function RecordDetails({ record }: { readonly record: ShownRecord }) {
  const { t } = useFrame();
  // Unknown is not zero, and where nothing is billed there is nothing to know.
  const none = record.end === "refused" || isFree(record.method, record.endpoint) ? "–" : "?";
  const tokens = (count: number | null) => (count === null ? none : exact(count));
  const money = (microdollars: number | null) => (microdollars === null ? none : dollars(microdollars));
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
        ]}
      />
      <Pairs
        title={t("record.ids")}
        pairs={[
          [t("record.id"), <code key="id">{record.id}</code>],
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
