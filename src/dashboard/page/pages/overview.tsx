import { shownGatewayState } from "../../../control/gateway-state.ts";
import type { GatewayStatus, Status } from "../../../control/status.ts";
import { advice } from "../../../core/advice.ts";
import { costInWords, dollars, duration, exact, HOUR_MS, MINUTE_MS } from "../../../core/units.ts";
import type { Now, ShownRecord } from "../../api.ts";
import { Answered, useAnswer } from "../answer.tsx";
import { Cards } from "../components/cards.tsx";
import { Chart } from "../components/chart.tsx";
import { type Figure, Figures, Panel, State } from "../components/panel.tsx";
import { type Column, column, numberColumn, TablePanel } from "../components/table.tsx";
import { Command, Moment, RefusalText, Text } from "../components/text.tsx";
import { joined, orDash, timeInWords } from "../format.ts";
import { type PageProps, useFrame } from "../frame.tsx";
import { refusedGroups } from "../refusals.ts";
import { Sessions } from "./sessions.tsx";

/** What needs the person first, then what happens now. */
export function OverviewPage({ state: { now } }: PageProps) {
  const { t } = useFrame();
  const isUsed = wasCalled(now);
  return (
    <>
      <h1>{t("overview.title")}</h1>
      <Cards now={now} />
      {isUsed ? (
        <>
          <TodayFigures now={now} />
          <LastDay at={now.at} />
          <Sessions
            title={t("overview.sessions")}
            aside={<span class="muted">{t("overview.sessions.count", { n: now.running_total })}</span>}
            empty={t("overview.sessions.empty")}
            sessions={now.sessions}
            running={now.running}
            hasTools
          />
        </>
      ) : (
        <FirstSteps status={now.status} />
      )}
      <Gateways now={now} />
      {isUsed ? <Refusals records={now.refusals} /> : null}
    </>
  );
}

function wasCalled({ status, running_total: running, today, refusals }: Now): boolean {
  // A log that cannot be read now may have requests.
  if (running > 0 || refusals.length > 0 || today === null || today.total.requests > 0) return true;
  return today.forecast !== null || status.tools.some((tool) => tool.last_use !== null);
}

/** What to do where nothing was ever called. */
function FirstSteps({ status: { listen, sandbox, tools } }: { readonly status: Status }) {
  const { t } = useFrame();
  const tool = tools[0]?.name ?? "<tool>";
  const [address = "localhost:5397"] = listen;
  const steps = [
    ["first.call", `curl http://${address}/v1/models -H "Authorization: Bearer $KEYBEARER_TOKEN"`],
    ["first.connect", sandbox ? advice.init() : advice.addGateway()],
    ["first.adopt", advice.adopt()],
    ["first.claude", advice.useWrite(tool, "claude-code")],
  ] as const;
  return (
    <Panel name="first-steps" title={t("first.title")}>
      <ol class="body stack">
        {steps.map(([id, command]) => (
          <li key={id}>
            <h3>{t(id)}</h3>
            <Command text={command} />
            {id === "first.call" ? (
              <p class="muted small">
                <Text id={sandbox ? "first.call.sandbox" : "first.call.token"} values={{ tool }} />
              </p>
            ) : null}
          </li>
        ))}
      </ol>
    </Panel>
  );
}

/** Today in four large figures, each beside what is usual. */
function TodayFigures({ now: { today, running, running_total: inFlight } }: { readonly now: Now }) {
  const { t } = useFrame();
  const waiting = running.filter((call) => call.waiting).length;
  const total = today?.total ?? null;
  const usual = today?.usual ?? null;
  const forecast = today?.forecast ?? null;
  const usualCost =
    usual === null
      ? t("overview.usual.none")
      : t("overview.usual", { n: usual.days, amount: dollars(usual.cost_microdollars) });
  const usualRequests = usual === null ? null : t("overview.usual.short", { amount: exact(usual.requests) });
  const refused =
    total === null || total.refused === 0 ? null : t("overview.refused", { n: exact(total.refused) });
  const forecastHow =
    forecast === null
      ? t("overview.forecast.none")
      : t("overview.forecast.how", {
          n: forecast.days,
          spent: dollars(forecast.spent_microdollars),
          usual: dollars(forecast.usual_day_microdollars),
        });
  const requests = orDash(total, (sums) => exact(sums.requests));
  const cost = orDash(total, (sums) => costInWords(sums.cost_microdollars, sums.unknown_cost));
  const month = orDash(forecast, ({ cost_microdollars }) => `≈ ${dollars(cost_microdollars)}`);
  const costNote = total === null ? t("overview.unreadable") : usualCost;
  const waitingNote = waiting === 0 ? "" : t("overview.waiting", { n: waiting });
  const figures: readonly Figure[] = [
    { name: t("overview.cost.today"), value: cost, note: costNote },
    { name: t("overview.requests.today"), value: requests, note: joined([usualRequests, refused], t) },
    { name: t("overview.in-flight"), value: exact(inFlight), note: waitingNote },
    { name: t("overview.forecast"), value: month, note: forecastHow },
  ];
  return (
    <div class="panel today">
      <Figures figures={figures} />
    </div>
  );
}

