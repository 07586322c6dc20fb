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
import { Command, Copy } from "../../components/copy.tsx";
import { Pairs } from "../../components/pairs.tsx";
import { Text } from "../../components/text.tsx";
import { useFrame } from "../../frame.tsx";
import { useAnswer } from "../../use-answer.ts";

interface ConnectProps {
  readonly tool: ToolSettings;
  readonly answer: ToolsAnswer;
}

/** How to point a program at keybearer as this tool. The gateway is asked for its models once it is opened. */
export function Connect(props: ConnectProps) {
  const { t } = useFrame();
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="panel fold" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2>{t("use.title")}</h2>
      </summary>
      {isOpen ? <ClientChoice {...props} /> : null}
    </details>
  );
}

function ClientChoice({ tool, answer }: ConnectProps) {
  const { t, client: api } = useFrame();
  const guessed = guessClients(tool.name);
  const [chosen, setChosen] = useState(guessed[0]?.id ?? "");
  const [shell, setShell] = useState<Shell>("sh");
  const client = findClient(chosen);
  const models = useAnswer(
    (signal) => api.get("/api/models", new URLSearchParams({ tool: tool.name }), signal),
    [tool.name, tool.enabled],
  );
  const listed = (models.value?.models?.models ?? []).filter((model) => model.in_group).map(({ id }) => id);
  return (
    <div class="body stack">
      <div class="row">
        <label class="row">
          <span>{t("use.client")}</span>
          <select value={chosen} onChange={(event) => setChosen(event.currentTarget.value)}>
            <option value="">{t("use.client.choose")}</option>
            {[...guessed, ...CLIENTS.filter((each) => !guessed.includes(each))].map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label class="row">
          <span>{t("use.shell")}</span>
          <select value={shell} onChange={(event) => setShell(event.currentTarget.value as Shell)}>
            {SHELLS.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
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
          <p>{t("use.unusable", { name: client.name, why: client.unusable })}</p>
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
  const fields: (readonly [string, string])[] = [
    [client.baseUrlField, baseUrl],
    ...(client.id === "url-only" ? [] : [[client.tokenField, token] as const]),
    ...(client.modelField === null || model === null ? [] : [[client.modelField, model] as const]),
  ];
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
      <Pairs
        pairs={fields.map(([name, value]) => [
          name,
          <>
            <code>{value}</code> <Copy text={value} what={name} />
          </>,
        ])}
      />
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
            <pre class="snippet">{text}</pre>
          </div>
        );
      })}
      <ul class="notes">
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
