import { costInWords, dollars, exact } from "../../../../core/units.ts";
import { short } from "../../../../usage/reports/format.ts";
import type { MonthBill, UsageRow } from "../../../api.ts";
import { NotLoaded } from "../../components/not-loaded.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { dayOf } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";
import { useAnswer } from "../../use-answer.ts";

/** As many can be chosen. */
const MONTHS = 24;

interface MonthProps {
  /** 2026-10; null: the month that runs. */
  readonly month: string | null;
  readonly onMonth: (month: string) => void;
}

/** What one month cost, by tool and by model, beside what the consoles charged. Printed, it is all there is of the page. */
export function MonthPanel({ month, onMonth }: MonthProps) {
  const { t, client, clock } = useFrame();
  const months = lastMonths(clock());
  const chosen = month ?? months[0] ?? "";
  const asked = useAnswer(
    (signal) => client.get("/api/bill", new URLSearchParams({ month: chosen }), signal),
    [chosen],
  );
  const bill = asked.value?.month === chosen ? asked.value : null;
  return (
    <section class="panel bill-month" aria-labelledby="bill-month">
      <header>
        <h2 id="bill-month">{t("bill.month", { month: chosen })}</h2>
        <label class="no-print">
          {t("bill.month.choose")}{" "}
          <select value={chosen} onChange={(event) => onMonth(event.currentTarget.value)}>
            {months.includes(chosen) ? null : <option value={chosen}>{chosen}</option>}
            {months.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </label>
        <button type="button" class="plain no-print" disabled={bill === null} onClick={() => print()}>
          {t("bill.month.print")}
        </button>
      </header>
      {bill !== null ? (
        <Bill bill={bill} />
      ) : asked.busy ? (
        <p class="empty">{t("frame.loading")}</p>
      ) : (
        <NotLoaded asked={asked} />
      )}
    </section>
  );
}

function Bill({ bill }: { readonly bill: MonthBill }) {
  const { t, clock } = useFrame();
  const { total, tools, models, since, until } = bill;
  const isRunning = until > clock();
  return (
    <>
      <div class="body stack">
        <p>
          {t("bill.month.ours", {
            n: exact(total.requests),
            cost: costInWords(total.cost_microdollars, unpriced(total)),
          })}{" "}
          {isRunning ? t("bill.month.runs", { day: dayOf(since) }) : null}
        </p>
        {consolesInWords(bill, t).map((words) => (
          <p key={words}>{words}</p>
        ))}
      </div>
      {total.requests === 0 ? null : (
        <>
          <Table
            caption={t("bill.money.tools")}
            columns={columnsOf(t("bill.tool"), t)}
            rows={tools}
            keyOf={({ name }) => JSON.stringify(name)}
          />
          <Table
            caption={t("bill.month.models")}
            columns={columnsOf(t("bill.model"), t)}
            rows={models}
            keyOf={({ name }) => JSON.stringify(name)}
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
    const charged = t("bill.month.console", {
      gateway: one.gateway,
      n: exact(n),
      billed: dollars(one.billed_microdollars),
    });
    if (foreign === 0) return charged;
    return `${charged} ${t("bill.month.foreign", { n: exact(foreign), money: dollars(one.foreign_microdollars) })}`;
  });
}

function columnsOf(first: string, t: Translate): Column<UsageRow>[] {
  return [
    { id: "name", title: first, cell: ({ name }) => name ?? t("bill.month.unknown") },
    { id: "requests", title: t("bill.month.requests"), isNumber: true, cell: (row) => exact(row.requests) },
    { id: "tokens", title: t("bill.month.tokens"), isNumber: true, cell: (row) => short(row.tokens) },
    {
      id: "ours",
      title: t("mirror.ours"),
      isNumber: true,
      cell: (row) => costInWords(row.cost_microdollars, unpriced(row)),
    },
    {
      id: "billed",
      title: t("bill.month.billed"),
      isNumber: true,
      cell: ({ billed_microdollars: billed }) => (billed === null ? "–" : dollars(billed)),
    },
  ];
}

/** Requests that the sum of costs lacks. */
function unpriced({ unmetered, unpriced }: Pick<UsageRow, "unmetered" | "unpriced">): number {
  return unmetered + unpriced;
}

function lastMonths(now: number): string[] {
  const today = new Date(now);
  return Array.from({ length: MONTHS }, (_, back) =>
    dayOf(new Date(today.getFullYear(), today.getMonth() - back).getTime()).slice(0, 7),
  );
}
