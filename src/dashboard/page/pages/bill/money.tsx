import { costInWords, dollars, exact } from "../../../../core/units.ts";
import type { MirrorReport, ModelFactor, ToolMoney } from "../../../../mirror/report/shape.ts";
import { factorInWords } from "../../components/compared.ts";
import { type Column, Table } from "../../components/table.tsx";
import { Text } from "../../components/text.tsx";
import { useFrame } from "../../frame.tsx";
import { isOtherPrice, kindPrices } from "./state.ts";

type Of<T> = T & { readonly gateway: string };

/** What we reckon against what was charged, and how the operator's prices differ from the list. */
export function CostPanel({ reports }: { readonly reports: readonly MirrorReport[] }) {
  const { t } = useFrame();
  const tools = reports.flatMap(({ gateway, tools: all }) => all.map((one) => ({ ...one, gateway })));
  const models = reports.flatMap(({ gateway, models: all }) => all.map((one) => ({ ...one, gateway })));
  const several = reports.length > 1;
  return (
    <section class="panel" aria-labelledby="bill-money">
      <header>
        <h2 id="bill-money">{t("bill.money")}</h2>
      </header>
      {tools.length === 0 ? (
        <p class="empty">{t("bill.money.empty")}</p>
      ) : (
        <Tools tools={tools} several={several} />
      )}
      {models.length === 0 ? null : <Models models={models} several={several} />}
    </section>
  );
}

function Tools({ tools, several }: { readonly tools: readonly Of<ToolMoney>[]; readonly several: boolean }) {
  const { t } = useFrame();
  type Row = Of<ToolMoney>;
  const number = (id: string, title: string, cell: Column<Row>["cell"]): Column<Row> => ({
    id,
    title,
    cell,
    isNumber: true,
  });
  const foreign = [
    number("foreign", t("bill.foreign"), (tool) => <Foreign count={tool.foreign} />),
    number("foreign-money", t("bill.foreign.money"), (tool) => orNone(tool.foreign_microdollars)),
  ];
  const suspected = [
    number("suspected", t("bill.suspected"), (tool) => <Foreign count={tool.suspected} />),
    number("suspected-money", t("bill.suspected.money"), (tool) => orNone(tool.suspected_microdollars)),
  ];
  const columns: Column<Row>[] = [
    { id: "tool", title: t("bill.tool"), cell: ({ tool }) => tool },
    ...(several ? [{ id: "gateway", title: t("bill.keys.gateway"), cell: (tool: Row) => tool.gateway }] : []),
    number("requests", t("bill.requests"), (tool) => exact(tool.requests)),
    number("ours", t("mirror.ours"), (tool) => costInWords(tool.ours_microdollars, tool.ours_unknown)),
    number("theirs", t("mirror.theirs"), (tool) =>
      costInWords(tool.theirs_microdollars, tool.theirs_unknown),
    ),
    number("difference", t("bill.difference"), differenceOf),
    number("factor", t("bill.factor"), factorOf),
    ...(tools.some((tool) => tool.foreign > 0) ? foreign : []),
    ...(tools.some((tool) => tool.suspected > 0) ? suspected : []),
  ];
  return (
    <Table
      caption={t("bill.money.tools")}
      columns={columns}
      rows={tools}
      keyOf={({ gateway, tool }) => `${gateway} ${tool}`}
    />
  );
}

/** Rows that are foreign, or suspected to be. */
function Foreign({ count }: { readonly count: number }) {
  return count === 0 ? <>0</> : <strong class="foreign">! {exact(count)}</strong>;
}

function orNone(money: number): string {
  return money === 0 ? "–" : dollars(money);
}

function differenceOf(tool: ToolMoney): string {
  const { ours_microdollars: ours, theirs_microdollars: theirs } = tool;
  if (ours === null || theirs === null || hasUnknown(tool)) return costInWords(null);
  return theirs > ours ? `+${dollars(theirs - ours)}` : dollars(theirs - ours);
}

