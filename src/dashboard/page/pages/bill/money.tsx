import { costInWords, dayName, dollars, exact } from "../../../../core/units.ts";
import { isOtherPrice, kindPrices } from "../../../../mirror/report/notable.ts";
import type { MirrorReport, ModelFactor, ToolMoney } from "../../../../mirror/report/shape.ts";
import { short } from "../../../../usage/reports/format.ts";
import type { MonthBill, UsageRow } from "../../../api.ts";
import { Answered, useAnswer } from "../../answer.tsx";
import { factorInWords } from "../../components/compared.ts";
import { Panel, Select } from "../../components/panel.tsx";
import { type Column, column, numberColumn, Table } from "../../components/table.tsx";
import { Text } from "../../components/text.tsx";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";
import { costOfSums } from "../usage/words.ts";

type Of<T> = T & { readonly gateway: string };

/** What we reckon against what was charged, and how the operator's prices differ from the list. */
export function CostPanel({ reports }: { readonly reports: readonly MirrorReport[] }) {
  const { t } = useFrame();
  const tools = reports.flatMap(({ gateway, tools }) => tools.map((one) => ({ ...one, gateway })));
  const models = reports.flatMap(({ gateway, models }) => models.map((one) => ({ ...one, gateway })));
  const several = reports.length > 1;
  return (
    <Panel name="bill-money" title={t("bill.money")}>
      {tools.length === 0 ? (
        <p class="empty">{t("bill.money.empty")}</p>
      ) : (
        <Tools tools={tools} several={several} />
      )}
      {models.length === 0 ? null : <Models models={models} several={several} />}
    </Panel>
  );
}

function gatewayColumn(t: Translate): Column<{ readonly gateway: string }> {
  return column(t("word.gateway"), ({ gateway }) => gateway);
}

