import { useState } from "preact/hooks";
import type { ToolStatus } from "../../../../control/tool-status.ts";
import type { ModelsAnswer } from "../../../api.ts";
import { useFrame } from "../../frame.tsx";
import { Failed, wordsOf } from "../../live/failed.ts";

/** The gateway's model list, as each tool's key sees it. Only when asked: it costs the gateway a request. */
export function GatewayModels({ tools }: { readonly tools: readonly ToolStatus[] }) {
  const { t } = useFrame();
  if (tools.length === 0) return null;
  return (
    <section class="panel" aria-labelledby="bill-models">
      <header>
        <h2 id="bill-models">{t("bill.list.models")}</h2>
        <span class="muted small">{t("bill.list.hint")}</span>
      </header>
      <div class="body bill-asked">
        {tools.map(({ name }) => (
          <ToolModelList key={name} tool={name} />
        ))}
      </div>
    </section>
  );
}

type Asked =
  | { readonly state: "idle" | "busy" }
  | { readonly state: "failed"; readonly why: string }
  | { readonly state: "listed"; readonly models: ModelsAnswer["models"] };

function ToolModelList({ tool }: { readonly tool: string }) {
  const { t, client, live } = useFrame();
  const [asked, setAsked] = useState<Asked>({ state: "idle" });
  const ask = async () => {
    setAsked({ state: "busy" });
    try {
      const { models } = await client.get("/api/models", new URLSearchParams({ tool }));
      setAsked({ state: "listed", models });
    } catch (error) {
      if (error instanceof Failed && error.kind === "session") live.sessionOver();
      setAsked({ state: "failed", why: wordsOf(error) });
    }
  };
  return (
    <div class="bill-models" aria-live="polite">
      {asked.state === "listed" ? (
        <ModelList tool={tool} models={asked.models} />
      ) : (
        <button type="button" class="plain" disabled={asked.state === "busy"} onClick={() => void ask()}>
          {asked.state === "busy" ? t("frame.loading") : t("bill.list.ask", { tool })}
        </button>
      )}
      {asked.state === "failed" ? <p>{t("frame.failed", { why: asked.why })}</p> : null}
    </div>
  );
}

function ModelList({ tool, models }: { readonly tool: string; readonly models: ModelsAnswer["models"] }) {
  const { t } = useFrame();
  const problem = models?.problem ?? null;
  if (problem !== null) {
    return (
      <p>
        {t("bill.list.problem", { tool, why: problem.why })}{" "}
        {problem.next === null ? null : <code>{problem.next}</code>}
      </p>
    );
  }
  if (models === null || models.models.length === 0) return <p>{t("bill.list.none", { tool })}</p>;
  return (
    <>
      <h3>{t("bill.list.count", { tool, n: models.models.length })}</h3>
      <ul class="bill-model-names">
        {models.models.map(({ id, in_group: isAllowed }) => (
          <li key={id} class={isAllowed ? undefined : "muted"}>
            <code>{id}</code> {isAllowed ? null : t("bill.list.not-in-group")}
          </li>
        ))}
      </ul>
    </>
  );
}