function factorOf(tool: ToolMoney): string {
  const { ours_microdollars: ours, theirs_microdollars: theirs } = tool;
  if (ours === null || theirs === null || ours === 0 || hasUnknown(tool)) return "–";
  return factorInWords(theirs / ours);
}

function hasUnknown({ ours_unknown: ours, theirs_unknown: theirs }: ToolMoney): boolean {
  return ours + theirs > 0;
}

function Models({
  models,
  several,
}: {
  readonly models: readonly Of<ModelFactor>[];
  readonly several: boolean;
}) {
  const { t } = useFrame();
  type Row = Of<ModelFactor>;
  const columns: Column<Row>[] = [
    {
      id: "model",
      title: t("bill.model"),
      cell: ({ model, tier, group }) => [model, tier, group].filter((name) => name !== null).join(", "),
    },
    ...(several ? [{ id: "gateway", title: t("bill.keys.gateway"), cell: (one: Row) => one.gateway }] : []),
    { id: "requests", title: t("bill.requests"), isNumber: true, cell: ({ requests }) => exact(requests) },
    { id: "factor", title: t("bill.factor"), isNumber: true, cell: (model) => <Price model={model} /> },
    {
      id: "multiplier",
      title: t("bill.multiplier"),
      isNumber: true,
      cell: (model) => <Multiplier model={model} />,
    },
  ];
  return (
    <>
      <h3 class="panel-part">{t("bill.models")}</h3>
      <Table
        caption={t("bill.models")}
        columns={columns}
        rows={models}
        keyOf={({ gateway, model, group, tier }) => `${gateway} ${model} ${group} ${tier}`}
      />
      {models.some((model) => isOtherPrice(model.factor) || kindPrices(model).length > 0) ? (
        <p class="panel-part muted small">
          <Text id="bill.price.next" />
        </p>
      ) : null}
    </>
  );
}

/** The operator's own price is no fault, but a word is due. */
function Price({ model }: { readonly model: ModelFactor }) {
  const { t } = useFrame();
  const { factor, explanation } = model;
  const left = explanation?.unexplained_microdollars ?? 0;
  const kinds = kindPrices(model);
  return (
    <>
      {kinds.length === 0 ? (
        <OnePrice factor={Object.values(explanation?.factors ?? {})[0] ?? factor} />
      ) : (
        <strong title={t("bill.price.kinds", { n: explanation?.explained ?? 0 })}>
          ≠ {kinds.map(([kind, one]) => `${t(KIND_NAMES[kind])} ${factorInWords(one)}`).join(", ")}
        </strong>
      )}
      {left === 0 ? null : (
        <>
          {" "}
          <span class="muted">{t("bill.price.unexplained", { money: dollars(left) })}</span>
        </>
      )}
    </>
  );
}

const KIND_NAMES = {
  input: "mirror.fact.input",
  cache_read: "mirror.fact.cache-read",
  cache_write: "mirror.fact.cache-write",
  output: "mirror.fact.output",
} as const;

function OnePrice({ factor }: { readonly factor: number | null }) {
  const { t } = useFrame();
  if (factor === null) return <span class="muted">{t("bill.price.unknown")}</span>;
  if (!isOtherPrice(factor)) return <span class="muted">{t("bill.price.same")}</span>;
  return (
    <strong title={t("bill.price.other", { factor: factorInWords(factor) })}>
      ≠ {factorInWords(factor)}
    </strong>
  );
}

function Multiplier({ model }: { readonly model: ModelFactor }) {
  const { t } = useFrame();
  const { multiplier, multiplier_here: here } = model;
  const theirs = multiplier === null ? t("bill.multiplier.other") : factorInWords(multiplier);
  if (here === null) return <>{theirs}</>;
  return (
    <>
      <strong>≠ {theirs}</strong>{" "}
      <span class="muted">{t("bill.multiplier.here", { factor: factorInWords(here) })}</span>
    </>
  );
}
