import { costInWords, exact } from "../../../core/units.ts";
import type { DaySums, ToolSettings, ToolsAnswer } from "../../api.ts";
import { Answered, useAnswer } from "../answer.tsx";
import { ActionButton } from "../components/action-dialog.tsx";
import { FullestLimit } from "../components/gauge.tsx";
import { type Column, Table } from "../components/table.tsx";
import { Ago, Text } from "../components/text.tsx";
import { agoInWords } from "../format.ts";
import { type PageProps, type ShownState, useFrame, useTime } from "../frame.tsx";
import { fullest, shareOf } from "../limits.ts";
import type { Translate } from "../messages/messages.ts";
import { hrefOf, hrefOfTool } from "../route.ts";
import { createForm } from "./tools/forms.ts";
import { ToolState, ToolView } from "./tools/tool.tsx";

/** All tools, or one of them. */
export function ToolsPage({ state, query, setQuery }: PageProps) {
  const { t } = useFrame();
  const asked = useAnswer("/api/tools", { on: state.now.status.config.revision });
  const name = query.get("tool");
  return (
    <Answered asked={asked}>
      {(answer) => {
        const tools = withStatus(answer, state);
        if (name === null)
          return <ToolList answer={answer} tools={tools} state={state} query={query} setQuery={setQuery} />;
        const tool = tools.find((each) => each.name === name);
        if (tool !== undefined)
          return <ToolView key={name} tool={tool} answer={answer} today={todayOf(state, name)} />;
        return (
          <p class="panel empty">
            {t("tools.none", { tool: name })} <a href={hrefOf("tools")}>{t("tools.all")}</a>
          </p>
        );
      }}
    </Answered>
  );
}

/** The tools of config.yaml as they are now. */
function withStatus({ tools }: ToolsAnswer, { now }: ShownState): ToolSettings[] {
  return tools.map((tool) => ({ ...tool, ...now.status.tools.find(({ name }) => name === tool.name) }));
}

function todayOf({ now }: ShownState, name: string): DaySums | null {
  return now.today?.tools.find(({ tool }) => tool === name) ?? null;
}

interface ToolListProps extends PageProps {
  readonly answer: ToolsAnswer;
  readonly tools: readonly ToolSettings[];
}

function ToolList({ answer, tools, state, query, setQuery }: ToolListProps) {
  const { t } = useFrame();
  const time = useTime();
  const text = query.get("q") ?? "";
  const change = (name: string, value: string) => {
    const next = new URLSearchParams(query);
    if (value === "") next.delete(name);
    else next.set(name, value);
    setQuery(next, "replace");
  };
  return (
    <>
      <div class="row">
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
          <ActionButton action={createForm(answer, t)}>{t("form.create")}</ActionButton>
        )}
      </div>
      <div class="panel tool-list one-line">
        <Table
          caption={t("tools.title")}
          columns={columnsOf(tools, state, time, t)}
          rows={tools.filter((tool) => matches(tool, text, t))}
          keyOf={({ name }) => name}
          sort={query.get("sort")}
          onSort={(sort) => change("sort", sort)}
          hrefOf={({ name }) => hrefOfTool(name)}
          empty={tools.length === 0 ? <Text id="tools.empty" /> : t("tools.no-match")}
        />
      </div>
    </>
  );
}

function matches({ name, gateway, group, state }: ToolSettings, text: string, t: Translate): boolean {
  const searched = [name, gateway, group, t(`state.${state}`)].join(" ").toLowerCase();
  const wanted = text.toLowerCase().split(" ");
  return wanted.every((word) => searched.includes(word));
}

function columnsOf(
  tools: readonly ToolSettings[],
  state: ShownState,
  time: number,
  t: Translate,
): Column<ToolSettings>[] {
  const columns: Column<ToolSettings>[] = [
    { id: "tool", title: t("word.tool"), cell: ({ name }) => name, sortBy: ({ name }) => name },
    {
      id: "state",
      title: t("word.state"),
      cell: (tool) => <ToolState tool={tool} />,
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
      cell: ({ limits }) => <FullestLimit limits={limits} none={t("tools.unlimited")} />,
      sortBy({ limits }) {
        const limit = fullest(limits);
        return limit === null ? null : -shareOf(limit);
      },
    },
    {
      id: "last-use",
      title: t("word.last-use"),
      isNumber: true,
      cell: ({ last_use: used }) => <Ago at={used} />,
      sortBy: ({ last_use: used }) => used,
    },
    {
      id: "key",
      title: t("word.key"),
      cell: ({ key, console }) => (
        <>
          {key === null ? t("word.none") : <code>{key}</code>}
          {console === null || console.created_at === null ? null : (
            <span class="muted small"> {agoInWords(console.created_at, time, t)}</span>
          )}
        </>
      ),
      sortBy: ({ console }) => console?.created_at ?? null,
    },
    {
      id: "gateway",
      title: t("word.gateway"),
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
