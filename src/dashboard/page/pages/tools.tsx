import type { ToolSettings, ToolsAnswer } from "../../api.ts";
import { Text } from "../components/text.tsx";
import { ToolRows } from "../components/tool-rows.tsx";
import { UseDialog } from "../components/use-dialog.tsx";
import { type PageProps, useFrame } from "../frame.tsx";
import type { LiveState } from "../live/live.ts";
import { useAnswer } from "../use-answer.ts";

export function ToolsPage({ state, query, setQuery }: PageProps) {
  const { t, client } = useFrame();
  const revision = state.now?.status.config.revision ?? null;
  const asked = useAnswer((signal) => client.get("/api/tools", undefined, signal), [revision]);
  const tools = asked.value === null ? [] : merged(asked.value, state);
  const used = tools.find(({ name }) => name === query.get("use")) ?? null;
  const use = (name: string | null) => {
    const next = new URLSearchParams(query);
    next.delete("for");
    if (name === null) next.delete("use");
    else next.set("use", name);
    setQuery(next, name === null ? "replace" : "push");
  };
  return (
    <>
      <div class="page-head">
        <h1>{t("tools.title")}</h1>
        <p class="muted">{asked.value?.sandbox ? <Text id="tools.sandbox" /> : t("tools.lead")}</p>
      </div>
      {asked.failure === null ? null : (
        <p class="row" role="alert">
          {t("frame.failed", { why: asked.failure })}
          <button type="button" class="plain" onClick={asked.again}>
            {t("frame.again")}
          </button>
        </p>
      )}
      {asked.value === null ? (
        asked.busy && <p class="muted">{t("frame.loading")}</p>
      ) : (
        <ToolTable answer={asked.value} tools={tools} onUse={use} />
      )}
      {asked.value !== null && used !== null ? (
        <UseDialog
          key={used.name}
          tool={used}
          answer={asked.value}
          query={query}
          setQuery={setQuery}
          onClose={() => use(null)}
        />
      ) : null}
    </>
  );
}

/** The tools of config.yaml with their current state. */
function merged({ tools }: ToolsAnswer, { now }: LiveState): ToolSettings[] {
  return tools.map((tool) => ({ ...tool, ...now?.status.tools.find(({ name }) => name === tool.name) }));
}

interface ToolTableProps {
  readonly answer: ToolsAnswer;
  readonly tools: readonly ToolSettings[];
  readonly onUse: (name: string) => void;
}

function ToolTable({ answer, tools, onUse }: ToolTableProps) {
  const { t } = useFrame();
  if (tools.length === 0) {
    return (
      <p class="panel empty">
        <Text id="tools.empty" />
      </p>
    );
  }
  const columns = ["name", "state", "group", "key", "quota", "expires", "last-use", "actions"] as const;
  return (
    <div class="panel table-wrap">
      <table class="data tools">
        <caption class="visually-hidden">{t("tools.title")}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column} scope="col">
                {t(`tools.${column}`)}
              </th>
            ))}
          </tr>
        </thead>
        {tools.map((tool) => (
          <ToolRows key={tool.name} tool={tool} answer={answer} onUse={onUse} />
        ))}
      </table>
    </div>
  );
}
