import { useEffect } from "preact/hooks";
import { dollars, exact } from "../../../core/units.ts";
import type { MirrorReport } from "../../../mirror/report/shape.ts";
import { NotLoaded } from "../components/not-loaded.tsx";
import { Text } from "../components/text.tsx";
import { type PageProps, useFrame } from "../frame.tsx";
import { useAnswer } from "../use-answer.ts";
import { useTime } from "../use-time.ts";
import { ConsolePanel } from "./bill/console.tsx";
import { RowsToCheck } from "./bill/diff.tsx";
import { ConsoleKeys } from "./bill/keys.tsx";
import { CostPanel } from "./bill/money.tsx";
import { MonthPanel } from "./bill/month.tsx";
import { billOf, standingOf } from "./bill/state.ts";
import { VerdictsByDay } from "./bill/time.tsx";

/** A sync may be running: the page asks for its results at intervals. */
const AGAIN_MS = 15_000;

/** Whether our log and the console's agree. The alarm is above, on every page. */
export function BillPage({ state, query, setQuery }: PageProps) {
  const { t, client, live } = useFrame();
  const asked = useAnswer(
    (signal) => client.get("/api/mirror", undefined, signal),
    // A sync that ends is news at once.
    [state.now?.status.consoles.map(({ gateway, last_sync }) => `${gateway} ${last_sync}`).join() ?? null],
  );
  const { value, busy, again } = asked;
  // Not while one is on its way: to ask again gives that one up, and a slow answer would never come.
  useEffect(() => (busy ? undefined : live.every(AGAIN_MS, again)), [live, busy]);
  const now = useTime(10_000);
  return (
    <>
      <h1>{t("bill.title")}</h1>
      <NotLoaded asked={asked} />
      {value === null ? (
        busy && <p class="panel empty">{t("frame.loading")}</p>
      ) : value.reports.length === 0 ? (
        <NoConsole isConfigured={(state.now?.status.consoles.length ?? 0) > 0} />
      ) : (
        <>
          <BillSentence reports={value.reports} />
          <RowsToCheck rows={value.diff} blind={!value.reports.every(isSeen)} now={now} />
          <CostPanel reports={value.reports} />
          <VerdictsByDay days={value.over_time} reports={value.reports} />
          {value.reports.map((report) => (
            <ConsolePanel key={report.gateway} report={report} now={now} />
          ))}
          <ConsoleKeys keys={value.keys} problems={value.keys_problems} now={now} />
        </>
      )}
      <MonthPanel month={query.get("month")} onMonth={(month) => setQuery(new URLSearchParams({ month }))} />
      <BlindSpots reports={value?.reports ?? []} />
    </>
  );
}

function isSeen(report: Parameters<typeof standingOf>[0]): boolean {
  const standing = standingOf(report);
  return ["fine", "look", "suspected", "alarm"].includes(standing);
}

/** Whose the rows are and what they cost, in one sentence. */
function BillSentence({ reports }: { readonly reports: readonly MirrorReport[] }) {
  const { t } = useFrame();
  const { rows, ours, theirs, isKnown } = billOf(reports);
  const values = { ours: exact(rows.ours), total: exact(rows.total) };
  return (
    <p class="bill-sentence">
      {isKnown
        ? t("bill.sentence", { ...values, billed: dollars(theirs), expected: dollars(ours) })
        : t("bill.sentence.rows", values)}
    </p>
  );
}

/** What no comparison can show. */
function BlindSpots({ reports }: { readonly reports: readonly MirrorReport[] }) {
  const { t } = useFrame();
  const blind = reports.flatMap((report) =>
    report.blind.map((what) => (reports.length > 1 ? `${report.gateway}: ${what}` : what)),
  );
  if (blind.length === 0) return null;
  return (
    <section class="muted small" aria-labelledby="blind-spots">
      <h2 id="blind-spots">{t("bill.blind")}</h2>
      <ul class="bill-blind">
        {blind.map((what) => (
          <li key={what}>{what}</li>
        ))}
      </ul>
    </section>
  );
}

const EXAMPLE = `gateways:
  main:
    base_url: https://gateway.example.com/v1
    console: { kind: sub2api, login: { email: me@example.com } }`;

function NoConsole({ isConfigured }: { readonly isConfigured: boolean }) {
  const { t } = useFrame();
  if (isConfigured) {
    return (
      <p class="notice">
        <Text id="bill.unreadable" />
      </p>
    );
  }
  return (
    <section class="notice">
      <h2>{t("bill.none.title")}</h2>
      <p>{t("bill.none.text")}</p>
      <pre class="snippet">{EXAMPLE}</pre>
      <p>
        <Text id="bill.none.then" />
      </p>
    </section>
  );
}