/** What the last 24 hours cost, by tool. */
function LastDay({ at }: Pick<Now, "at">) {
  const { t } = useFrame();
  const since = new Date(at - 23 * HOUR_MS).setMinutes(0, 0, 0);
  const query = new URLSearchParams({ since: String(since), bin: "hour", by: "tool" });
  const asked = useAnswer("/api/usage", { query, fresh: Math.floor(at / MINUTE_MS) });
  const cost = asked.value?.total.cost_microdollars ?? null;
  return (
    <Panel
      name="last-day"
      title={t("overview.last-day")}
      aside={<span class="muted">{cost === null ? "" : costInWords(cost)}</span>}
    >
      <div class="body">
        <Answered asked={asked}>
          {(chart) =>
            chart.total.cost_microdollars === 0 ? (
              <p class="empty">{t("overview.last-day.empty")}</p>
            ) : (
              <Chart label={t("overview.last-day")} chart={chart} measure="money" />
            )
          }
        </Answered>
      </div>
    </Panel>
  );
}

/** Whether each gateway can be reached, by the last requests to it, and how fast it begins to answer. */
function Gateways({ now: { at, status, first_bytes } }: { readonly now: Now }) {
  const { t } = useFrame();
  const { gateways, uptime_s } = status;
  if (gateways.length === 0) return null;
  const stateOf = (gateway: GatewayStatus) => {
    const shown = shownGatewayState(gateway, at - uptime_s * 1000);
    return t(`gateway.${shown}`, { n: exact(gateway.before?.requests_today ?? 0) });
  };
  const firstByteOf = (name: string) => first_bytes.find(({ gateway }) => gateway === name) ?? null;
  const columns: readonly Column<GatewayStatus>[] = [
    column(t("word.gateway"), ({ name }) => name),
    column(t("overview.gateway.address"), ({ base_url }) => base_url),
    column(t("word.state"), (gateway) => (
      <span class="row">
        <State state={gateway.state}>{stateOf(gateway)}</State>
        {gateway.since === null
          ? null
          : t("overview.gateway.since", { time: timeInWords(gateway.since, at) })}
      </span>
    )),
    numberColumn(t("word.first-byte"), ({ name }) =>
      orDash(firstByteOf(name), ({ median_ms }) => duration(median_ms)),
    ),
  ];
  return (
    <TablePanel
      name="gateways"
      title={t("overview.gateways")}
      rows={gateways}
      keyOf={({ name }) => name}
      columns={columns}
    />
  );
}

/** Who cannot see a new kind of refusal hears it; everything else on this page changes too often to be read out. */
function Refusals({ records }: { readonly records: readonly ShownRecord[] }) {
  const { t } = useFrame();
  return (
    <Panel name="refusals" title={t("overview.refusals")}>
      {records.length === 0 ? <p class="empty">{t("overview.refusals.empty")}</p> : null}
      <ul class="list" aria-live="polite" aria-relevant="additions">
        {refusedGroups(records).map(({ record, times }) => (
          <li key={`${record.tool} ${record.refusal} ${record.model}`}>
            <RefusalText record={record} who={record.tool ?? t("overview.stranger")} />
            <p class="muted small">
              <Moment at={record.started_at} />
              {times > 1 ? ` · ${t("overview.refusals.times", { n: times })}` : null}
              {record.model === null ? null : ` · ${record.model}`}
              {record.endpoint === "" ? null : ` · ${record.endpoint}`}
            </p>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
