import { useState } from "preact/hooks";
import {
  chooseModels,
  fieldsFor,
  notesFor,
  SHELLS,
  settingsFor,
  type Target,
} from "../../../../clients/snippets.ts";
import { CLIENTS, type Client, findClient, guessClients, type Shell } from "../../../../clients/table.ts";
import { advice } from "../../../../core/advice.ts";
import type { ToolSettings, ToolsAnswer } from "../../../api.ts";
import { useAnswer } from "../../answer.tsx";
import { type Pair, Pairs, Select } from "../../components/panel.tsx";
import { Command, Copy, Text } from "../../components/text.tsx";
import { useFrame } from "../../frame.tsx";

/** How to point a program at keybearer as this tool. */
export function Connect({ tool, answer }: { readonly tool: ToolSettings; readonly answer: ToolsAnswer }) {
  const { t } = useFrame();
  const guessed = guessClients(tool.name);
  const [chosen, setChosen] = useState(guessed[0]?.id ?? "");
  const [shell, setShell] = useState<Shell>("sh");
  const client = findClient(chosen);
  const models = useAnswer("/api/models", {
    query: new URLSearchParams({ tool: tool.name }),
    fresh: String(tool.enabled),
  });
  const listed = (models.value?.models?.models ?? []).filter((model) => model.in_group).map(({ id }) => id);
  const clients = [...guessed, ...CLIENTS.filter((each) => !guessed.includes(each))];
  return (
    <div class="body stack">
      <div class="row">
        <Select
          label={t("use.client")}
          value={chosen}
          choices={[["", t("use.client.choose")], ...clients.map(({ id, name }) => [id, name] as const)]}
          onChoose={setChosen}
        />
        <Select
          label={t("use.shell")}
          value={shell}
          choices={SHELLS.map((each) => [each, each])}
          onChoose={setShell}
        />
      </div>
      {client === null ? (
        <p class="muted">{t("use.choose", { tool: tool.name })}</p>
      ) : client.unusable === null ? (
        <Settings
          tool={tool}
          client={client}
          isWritable={answer.writable.includes(client.id)}
          shell={shell}
          target={{ origin: answer.origin, token: null, ...chooseModels(client, listed, tool.model) }}
        />
      ) : (
        <>
          <p>{t("use.unusable", { name: client.name, problem: client.unusable })}</p>
          <p>
            <Text id="use.unusable.watch" values={{ tool: tool.name }} />
          </p>
        </>
      )}
    </div>
  );
}

interface SettingsProps {
  readonly tool: ToolSettings;
  readonly client: Client;
  readonly isWritable: boolean;
  readonly shell: Shell;
  readonly target: Target;
}

function Settings({ tool, client, isWritable, shell, target }: SettingsProps) {
  const { t } = useFrame();
  const { baseUrl, token, model } = fieldsFor(client, target);
  const fields: Pair[] = [[client.baseUrlField, <Command text={baseUrl} />]];
  if (client.id !== "url-only") fields.push([client.tokenField, <Command text={token} />]);
  if (client.modelField !== null && model !== null)
    fields.push([client.modelField, <Command text={model} />]);
  // Of what is written for each shell, only what is for this one.
  const snippets = settingsFor(client, target).filter(
    ({ kind, format }) => kind !== "env" || format === shell,
  );
  return (
    <>
      <p>
        {t(isWritable ? "use.write" : "use.print")}{" "}
        <Command text={(isWritable ? advice.useWrite : advice.use)(tool.name, client.id)} />
      </p>
      <p class="muted small">
        <Text id="use.token" values={{ tool: tool.name }} />
      </p>
      <Pairs pairs={fields} />
      <p class="muted small">{t("use.where", { where: client.where })}</p>
      {snippets.map(({ kind, path, way, text }, at) => {
        const before = snippets[at - 1];
        const joined = before === undefined ? "" : `${t(before.way === way ? "use.and" : "use.or")} `;
        const place = t(`use.way.${kind}`, { path: path ?? "" });
        return (
          <div key={`${way} ${kind} ${path}`} class="stack">
            <p class="row">
              {joined}
              {place} <Copy text={text} what={place} />
            </p>
            <pre>{text}</pre>
          </div>
        );
      })}
      <ul>
        {client.id === "url-only" && !tool.token_in_url ? (
          <li>
            <Text id="use.token-in-url" values={{ tool: tool.name }} />
          </li>
        ) : null}
        {notesFor(client, target).map((note) => (
          <li key={note}>{note}</li>
        ))}
      </ul>
    </>
  );
}
