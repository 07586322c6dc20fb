import { costInWords, exact } from "../../../core/units.ts";
import { statusFigures } from "../../../limits/format.ts";
import type { DaySums, ToolSettings, ToolsAnswer } from "../../api.ts";
import { useAct } from "../act.ts";
import { Bar } from "../components/gauge.tsx";
import { NotLoaded } from "../components/not-loaded.tsx";
import { type Column, Table } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { agoInWords, momentInWords } from "../format.ts";
import { type Frame, type PageProps, useFrame } from "../frame.tsx";
import { fullest, limitName, shareOf } from "../limit-amount.ts";
import type { LiveState } from "../live/live.ts";
import { hrefOf } from "../route.ts";
import { useAnswer } from "../use-answer.ts";
import { useTime } from "../use-time.ts";
import { createForm } from "./tools/forms.ts";
import { State } from "./tools/state.tsx";
import { ToolView } from "./tools/tool.tsx";

/** All tools, or one of them. */
export function ToolsPage({ state, query, setQuery }: PageProps) {
  const { t, client } = useFrame();
  const revision = state.now?.status.config.revision ?? null;
  const asked = useAnswer((signal) => client.get("/api/tools", undefined, signal), [revision]);
  const name = query.get("tool");
  if (asked.value === null)
    return asked.busy ? <p class="muted">{t("frame.loading")}</p> : <NotLoaded asked={asked} />;
  const tools = withStatus(asked.value, state);
  if (name === null)
    return <ToolList answer={asked.value} tools={tools} state={state} query={query} setQuery={setQuery} />;
  const tool = tools.find((each) => each.name === name);
  if (tool === undefined)
    return (
      <p class="panel empty">
        {t("tools.none", { tool: name })} <a href={hrefOf("tools")}>{t("tools.all")}</a>
      </p>
    );
  return <ToolView key={name} tool={tool} answer={asked.value} today={todayOf(state, name)} />;
}

/** The tools of config.yaml as they are now. */
function withStatus({ tools }: ToolsAnswer, { now }: LiveState): ToolSettings[] {
  return tools.map((tool) => ({ ...tool, ...now?.status.tools.find(({ name }) => name === tool.name) }));
}

function todayOf({ now }: LiveState, name: string): DaySums | null {
  return now?.today?.tools.find(({ tool }) => tool === name) ?? null;
}

interface ToolListProps extends PageProps {
  readonly answer: ToolsAnswer;
  readonly tools: readonly ToolSettings[];
}

function ToolList({ answer, tools, state, query, setQuery }: ToolListProps) {
  const frame = useFrame();
  const { t } = frame;
  const act = useAct();
  const time = useTime(10_000);
  const text = query.get("q") ?? "";
  const change = (name: string, value: string) => {
    const next = new URLSearchParams(query);
    if (value === "") next.delete(name);
    else next.set(name, value);
    setQuery(next, "replace");
  };
  const shown = tools.filter((tool) => matches(tool, text, frame));
  return (
    <>
      <div class="page-head">
        <h1>{t("tools.title")}</h1>
        <p class="muted">{answer.sandbox ? <Text id="tools.sandbox" /> : t("tools.lead")}</p>
      </div>
      <div class="row">
        <input
          type="search"
          aria-label={t("tools.search")}
          placeholder={t("tools.search")}
          value={text}
          onInput={(event) => change("q", event.currentTarget.value)}
        />
        {answer.sandbox ? null : (
          <button type="button" class="plain" onClick={() => act(createForm(answer, t))}>
            {t("form.create")}
          </button>
        )}
      </div>
      <div class="panel tool-list one-line">
        {shown.length === 0 ? (
          <p class="empty">{tools.length === 0 ? <Text id="tools.empty" /> : t("tools.no-match")}</p>
        ) : (
          <Table
            caption={t("tools.title")}
            columns={columnsOf(tools, state, time, frame)}
            rows={shown}
            keyOf={({ name }) => name}
            sort={query.get("sort")}
            onSort={(sort) => change("sort", sort)}
            hrefOf={({ name }) => hrefOf("tools", new URLSearchParams({ tool: name }))}
          />
        )}
      </div>
    </>
  );
}

function matches({ name, gateway, group, state }: ToolSettings, text: string, { t }: Frame): boolean {
  const searched = [name, gateway, group ?? "", t(`state.${state}`)].join(" ").toLowerCase();
  return text
    .toLowerCase()
    .split(" ")
    .every((word) => searched.includes(word));
}

function columnsOf(
  tools: readonly ToolSettings[],
  state: LiveState,
  time: number,
  { t, language }: Frame,
): Column<ToolSettings>[] {
  const columns: Column<ToolSettings>[] = [
    { id: "tool", title: t("tools.name"), cell: ({ name }) => name, sortBy: ({ name }) => name },
    {
      id: "state",
      title: t("tools.state"),
      cell: (tool) => <State tool={tool} />,
      sortBy: ({ state }) => t(`state.${state}`),
    },
    {
      id: "cost",
      title: t("tools.today"),
      isNumber: true,
      cell({ name }) {
        const sums = todayOf(state, name);
        return sums === null ? "–" : costInWords(sums.cost_microdollars, sums.unknown_cost);
      },
      sortBy: ({ name }) => todayOf(state, name)?.cost_microdollars ?? null,
    },
    {
      id: "limits",
      title: t("tools.limits"),
      cell: (tool) => <FullestLimit tool={tool} />,
      sortBy({ limits }) {
        const limit = fullest(limits);
        return limit === null ? null : -shareOf(limit);
      },
    },
    {
      id: "last-use",
      title: t("tools.last-use"),
      isNumber: true,
      cell: ({ last_use: used }) =>
        used === null ? (
          t("tools.last-use.never")
        ) : (
          <span title={momentInWords(used, language)}>{agoInWords(used, time, t)}</span>
        ),
      sortBy: ({ last_use }) => last_use,
    },
    {
      id: "key",
      title: t("tools.key"),
      cell: ({ key, console }) => (
        <>
          {key === null ? t("tools.key.none") : <code>{key}</code>}
          {console === null || console.created_at === null ? null : (
            <span class="muted small"> {agoInWords(console.created_at, time, t)}</span>
          )}
        </>
      ),
      sortBy: ({ console }) => console?.created_at ?? null,
    },
    {
      id: "gateway",
      title: t("tools.gateway"),
      cell: ({ gateway, group }) => (group === null ? gateway : `${gateway} / ${group}`),
      sortBy: ({ gateway, group }) => `${gateway} ${group ?? ""}`,
    },
  ];
  if (tools.some(({ models_answered: models }) => (models?.other ?? 0) > 0))
    columns.push({
      id: "other-models",
      title: t("tools.other-models"),
      isNumber: true,
      cell: ({ models_answered: models }) =>
        models ? t("limit.of", { used: exact(models.other), most: exact(models.answered) }) : "–",
      sortBy: ({ models_answered: models }) => models?.other ?? null,
    });
  return columns;
}

function FullestLimit({ tool }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  const limit = fullest(tool.limits);
  if (limit === null) return <span class="muted">{t("tools.unlimited")}</span>;
  const { used, max } = statusFigures(limit);
  return (
    <div class="fullest">
      <span>{t("limit.of", { used: used ?? "–", most: max })}</span>{" "}
      <span class="muted small">{limitName(limit, t)}</span>
      <Bar status={limit} />
    </div>
  );
}
