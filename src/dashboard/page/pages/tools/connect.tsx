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
import type { ToolAnswer } from "../../../tools.ts";
import { useAnswer } from "../../answer.tsx";
import { type Pair, Pairs, Select } from "../../components/panel.tsx";
import { Command, Copy, Text } from "../../components/text.tsx";
import { useFrame } from "../../frame.tsx";

/** How to point a program at keybearer as this tool. */
export function Connect({ tool, details }: { readonly tool: string; readonly details: ToolAnswer }) {
  const { t } = useFrame();
  const guessed = guessClients(tool);
  const [chosen, setChosen] = useState(guessed[0]?.id ?? "");
  const [shell, setShell] = useState<Shell>("sh");
  const client = findClient(chosen);
  const models = useAnswer(`/api/models/${encodeURIComponent(tool)}`, { fresh: String(details.enabled) });
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
        <p class="muted">{t("use.choose", { tool })}</p>
      ) : client.unusable === null ? (
        <Settings
          tool={tool}
          client={client}
          details={details}
          shell={shell}
          target={{ origin: details.origin, token: null, ...chooseModels(client, listed, details.model) }}
        />
      ) : (
        <>
          <p>{t("use.unusable", { name: client.name, problem: client.unusable })}</p>
          <p>
            <Text id="use.unusable.watch" values={{ tool }} />
          </p>
        </>
      )}
    </div>
  );
}

interface SettingsProps {
  readonly tool: string;
  readonly details: ToolAnswer;
  readonly client: Client;
  readonly shell: Shell;
  readonly target: Target;
}

function Settings({ tool, details, client, shell, target }: SettingsProps) {
  const { t } = useFrame();
  const isWritable = details.writable.includes(client.id);
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
        <Command text={(isWritable ? advice.useWrite : advice.use)(tool, client.id)} />
      </p>
      <p class="muted small">
        <Text id="use.token" values={{ tool }} />
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
        {client.id === "url-only" && !details.token_in_url ? (
          <li>
            <Text id="use.token-in-url" values={{ tool }} />
          </li>
        ) : null}
        {notesFor(client, target).map((note) => (
          <li key={note}>{note}</li>
        ))}
      </ul>
    </>
  );
}
