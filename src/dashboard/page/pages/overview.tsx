import { useEffect, useState } from "preact/hooks";
import { shownGatewayState } from "../../../control/gateway-state.ts";
import type { GatewayStatus, Status } from "../../../control/status.ts";
import { advice } from "../../../core/advice.ts";
import { costInWords, dollars, duration, exact, HOUR_MS, MINUTE_MS } from "../../../core/units.ts";
import type { Now, RunningCall, ShownRecord, ToolSession } from "../../api.ts";
import { Answered, useAnswer } from "../answer.tsx";
import { ActionButton } from "../components/action-dialog.tsx";
import { Cards } from "../components/cards.tsx";
import { Chart } from "../components/chart.tsx";
import { Figures, Panel, State } from "../components/panel.tsx";
import { type Column, column, numberColumn, TablePanel } from "../components/table.tsx";
import { Command, Moment, RefusalText, Text } from "../components/text.tsx";
import { agoInWords, timeInWords } from "../format.ts";
import { type PageProps, useFrame, useTime } from "../frame.tsx";
import { isStopped } from "../live/live.ts";
import type { Translate } from "../messages/messages.ts";
import { refusalAdvice, refusedGroups } from "../refusals.ts";

/** What needs the person first, then what happens now. */
export function OverviewPage({ state: { now, link } }: PageProps) {
  const { t } = useFrame();
  const isUsed = wasCalled(now);
  return (
    <>
      <h1>{t("overview.title")}</h1>
      <Cards now={now} />
      {isUsed ? (
        <>
          <TodayFigures now={now} />
          <LastDay />
          <Sessions now={now} stopped={isStopped(link)} />
        </>
      ) : (
        <FirstSteps status={now.status} />
      )}
      <Gateways now={now} />
      {isUsed ? <Refusals records={now.refusals} /> : null}
      <HeardRefusal />
    </>
  );
}

function wasCalled({ status, running_total: running, today, refusals }: Now): boolean {
  // A log that cannot be read now may have requests.
  if (running > 0 || refusals.length > 0 || today === null || today.total.requests > 0) return true;
  return today.forecast !== null || status.tools.some((tool) => tool.last_use !== null);
}

/** Who cannot see a refusal come in hears it; everything else on this page changes too often to be read out. */
function HeardRefusal() {
  const { live, t } = useFrame();
  const [heard, setHeard] = useState("");
  useEffect(
    () =>
      live.onRecord((record) => {
        const advice = record.end === "refused" ? refusalAdvice(record) : null;
        if (advice === null) return;
        const tool = record.tool ?? t("overview.stranger");
        setHeard(t("overview.refusals.heard", { tool, problem: t(advice.problem) }));
      }),
    [live, t],
  );
  return (
    <p class="visually-hidden" aria-live="polite">
      {heard}
    </p>
  );
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
function TodayFigures({ now }: { readonly now: Now }) {
  const { t } = useFrame();
  const { today, running, running_total: inFlight } = now;
  const waiting = running.filter((call) => call.waiting).length;
  const total = today?.total ?? null;
  const usual = today?.usual ?? null;
  const forecast = today?.forecast ?? null;
  const usualCost =
    usual === null
      ? t("overview.usual.none")
      : t("overview.usual", { n: usual.days, amount: dollars(usual.cost_microdollars) });
  const requestNotes = [
    usual === null ? null : t("overview.usual.short", { amount: exact(usual.requests) }),
    total === null || total.refused === 0 ? null : t("overview.refused", { n: exact(total.refused) }),
  ];
  const forecastHow =
    forecast === null
      ? t("overview.forecast.none")
      : t("overview.forecast.how", {
          n: forecast.days,
          spent: dollars(forecast.spent_microdollars),
          usual: dollars(forecast.usual_day_microdollars),
        });
  return (
    <div class="panel today">
      <Figures
        figures={[
          {
            name: t("overview.cost.today"),
            value: total === null ? "–" : costInWords(total.cost_microdollars, total.unknown_cost),
            note: total === null ? t("overview.unreadable") : usualCost,
          },
          {
            name: t("overview.requests.today"),
            value: total === null ? "–" : exact(total.requests),
            note: requestNotes.filter((note) => note !== null).join(t("frame.comma")),
          },
          {
            name: t("overview.in-flight"),
            value: exact(inFlight),
            note: waiting === 0 ? "" : t("overview.waiting", { n: waiting }),
          },
          {
            name: t("overview.forecast"),
            value: forecast === null ? "–" : `≈ ${dollars(forecast.cost_microdollars)}`,
            note: forecastHow,
          },
        ]}
      />
    </div>
  );
}

/** What the last 24 hours cost, by tool. */
function LastDay() {
  const { t } = useFrame();
  const since = new Date(useTime(MINUTE_MS) - 23 * HOUR_MS).setMinutes(0, 0, 0);
  const query = new URLSearchParams({ since: String(since), bin: "hour", by: "tool" });
  const asked = useAnswer("/api/usage", { query, everyMs: MINUTE_MS });
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
              <Chart label={t("overview.last-day")} chart={chart} measure="money" hasLegend />
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
    const { state, since, before } = gateway;
    const shown = shownGatewayState(gateway, at - uptime_s * 1000);
    return (
      <span class="row">
        <State state={state}>{t(`gateway.${shown}`, { n: exact(before?.requests_today ?? 0) })}</State>
        {since === null ? null : t("overview.gateway.since", { time: timeInWords(since, at) })}
      </span>
    );
  };
  const firstByteOf = ({ name }: GatewayStatus) => {
    const found = first_bytes.find(({ gateway }) => gateway === name);
    if (found === undefined) return "–";
    const title = t("overview.first-byte.of", { n: found.requests });
    return <span title={title}>{duration(found.median_ms)}</span>;
  };
  const columns: readonly Column<GatewayStatus>[] = [
    column(t("word.gateway"), ({ name }) => name),
    column(t("overview.gateway.address"), ({ base_url }) => base_url),
    column(t("word.state"), stateOf),
    numberColumn(t("word.first-byte"), firstByteOf),
  ];
  return (
    <TablePanel
      name="gateways one-line"
      title={t("overview.gateways")}
      rows={gateways}
      keyOf={({ name }) => name}
      columns={columns}
    />
  );
}

