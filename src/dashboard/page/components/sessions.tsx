import { costInWords, duration, exact } from "../../../core/units.ts";
import type { Now, RunningCall, ToolSession } from "../../api.ts";
import { agoInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { Translate } from "../messages/messages.ts";
import { useTime } from "../use-time.ts";
import { ActionButton } from "./action-button.tsx";
import { type Column, Table } from "./table.tsx";

interface SessionsProps {
  readonly now: Now;
  /** Nothing more is heard: times must not go on as if it were. */
  readonly stopped: boolean;
}

interface Row extends ToolSession {
  readonly calls: readonly RunningCall[];
}

/** The runs of agents that send requests, each with a button that stops it. */
export function Sessions({ now, stopped }: SessionsProps) {
  const { t } = useFrame();
  const ticking = useTime();
  const time = stopped ? now.at : Math.max(ticking, now.at);
  const rows = now.sessions.map((session) => ({ ...session, calls: callsOf(session, now.running) }));
  return (
    <section class="panel sessions" aria-labelledby="sessions">
      <header>
        <h2 id="sessions">{t("overview.sessions")}</h2>
        <span class="muted">{t("overview.sessions.count", { n: now.running_total })}</span>
      </header>
      {rows.length === 0 ? (
        <p class="empty">{t("overview.sessions.empty")}</p>
      ) : (
        <Table
          caption={t("overview.sessions")}
          columns={columnsFor(time, t)}
          rows={rows}
          keyOf={({ tool, session }) => `${tool} ${session}`}
        />
      )}
    </section>
  );
}

function callsOf({ tool, session }: ToolSession, running: readonly RunningCall[]): RunningCall[] {
  return running.filter((call) => call.tool === tool && call.session === session);
}

function columnsFor(time: number, t: Translate): readonly Column<Row>[] {
  return [
    {
      id: "tool",
      title: t("overview.tool"),
      cell: ({ tool, session }) => (
        <>
          {tool} <code title={session}>{shortId(session)}</code>
        </>
      ),
    },
    { id: "stop", title: t("overview.stop"), cell: (row) => <Switch row={row} /> },
    {
      id: "in-flight",
      title: t("overview.in-flight"),
      isNumber: true,
      cell: ({ calls }) => <InFlight calls={calls} time={time} />,
    },
    {
      id: "cost",
      title: t("overview.cost"),
      isNumber: true,
      cell: ({ requests, cost_microdollars, unknown_cost }) =>
        requests === null ? "–" : costInWords(cost_microdollars, unknown_cost),
    },
    { id: "model", title: t("overview.model"), cell: ({ calls }) => modelsOf(calls) },
    {
      id: "tokens",
      title: t("overview.tokens-so-far"),
      isNumber: true,
      cell: ({ calls }) => <Tokens calls={calls} />,
    },
    {
      id: "last",
      title: t("overview.last-request"),
      cell: ({ calls, last_at: last }) => agoInWords(calls.at(-1)?.started_at ?? last ?? time, time, t),
    },
    { id: "project", title: t("overview.project"), cell: (row) => <Project row={row} /> },
  ];
}

/** The folder's own name: the whole path is long. */
function Project({ row: { project, branch } }: { readonly row: Row }) {
  if (project === null) return <>–</>;
  return (
    <span title={project}>
      {project.split(/[/\\]/).at(-1) || project}{" "}
      {branch === null ? null : <span class="muted">{branch}</span>}
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

function Switch({ row: { tool, session, stopped } }: { readonly row: Row }) {
  const { t } = useFrame();
  return (
    <ActionButton
      action={{ kind: stopped ? "allow-session" : "stop-session", tool, session }}
      what={`${tool} ${session}`}
    >
      {t(stopped ? "overview.session.allow" : "overview.session.stop")}
    </ActionButton>
  );
}

/** A day and a token, or the first characters of what a client sent. */
function shortId(session: string): string {
  return session.includes("/") || session.length <= 12 ? session : `${session.slice(0, 8)}…`;
}
