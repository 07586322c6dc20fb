import { costInWords, dayName, dollars, exact } from "../../../../core/units.ts";
import {
  comparableAmounts,
  differenceInWords,
  isOtherPrice,
  kindPrices,
} from "../../../../mirror/report/notable.ts";
import type { MirrorReport, ModelFactor, ToolMoney } from "../../../../mirror/report/shape.ts";
import { short } from "../../../../usage/reports/format.ts";
import type { UsageRow } from "../../../api.ts";
import type { MonthBill } from "../../../bill.ts";
import { Answered, useAnswer } from "../../answer.tsx";
import { factorInWords } from "../../components/compared.ts";
import { Panel, Select } from "../../components/panel.tsx";
import { type Column, column, numberColumn, Table, TablePanel } from "../../components/table.tsx";
import { Text } from "../../components/text.tsx";
import { joined, orDash } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";
import { costOfSums } from "../usage/words.ts";

type Of<T> = T & { readonly gateway: string };

/** What we reckon against what was charged, and how the operator's prices differ from the list. */
export function CostPanel({ reports }: { readonly reports: readonly MirrorReport[] }) {
  const { t } = useFrame();
  const tools = reports.flatMap(({ gateway, tools }) => tools.map((one) => ({ ...one, gateway })));
  const models = reports.flatMap(({ gateway, models }) => models.map((one) => ({ ...one, gateway })));
  const toolColumns: readonly Column<Of<ToolMoney>>[] = [
    column(t("word.tool"), ({ tool }) => tool),
    column(t("word.gateway"), ({ gateway }) => gateway),
    numberColumn(t("bill.requests"), ({ requests }) => exact(requests)),
    numberColumn(t("mirror.ours"), (tool) => costInWords(tool.ours_microdollars, tool.ours_unknown)),
    numberColumn(t("mirror.theirs"), (tool) => costInWords(tool.theirs_microdollars, tool.theirs_unknown)),
    numberColumn(t("bill.difference"), differenceInWords),
    numberColumn(t("bill.factor"), factorOf),
  ];
  const modelColumns: readonly Column<Of<ModelFactor>>[] = [
    column(t("word.model"), modelName),
    column(t("word.gateway"), ({ gateway }) => gateway),
    numberColumn(t("bill.requests"), ({ requests }) => exact(requests)),
    numberColumn(t("bill.factor"), (model) => priceInWords(model, t)),
    numberColumn(t("mirror.fact.multiplier"), (model) => multiplierInWords(model, t)),
  ];
  const hasOwnPrices = models.some((model) => isOtherPrice(model.factor) || kindPrices(model).length > 0);
  return (
    <>
      <TablePanel
        name="bill-money"
        title={t("bill.money")}
        rows={tools}
        keyOf={({ gateway, tool }) => `${gateway} ${tool}`}
        columns={toolColumns}
        empty={t("bill.money.empty")}
      />
      {models.length === 0 ? null : (
        <TablePanel
          name="bill-models"
          title={t("bill.models")}
          aside={hasOwnPrices ? <Text id="bill.price.next" /> : null}
          rows={models}
          keyOf={(model) => `${model.gateway} ${modelName(model)}`}
          columns={modelColumns}
        />
      )}
    </>
  );
}

function factorOf(tool: ToolMoney): string {
  const { ours, theirs } = comparableAmounts(tool) ?? { ours: 0, theirs: 0 };
  return ours === 0 ? "–" : factorInWords(theirs / ours);
}

function modelName({ model, tier, group }: ModelFactor): string {
  return [model, tier, group].filter((name) => name !== null).join(", ");
}

const KIND_NAMES = {
  input: "mirror.fact.input",
  cache_read: "mirror.fact.cache-read",
  cache_write: "mirror.fact.cache-write",
  output: "mirror.fact.output",
} as const;

/** The operator's own price is no fault, but a word is due. */
function priceInWords(model: ModelFactor, t: Translate): string {
  const { factors, unexplained_microdollars: left = 0 } = model.explanation ?? {};
  const factor = Object.values(factors ?? {})[0] ?? model.factor;
  const kinds = kindPrices(model).map(([kind, one]) => `${t(KIND_NAMES[kind])} ${factorInWords(one)}`);
  if (kinds.length === 0 && isOtherPrice(factor)) kinds.push(factorInWords(factor));
  const same = t(factor === null ? "bill.price.unknown" : "bill.price.same");
  const price = kinds.length === 0 ? same : `≠ ${joined(kinds, t)}`;
  return joined([price, left === 0 ? null : t("bill.price.unexplained", { money: dollars(left) })], t);
}

function multiplierInWords({ multiplier, multiplier_here: here }: ModelFactor, t: Translate): string {
  const theirs = multiplier === null ? t("bill.multiplier.other") : factorInWords(multiplier);
  if (here === null) return theirs;
  return joined([`≠ ${theirs}`, t("bill.multiplier.here", { factor: factorInWords(here) })], t);
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
          <button type="button" disabled={bill === null} onClick={() => print()}>
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
  const table = (name: "word.tool" | "word.model", caption: string, rows: readonly UsageRow[]) => {
    const columns: readonly Column<UsageRow>[] = [
      column(t(name), ({ name }) => name ?? t("frame.unknown")),
      numberColumn(t("limit.requests"), ({ requests }) => exact(requests)),
      numberColumn(t("limit.tokens"), ({ tokens }) => short(tokens)),
      numberColumn(t("mirror.ours"), costOfSums),
      numberColumn(t("usage.sum.billed"), ({ billed_microdollars: billed }) => orDash(billed, dollars)),
    ];
    return (
      <Table caption={caption} rows={rows} keyOf={({ name }) => JSON.stringify(name)} columns={columns} />
    );
  };
  return (
    <>
      <div class="body stack">
        <p>
          {t("bill.month.ours", { n: exact(total.requests), cost: costOfSums(total) })}{" "}
          {until > clock() ? t("bill.month.runs", { day: dayName(since) }) : null}
        </p>
        {bill.consoles.map((one) => (
          <p key={one.gateway}>{consoleInWords(one, t)}</p>
        ))}
      </div>
      {total.requests === 0 ? null : table("word.tool", t("bill.money.tools"), tools)}
      {total.requests === 0 ? null : table("word.model", t("bill.month.models"), models)}
    </>
  );
}

/** What a console charged for its rows of this month, and how much of that for foreign ones. */
function consoleInWords(one: MonthBill["consoles"][number], t: Translate): string {
  const foreign = one.foreign_certain + one.foreign_suspected;
  const n = one.matched + one.differs + one.pending + foreign + one.other;
  const billed = dollars(one.billed_microdollars);
  const charged = t("bill.month.console", { gateway: one.gateway, n: exact(n), billed });
  if (foreign === 0) return charged;
  const money = dollars(one.foreign_microdollars);
  return `${charged} ${t("bill.month.foreign", { n: exact(foreign), money })}`;
}

function lastMonths(now: number): string[] {
  const today = new Date(now);
  return Array.from({ length: MONTHS }, (_, back) =>
    dayName(new Date(today.getFullYear(), today.getMonth() - back).getTime()).slice(0, 7),
  );
}
