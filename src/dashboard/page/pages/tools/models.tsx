import { useState } from "preact/hooks";
import { NextStep } from "../../components/copy.tsx";
import { NotLoaded } from "../../components/not-loaded.tsx";
import { useFrame } from "../../frame.tsx";
import { useAnswer } from "../../use-answer.ts";

/** The models that the gateway lists for the tool's key. Only once it is opened: it costs the gateway a request. */
export function Models({ tool }: { readonly tool: string }) {
  const { t } = useFrame();
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="panel fold" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2>{t("tools.models")}</h2>
      </summary>
      {isOpen ? <ModelList tool={tool} /> : null}
    </details>
  );
}

function ModelList({ tool }: { readonly tool: string }) {
  const { t, client } = useFrame();
  const asked = useAnswer(
    (signal) => client.get("/api/models", new URLSearchParams({ tool }), signal),
    [tool],
  );
  const problem = asked.value?.models?.problem ?? null;
  const models = asked.value?.models?.models ?? [];
  if (asked.value === null)
    return asked.busy ? <p class="empty">{t("tools.models.asking")}</p> : <NotLoaded asked={asked} />;
  if (problem !== null)
    return (
      <div class="body">
        <p>{problem.why}</p>
        <NextStep text={problem.next} />
      </div>
    );
  if (models.length === 0) return <p class="empty">{t("tools.models.none")}</p>;
  return (
    <ul class="body model-names">
      {models.map(({ id, in_group: isAllowed }) => (
        <li key={id} class={isAllowed ? undefined : "muted"}>
          <code>{id}</code> {isAllowed ? null : t("tools.models.not-in-group")}
        </li>
      ))}
    </ul>
  );
}
