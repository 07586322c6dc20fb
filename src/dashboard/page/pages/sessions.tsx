import type { ComponentChildren } from "preact";
import { costInWords, exact } from "../../../core/units.ts";
import type { Now, RunningCall, ToolSession } from "../../api.ts";
import { ActionButton } from "../components/action-dialog.tsx";
import { FullestLimit } from "../components/gauge.tsx";
import { type Column, column, numberColumn, TablePanel } from "../components/table.tsx";
import { agoInWords, joined, orDash, spanInWords } from "../format.ts";
import { useFrame, useTime } from "../frame.tsx";
import type { Translate } from "../messages/messages.ts";
import { giveForm } from "./tools/forms.ts";

interface SessionsProps {
  readonly title: string;
  readonly aside?: ComponentChildren;
  readonly empty: string;
  readonly sessions: readonly ToolSession[];
  readonly running: Now["running"];
  /** They are of several tools. */
  readonly hasTools: boolean;
}

interface Row extends ToolSession {
  readonly calls: readonly RunningCall[];
}

/** The runs of agents that send requests, each with a button that stops it. */
export function Sessions({ title, aside, empty, sessions, running, hasTools }: SessionsProps) {
  const { t } = useFrame();
  const time = useTime(1000);
  // The newest first: in an order by last use each request would move them.
  const beganAt = ({ started_at: at }: ToolSession) => at ?? Number.MAX_SAFE_INTEGER;
  const rows = sessions
    .toSorted((a, b) => beganAt(b) - beganAt(a))
    .map((one) => ({
      ...one,
      calls: running.filter(({ tool, session }) => tool === one.tool && session === one.session),
    }));
  const columns: Column<Row>[] = [
    column(t(hasTools ? "sessions.tool" : "usage.by.session"), ({ tool, session }) => (
      <>
        {hasTools ? tool : null} <code title={session}>{shortId(session)}</code>
      </>
    )),
    column(t("tools.actions"), (row) => (
      <Actions session={row} what={hasTools ? `${row.tool} ${row.session}` : row.session} />
    )),
    numberColumn(t("overview.in-flight"), (row) => inFlightInWords(row, time, t)),
    numberColumn(t("limit.requests"), ({ requests }) => orDash(requests, exact)),
    numberColumn(t("word.cost"), ({ cost_microdollars, unknown_cost }) =>
      orDash(cost_microdollars, (cost) => costInWords(cost, unknown_cost)),
    ),
    column(t("word.model"), ({ calls }) => modelsOf(calls) || "–"),
    numberColumn(t("sessions.tokens"), ({ calls }) => <Tokens calls={calls} />),
    column(t("sessions.last"), ({ calls, last_at }) =>
      orDash(calls.at(-1)?.started_at ?? last_at, (at) => agoInWords(at, time, t)),
    ),
    column(t("word.project"), ({ project, branch }) => (
      <span title={project ?? ""}>
        {orDash(project, folderName)} <span class="muted">{branch}</span>
      </span>
    )),
  ];
  if (sessions.some(({ limits }) => limits.length > 0))
    columns.push(column(t("tools.limits"), ({ limits }) => <FullestLimit limits={limits} none="–" />));
  return (
    <TablePanel
      name="sessions"
      title={title}
      aside={aside}
      columns={columns}
      rows={rows}
      keyOf={({ tool, session }) => `${tool} ${session}`}
      empty={empty}
    />
  );
}

/** @param what whose buttons they are, for who cannot see it beside them */
function Actions({
  session: { tool, session, stopped, limits },
  what,
}: {
  readonly session: ToolSession;
  readonly what: string;
}) {
  const { t } = useFrame();
  return (
    <div class="row">
      <ActionButton action={{ kind: stopped ? "allow-session" : "stop-session", tool, session }} what={what}>
        {t(stopped ? "sessions.allow" : "sessions.stop")}
      </ActionButton>
      {limits.length === 0 ? null : (
        <ActionButton action={giveForm(tool, session, limits, t)} what={what}>
          {t("tools.give")}
        </ActionButton>
      )}
    </div>
  );
}

/** How many there are, and for how long the oldest. */
function inFlightInWords({ stopped, calls }: Row, time: number, t: Translate): string {
  const [oldest] = calls;
  const waiting = calls.filter((call) => call.waiting).length;
  const parts = [
    stopped ? t("sessions.stopped") : null,
    oldest === undefined ? null : `${exact(calls.length)} (${spanInWords(time - oldest.started_at, t)})`,
    waiting === 0 ? null : t("overview.waiting", { n: waiting }),
  ];
  return joined(parts, t) || "–";
}

/** What the calls in flight answered until now. */
function Tokens({ calls }: Pick<Row, "calls">) {
  const { t } = useFrame();
  const known = calls.filter((call) => call.output_tokens !== null);
  if (known.length === 0) return <>–</>;
  const tokens = exact(known.reduce((sum, call) => sum + (call.output_tokens ?? 0), 0));
  if (known.every((call) => call.tokens_by === "reported")) return <>{tokens}</>;
  return <span title={t("sessions.tokens.pieces")}>≈ {tokens}</span>;
}

function modelsOf(calls: readonly RunningCall[]): string {
  return [...new Set(calls.flatMap(({ model }) => model ?? []))].join(", ");
}

/** A day and a token, or the first characters of what a client sent. */
function shortId(session: string): string {
  return session.includes("/") || session.length <= 12 ? session : `${session.slice(0, 8)}…`;
}

function folderName(path: string): string {
  return path.split(/[/\\]/).at(-1) || path;
}
