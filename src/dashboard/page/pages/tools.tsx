import type { GatewayStatus } from "../../../control/status.ts";
import type { ToolStatus } from "../../../control/tool-status.ts";
import { ActionButton } from "../components/action-dialog.tsx";
import { FullestLimit } from "../components/gauge.tsx";
import { type Column, column, numberColumn, Table } from "../components/table.tsx";
import { Ago, Text } from "../components/text.tsx";
import { agoInWords, orDash } from "../format.ts";
import { type PageProps, useFrame, useTime } from "../frame.tsx";
import { fullest, shareOf } from "../limits.ts";
import type { Translate } from "../messages/messages.ts";
import { hrefOf, hrefOfTool } from "../route.ts";
import { createForm } from "./tools/forms.ts";
import { costOfDay, gatewayAndGroup, othersOf, type ShownTool, ToolState, ToolView } from "./tools/tool.tsx";

/** All tools, or one of them. */
export function ToolsPage({ state: { now }, query, setQuery }: PageProps) {
  const { t } = useFrame();
  const name = query.get("tool");
  const { gateways, sandbox } = now.status;
  const tools = now.status.tools.map((tool) => ({
    ...tool,
    today: now.today?.tools.find((sums) => sums.tool === tool.name) ?? null,
  }));
  if (name === null)
    return (
      <ToolList tools={tools} gateways={gateways} isSandbox={sandbox} query={query} setQuery={setQuery} />
    );
  const tool = tools.find((each) => each.name === name);
  if (tool !== undefined) return <ToolView key={name} tool={tool} now={now} />;
  return (
    <p class="panel empty">
      {t("tools.none", { tool: name })} <a href={hrefOf("tools")}>{t("tools.all")}</a>
    </p>
  );
}

interface ToolListProps extends Pick<PageProps, "query" | "setQuery"> {
  readonly tools: readonly ShownTool[];
  readonly gateways: readonly GatewayStatus[];
  readonly isSandbox: boolean;
}

function ToolList({ tools, gateways, isSandbox, query, setQuery }: ToolListProps) {
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
        <p class="muted">{isSandbox ? <Text id="tools.sandbox" /> : t("tools.lead")}</p>
      </div>
      <div class="row">
        <input
          type="search"
          aria-label={t("tools.search")}
          placeholder={t("tools.search")}
          value={text}
          onInput={(event) => change("q", event.currentTarget.value)}
        />
        {isSandbox ? null : <ActionButton action={createForm(gateways, t)}>{t("form.create")}</ActionButton>}
      </div>
      <div class="panel tool-list">
        <Table
          caption={t("tools.title")}
          columns={columnsOf(tools, time, t)}
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

function matches({ name, gateway, group, state }: ToolStatus, text: string, t: Translate): boolean {
  const searched = [name, gateway, group, t(`state.${state}`)].join(" ").toLowerCase();
  const wanted = text.toLowerCase().split(" ");
  return wanted.every((word) => searched.includes(word));
}

function columnsOf(tools: readonly ShownTool[], time: number, t: Translate): Column<ShownTool>[] {
  const otherModels = ({ models_answered: models }: ShownTool) => models?.other ?? null;
  const columns: Column<ShownTool>[] = [
    column(t("word.tool"), ({ name }) => name, { id: "tool", sortBy: ({ name }) => name }),
    column(t("word.state"), (tool) => <ToolState tool={tool} />, {
      id: "state",
      sortBy: ({ state }) => t(`state.${state}`),
    }),
    numberColumn(t("tools.today"), ({ today }) => orDash(today, costOfDay), {
      id: "cost",
      sortBy: ({ today }) => today?.cost_microdollars ?? null,
    }),
    column(t("tools.limits"), ({ limits }) => <FullestLimit limits={limits} none={t("tools.unlimited")} />, {
      id: "limits",
      sortBy: ({ limits }) => {
        const limit = fullest(limits);
        return limit === null ? null : -shareOf(limit);
      },
    }),
    numberColumn(t("word.last-use"), ({ last_use: used }) => <Ago at={used} />, {
      id: "last-use",
      sortBy: ({ last_use: used }) => used,
    }),
    column(t("word.key"), (tool) => <KeyAndAge tool={tool} time={time} />, {
      id: "key",
      sortBy: ({ console }) => console?.created_at ?? null,
    }),
    column(t("word.gateway"), gatewayAndGroup, { id: "gateway", sortBy: gatewayAndGroup }),
  ];
  if (tools.some((tool) => (otherModels(tool) ?? 0) > 0))
    columns.push(
      numberColumn(t("tools.other-models"), ({ models_answered: models }) => othersOf(models, t), {
        id: "other-models",
        sortBy: otherModels,
      }),
    );
  return columns;
}

function KeyAndAge({ tool: { key, console }, time }: { readonly tool: ToolStatus; readonly time: number }) {
  const { t } = useFrame();
  const created = console?.created_at ?? null;
  return (
    <>
      {key === null ? t("word.none") : <code>{key}</code>}
      {created === null ? null : <span class="muted small"> {agoInWords(created, time, t)}</span>}
    </>
  );
}