function Tools({ tools, several }: { readonly tools: readonly Of<ToolMoney>[]; readonly several: boolean }) {
  const { t } = useFrame();
  const columns: Column<Of<ToolMoney>>[] = [
    column(t("word.tool"), ({ tool }) => tool),
    ...(several ? [gatewayColumn(t)] : []),
    numberColumn(t("bill.requests"), ({ requests }) => exact(requests)),
    numberColumn(t("mirror.ours"), (tool) => costInWords(tool.ours_microdollars, tool.ours_unknown)),
    numberColumn(t("mirror.theirs"), (tool) => costInWords(tool.theirs_microdollars, tool.theirs_unknown)),
    numberColumn(t("bill.difference"), differenceOf),
    numberColumn(t("bill.factor"), factorOf),
  ];
  const keyOf = ({ gateway, tool }: Of<ToolMoney>) => `${gateway} ${tool}`;
  return <Table caption={t("bill.money.tools")} rows={tools} keyOf={keyOf} columns={columns} />;
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

interface ModelsProps {
  readonly models: readonly Of<ModelFactor>[];
  readonly several: boolean;
}

function Models({ models, several }: ModelsProps) {
  const { t } = useFrame();
  const nameOf = ({ model, tier, group }: ModelFactor) =>
    [model, tier, group].filter((name) => name !== null).join(", ");
  const columns: Column<Of<ModelFactor>>[] = [
    column(t("word.model"), nameOf),
    ...(several ? [gatewayColumn(t)] : []),
    numberColumn(t("bill.requests"), ({ requests }) => exact(requests)),
    numberColumn(t("bill.factor"), (model) => <Price model={model} />),
    numberColumn(t("mirror.fact.multiplier"), (model) => <Multiplier model={model} />),
  ];
  return (
    <>
      <h3 class="body">{t("bill.models")}</h3>
      <Table
        caption={t("bill.models")}
        rows={models}
        keyOf={(model) => `${model.gateway} ${nameOf(model)}`}
        columns={columns}
      />
      {models.some((model) => isOtherPrice(model.factor) || kindPrices(model).length > 0) ? (
        <p class="body muted small">
          <Text id="bill.price.next" />
        </p>
      ) : null}
    </>
  );
}

const KIND_NAMES = {
  input: "mirror.fact.input",
  cache_read: "mirror.fact.cache-read",
  cache_write: "mirror.fact.cache-write",
  output: "mirror.fact.output",
} as const;

/** The operator's own price is no fault, but a word is due. */
function Price({ model: whole }: { readonly model: ModelFactor }) {
  const { t } = useFrame();
  const { factor, explanation } = whole;
  const left = explanation?.unexplained_microdollars ?? 0;
  const kinds = kindPrices(whole).map(([kind, one]) => `${t(KIND_NAMES[kind])} ${factorInWords(one)}`);
  const whyKinds = t("bill.price.kinds", { n: explanation?.explained ?? 0 });
  return (
    <>
      {kinds.length === 0 ? (
        <OnePrice factor={Object.values(explanation?.factors ?? {})[0] ?? factor} />
      ) : (
        <strong title={whyKinds}>≠ {kinds.join(t("frame.comma"))}</strong>
      )}
      {left === 0 ? null : (
        <span class="muted"> {t("bill.price.unexplained", { money: dollars(left) })}</span>
      )}
    </>
  );
}

function OnePrice({ factor }: { readonly factor: number | null }) {
  const { t } = useFrame();
  if (factor === null) return <span class="muted">{t("bill.price.unknown")}</span>;
  if (!isOtherPrice(factor)) return <span class="muted">{t("bill.price.same")}</span>;
  const words = factorInWords(factor);
  return <strong title={t("bill.price.other", { factor: words })}>≠ {words}</strong>;
}

function Multiplier({ model: { multiplier, multiplier_here: here } }: { readonly model: ModelFactor }) {
  const { t } = useFrame();
  const theirs = multiplier === null ? t("bill.multiplier.other") : factorInWords(multiplier);
  if (here === null) return <>{theirs}</>;
  return (
    <>
      <strong>≠ {theirs}</strong>{" "}
      <span class="muted">{t("bill.multiplier.here", { factor: factorInWords(here) })}</span>
    </>
  );
}

/** As many can be chosen. */
const MONTHS = 24;

interface MonthProps {
  /** 2026-10; null: the month that runs. */
  readonly month: string | null;
  readonly onMonth: (month: string) => void;
}

/** What one month cost, by tool and by model, beside what the consoles charged. Printed, it is all there is of the page. */
export function MonthPanel({ month, onMonth }: MonthProps) {
  const { t, clock } = useFrame();
  const months = lastMonths(clock());
  const chosen = month ?? months[0] ?? "";
  const asked = useAnswer("/api/bill", { query: new URLSearchParams({ month: chosen }) });
  const bill = asked.value?.month === chosen ? asked.value : null;
  const choices = months.includes(chosen) ? months : [chosen, ...months];
  return (
    <Panel
      name="bill-month"
      title={t("bill.month", { month: chosen })}
      aside={
        <div class="row no-print">
          <Select
            label={t("bill.month.choose")}
            value={chosen}
            choices={choices.map((each) => [each, each])}
            onChoose={onMonth}
          />
          <button type="button" class="plain" disabled={bill === null} onClick={() => print()}>
            {t("bill.month.print")}
          </button>
        </div>
      }
    >
      <Answered asked={{ ...asked, value: bill }}>{(value) => <Bill bill={value} />}</Answered>
    </Panel>
  );
}

function Bill({ bill }: { readonly bill: MonthBill }) {
  const { t, clock } = useFrame();
  const { total, tools, models, since, until } = bill;
  const isRunning = until > clock();
  const keyOf = ({ name }: UsageRow) => JSON.stringify(name);
  return (
    <>
      <div class="body stack">
        <p>
          {t("bill.month.ours", { n: exact(total.requests), cost: costOfSums(total) })}{" "}
          {isRunning ? t("bill.month.runs", { day: dayName(since) }) : null}
        </p>
        {consolesInWords(bill, t).map((words) => (
          <p key={words}>{words}</p>
        ))}
      </div>
      {total.requests === 0 ? null : (
        <>
          <Table
            caption={t("bill.money.tools")}
            columns={columnsOf("word.tool", t)}
            rows={tools}
            keyOf={keyOf}
          />
          <Table
            caption={t("bill.month.models")}
            columns={columnsOf("word.model", t)}
            rows={models}
            keyOf={keyOf}
          />
        </>
      )}
    </>
  );
}

/** What each console charged for its rows of this month, and how much of that for foreign ones. */
function consolesInWords({ consoles }: MonthBill, t: Translate): string[] {
  return consoles.map((one) => {
    const foreign = one.foreign_certain + one.foreign_suspected;
    const n = one.matched + one.differs + one.pending + foreign + one.other;
    const billed = dollars(one.billed_microdollars);
    const charged = t("bill.month.console", { gateway: one.gateway, n: exact(n), billed });
    if (foreign === 0) return charged;
    const money = dollars(one.foreign_microdollars);
    return `${charged} ${t("bill.month.foreign", { n: exact(foreign), money })}`;
  });
}

function columnsOf(first: "word.tool" | "word.model", t: Translate): Column<UsageRow>[] {
  return [
    column(t(first), ({ name }) => name ?? t("frame.unknown")),
    numberColumn(t("limit.requests"), ({ requests }) => exact(requests)),
    numberColumn(t("limit.tokens"), ({ tokens }) => short(tokens)),
    numberColumn(t("mirror.ours"), costOfSums),
    numberColumn(t("usage.table.billed"), ({ billed_microdollars: billed }) =>
      billed === null ? "–" : dollars(billed),
    ),
  ];
}

function lastMonths(now: number): string[] {
  const today = new Date(now);
  return Array.from({ length: MONTHS }, (_, back) =>
    dayName(new Date(today.getFullYear(), today.getMonth() - back).getTime()).slice(0, 7),
  );
}