function Refusals({ records }: { readonly records: readonly ShownRecord[] }) {
  const { t } = useFrame();
  return (
    <Panel name="refusals" title={t("overview.refusals")}>
      {records.length === 0 ? <p class="empty">{t("overview.refusals.empty")}</p> : null}
      <ul class="list">
        {refusedGroups(records).map(({ record, times }) => {
          const facts = [
            times > 1 ? t("overview.refusals.times", { n: times }) : null,
            record.model,
            record.endpoint || null,
          ];
          return (
            <li key={record.id}>
              <RefusalText record={record} who={record.tool ?? t("overview.stranger")} />
              <p class="muted small">
                <Moment at={record.started_at} />
                {facts.map((fact) => (fact === null ? "" : ` · ${fact}`))}
              </p>
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}

interface SessionsProps {
  readonly now: Now;
  /** Nothing more is heard: times must not go on as if it were. */
  readonly stopped: boolean;
}

interface Row extends ToolSession {
  readonly calls: readonly RunningCall[];
}

/** The runs of agents that send requests, each with a button that stops it. */
function Sessions({ now, stopped }: SessionsProps) {
  const { t } = useFrame();
  const ticking = useTime(1000);
  const time = stopped ? now.at : Math.max(ticking, now.at);
  const rows = now.sessions.map((one) => ({
    ...one,
    calls: now.running.filter(({ tool, session }) => tool === one.tool && session === one.session),
  }));
  return (
    <TablePanel
      name="sessions one-line"
      title={t("overview.sessions")}
      aside={<span class="muted">{t("overview.sessions.count", { n: now.running_total })}</span>}
      columns={columnsFor(time, t)}
      rows={rows}
      keyOf={({ tool, session }) => `${tool} ${session}`}
      empty={t("overview.sessions.empty")}
    />
  );
}

function columnsFor(time: number, t: Translate): readonly Column<Row>[] {
  return [
    column(t("overview.tool"), ({ tool, session }) => (
      <>
        {tool} <code title={session}>{shortId(session)}</code>
      </>
    )),
    column(t("overview.stop"), ({ tool, session, stopped }) => (
      <ActionButton
        action={{ kind: stopped ? "allow-session" : "stop-session", tool, session }}
        what={`${tool} ${session}`}
      >
        {t(stopped ? "overview.session.allow" : "word.stop")}
      </ActionButton>
    )),
    numberColumn(t("overview.in-flight"), ({ calls }) => <InFlight calls={calls} time={time} />),
    numberColumn(t("word.cost"), ({ requests, cost_microdollars: cost, unknown_cost: unknown }) =>
      requests === null ? "–" : costInWords(cost, unknown),
    ),
    column(t("word.model"), ({ calls }) => modelsOf(calls)),
    numberColumn(t("overview.tokens-so-far"), ({ calls }) => <Tokens calls={calls} />),
    column(t("overview.last-request"), ({ calls, last_at: last }) =>
      agoInWords(calls.at(-1)?.started_at ?? last ?? time, time, t),
    ),
    column(t("word.project"), (row) => <Project row={row} />),
  ];
}

/** The folder's own name: the whole path is long. */
function Project({ row: { project, branch } }: { readonly row: Row }) {
  if (project === null) return <>–</>;
  return (
    <span title={project}>
      {project.split(/[/\\]/).at(-1) || project} <span class="muted">{branch}</span>
    </span>
  );
}

function modelsOf(calls: readonly RunningCall[]): string {
  const models = new Set(calls.flatMap(({ model }) => model ?? []));
  return models.size === 0 ? "–" : [...models].join(", ");
}

function InFlight({ calls, time }: { readonly calls: readonly RunningCall[]; readonly time: number }) {
  const { t } = useFrame();
  const [oldest] = calls;
  if (oldest === undefined) return <>–</>;
  const age = Math.max(0, time - oldest.started_at);
  const waiting = calls.filter((call) => call.waiting).length;
  return (
    <>
      {waiting === 0 ? null : <span class="tag">{t("overview.waiting", { n: waiting })}</span>}{" "}
      {exact(calls.length)}{" "}
      <span class="muted">{age < 60_000 ? `${Math.floor(age / 1000)} s` : duration(age)}</span>
    </>
  );
}

/** What the calls in flight answered until now. */
function Tokens({ calls }: { readonly calls: readonly RunningCall[] }) {
  const { t } = useFrame();
  const known = calls.filter((call) => call.output_tokens !== null);
  if (known.length === 0) return <>–</>;
  const tokens = exact(known.reduce((sum, call) => sum + (call.output_tokens ?? 0), 0));
  if (known.every((call) => call.tokens_by === "reported")) return <>{tokens}</>;
  return <span title={t("overview.tokens-so-far.pieces")}>≈ {tokens}</span>;
}

/** A day and a token, or the first characters of what a client sent. */
function shortId(session: string): string {
  return session.includes("/") || session.length <= 12 ? session : `${session.slice(0, 8)}…`;
}
