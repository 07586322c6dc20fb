import { dollars, exact } from "../../../core/units.ts";
import type { MirrorReport } from "../../../mirror/report/shape.ts";
import { Answered, useAnswer } from "../answer.tsx";
import { Text } from "../components/text.tsx";
import { type PageProps, useFrame, useTime } from "../frame.tsx";
import { blindSpotInWords } from "../sentences.ts";
import { ConsoleKeys, ConsolePanel } from "./bill/console.tsx";
import { RowsToCheck } from "./bill/diff.tsx";
import { CostPanel, MonthPanel } from "./bill/money.tsx";
import { billOf, standingOf } from "./bill/state.ts";

/** How often the page asks for the results of a sync. */
const AGAIN_MS = 15_000;

/** Whether our log and the console's agree. The alarm is above, on every page. */
export function BillPage({ state, query, setQuery }: PageProps) {
  const { t } = useFrame();
  const now = useTime();
  const { at, status } = state.now;
  // A sync that ends is news, and one may be running.
  const syncs = status.consoles.map(({ gateway, last_sync }) => `${gateway} ${last_sync}`).join();
  const asked = useAnswer("/api/mirror", { fresh: `${syncs} ${Math.floor(at / AGAIN_MS)}` });
  return (
    <>
      <h1>{t("bill.title")}</h1>
      <Answered asked={asked}>
        {({ reports, diff, keys, keys_problems }) =>
          reports.length === 0 ? (
            <NoConsole />
          ) : (
            <>
              <BillSentence reports={reports} />
              <RowsToCheck rows={diff} blind={!reports.every(isSeen)} />
              <CostPanel reports={reports} />
              {reports.map((report) => (
                <ConsolePanel key={report.gateway} report={report} now={now} />
              ))}
              <ConsoleKeys keys={keys} problems={keys_problems} />
            </>
          )
        }
      </Answered>
      <MonthPanel month={query.get("month")} onMonth={(month) => setQuery(new URLSearchParams({ month }))} />
      <BlindSpots reports={asked.value?.reports ?? []} />
    </>
  );
}

function isSeen(report: MirrorReport): boolean {
  return ["fine", "look", "suspected", "alarm"].includes(standingOf(report));
}

/** Whose the rows are and what they cost, in one sentence. */
function BillSentence({ reports }: { readonly reports: readonly MirrorReport[] }) {
  const { t } = useFrame();
  const { ours, total, amounts } = billOf(reports);
  const rows = { ours: exact(ours), total: exact(total) };
  if (amounts === null) return <p class="bill-sentence">{t("bill.sentence.rows", rows)}</p>;
  const { billed, expected } = amounts;
  const values = { ...rows, billed: dollars(billed), expected: dollars(expected) };
  return <p class="bill-sentence">{t("bill.sentence", values)}</p>;
}

/** What no comparison can show. */
function BlindSpots({ reports }: { readonly reports: readonly MirrorReport[] }) {
  const { t } = useFrame();
  const spots = reports.flatMap(({ gateway, blind }) =>
    blind.map((spot) => `${gateway}: ${blindSpotInWords(spot, t)}`),
  );
  if (spots.length === 0) return null;
  return (
    <section class="muted small" aria-labelledby="blind-spots">
      <h2 id="blind-spots">{t("bill.blind")}</h2>
      <ul>
        {spots.map((spot) => (
          <li key={spot}>{spot}</li>
        ))}
      </ul>
    </section>
  );
}

function NoConsole() {
  const { t } = useFrame();
  return (
    <section class="box notice stack">
      <h2>{t("bill.none.title")}</h2>
      <p>
        <Text id="bill.none.text" />
      </p>
      <p>
        <Text id="bill.none.then" />
      </p>
    </section>
  );
}
