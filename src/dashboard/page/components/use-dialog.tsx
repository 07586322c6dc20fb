import { useId, useState } from "preact/hooks";
import {
  chooseModels,
  fieldsFor,
  isModelMissing,
  notesFor,
  SHELLS,
  type Snippet,
  switchLink,
  type Target,
} from "../../../clients/snippets.ts";
import { CLIENTS, type Client, findClient, guessClients, type Shell } from "../../../clients/table.ts";
import type { ToolSettings, ToolsAnswer } from "../../api.ts";
import { type PageProps, useFrame } from "../frame.tsx";
import { useAnswer } from "../use-answer.ts";
import { pastedToken, shellOf, snippetsFor } from "../use-settings.ts";
import { Copy } from "./copy.tsx";
import { Dialog } from "./dialog.tsx";
import { Text } from "./text.tsx";

interface UseDialogProps extends Pick<PageProps, "query" | "setQuery"> {
  readonly tool: ToolSettings;
  readonly answer: ToolsAnswer;
  readonly onClose: () => void;
}

/** The settings of a chosen program for one tool. The token is kept nowhere but in this dialog, while it is open. */
export function UseDialog({ tool, answer, query, setQuery, onClose }: UseDialogProps) {
  const { t } = useFrame();
  const guessed = guessClients(tool.name);
  const client = findClient(query.get("for") ?? "") ?? (guessed.length === 1 ? (guessed[0] ?? null) : null);
  const [token, setToken] = useState("");
  const [shell, setShell] = useState<Shell>(() => shellOf(navigator.userAgent));
  const [model, setModel] = useState<string | null>(tool.model);
  const listed = useListedModels(tool);
  const choose = (id: string) => {
    const next = new URLSearchParams(query);
    next.set("for", id);
    setQuery(next, "replace");
  };
  const target: Target = {
    origin: answer.origin,
    token: pastedToken(token) === "complete" ? token : null,
    ...(client === null ? { model } : chooseModels(client, listed.names, model)),
  };
  return (
    <Dialog title={t("use.title", { tool: tool.name })} onClose={onClose}>
      <div class="use-choices">
        <label>
          <span>{t("use.client")}</span>
          <select value={client?.id ?? ""} onChange={(event) => choose(event.currentTarget.value)}>
            {client === null ? <option value="">{t("use.client.choose")}</option> : null}
            {[...guessed, ...CLIENTS.filter((each) => !guessed.includes(each))].map(
              ({ id, name, unusable }) => (
                <option key={id} value={id}>
                  {unusable === null ? name : t("use.client.cannot", { name })}
                </option>
              ),
            )}
          </select>
        </label>
        {client === null || client.unusable !== null ? null : (
          <>
            <ModelChoice model={target.model} listed={listed.names} onChoose={setModel} />
            <label>
              <span>{t("use.shell")}</span>
              <select value={shell} onChange={(event) => setShell(event.currentTarget.value as Shell)}>
                {SHELLS.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>
            </label>
          </>
        )}
      </div>
      {client === null || listed.words === null ? null : (
        <p class="muted small" role="status">
          {listed.words}
        </p>
      )}
      <UseToken tool={tool} sandbox={answer.sandbox} token={token} onToken={setToken} />
      {client === null ? (
        <p class="empty">
          <Text id="use.choose" values={{ tool: tool.name }} />
        </p>
      ) : (
        <UseText tool={tool} client={client} target={target} shell={shell} />
      )}
    </Dialog>
  );
}

/** The models that the gateway lists for this tool, or a text while they are fetched or if they cannot be. */
function useListedModels({ name, enabled }: ToolSettings): {
  readonly names: readonly string[];
  readonly words: string | null;
} {
  const { t, client } = useFrame();
  const asked = useAnswer(
    (signal) => client.get("/api/models", new URLSearchParams({ tool: name }), signal),
    [name, enabled],
  );
  const found = asked.value?.models ?? null;
  const names = (found?.models ?? []).filter((model) => model.in_group).map(({ id }) => id);
  if (asked.busy) return { names, words: t("use.model.asking") };
  const why = asked.failure ?? found?.problem?.why ?? null;
  return { names, words: why === null ? null : t("use.model.failed", { why }) };
}

interface ModelChoiceProps {
  readonly model: string | null;
  readonly listed: readonly string[];
  readonly onChoose: (model: string) => void;
}

function ModelChoice({ model, listed, onChoose }: ModelChoiceProps) {
  const { t } = useFrame();
  const names = model === null || listed.includes(model) ? listed : [model, ...listed];
  if (names.length === 0) return null;
  return (
    <label>
      <span>{t("use.model")}</span>
      <select value={model ?? ""} onChange={(event) => onChoose(event.currentTarget.value)}>
        {names.map((each) => (
          <option key={each}>{each}</option>
        ))}
      </select>
    </label>
  );
}

interface UseTextProps {
  readonly tool: ToolSettings;
  readonly client: Client;
  readonly target: Target;
  readonly shell: Shell;
}

/** Which field takes which value, what to paste, and what is to be known. */
function UseText({ tool, client, target, shell }: UseTextProps) {
  const { t } = useFrame();
  if (client.unusable !== null) {
    return (
      <div class="stack">
        <p>{t("use.unusable", { name: client.name, why: client.unusable })}</p>
        <p>
          <Text id="use.unusable.watch" values={{ tool: tool.name }} />
        </p>
      </div>
    );
  }
  const snippets = snippetsFor(client, target, shell);
  return (
    <>
      <Fields client={client} target={target} />
      {snippets.map((snippet, at) => (
        <Paste
          key={`${snippet.way} ${snippet.kind} ${snippet.path}`}
          snippet={snippet}
          before={snippets[at - 1]}
        />
      ))}
      <ImportLink tool={tool} client={client} target={target} />
      <Notes
        tool={tool}
        client={client}
        target={target}
        typed={snippets.some(({ kind }) => kind === "env")}
      />
    </>
  );
}

function Fields({ client, target }: Pick<UseTextProps, "client" | "target">) {
  const { t } = useFrame();
  const { baseUrl, token, model } = fieldsFor(client, target);
  const rows: (readonly [string, string])[] = [
    [client.baseUrlField, baseUrl],
    ...(client.id === "url-only" ? [] : [[client.tokenField, token] as const]),
    ...(client.modelField === null || model === null ? [] : [[client.modelField, model] as const]),
  ];
  return (
    <section>
      <h3>{t("use.fields")}</h3>
      <table class="data fields">
        <thead class="visually-hidden">
          <tr>
            <th scope="col">{t("use.field")}</th>
            <th scope="col">{t("use.value")}</th>
            <th scope="col">{t("frame.copy")}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([label, value], at) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              <td>
                <code>{value}</code>
                {at === 0 && client.base === "root" ? (
                  <span class="muted small"> {t("use.without-v1")}</span>
                ) : null}
              </td>
              <td class="num">
                <Copy text={value} what={label} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="muted small">{t("use.where", { where: client.where })}</p>
    </section>
  );
}

function Paste({ snippet, before }: { readonly snippet: Snippet; readonly before: Snippet | undefined }) {
  const { t } = useFrame();
  const { kind, path, way, text } = snippet;
  const place = t(`use.way.${kind}`, { path: path ?? "" });
  const word = before === undefined ? "" : `${t(before.way === way ? "use.and" : "use.or")} `;
  return (
    <section>
      <div class="row paste-head">
        <h3>
          {word}
          {place}
        </h3>
        <Copy text={text} what={place} />
      </div>
      <pre class="snippet">{text}</pre>
    </section>
  );
}

function ImportLink({ tool, client, target }: Pick<UseTextProps, "tool" | "client" | "target">) {
  const { t } = useFrame();
  if (client.switchApp === null) return null;
  const { token } = target;
  const link = token === null ? null : switchLink(client, tool.name, { ...target, token });
  return (
    <section>
      <h3>{t("use.link")}</h3>
      {link === null ? (
        <p class="muted small">{t("use.link.token")}</p>
      ) : (
        <>
          <p class="row">
            <a href={link}>{t("use.link.open")}</a>
            <Copy text={link} what={t("use.link.open")} />
          </p>
          <p class="muted small">{t("use.link.help")}</p>
        </>
      )}
    </section>
  );
}

function Notes({
  tool,
  client,
  target,
  typed,
}: Pick<UseTextProps, "tool" | "client" | "target"> & { readonly typed: boolean }) {
  const { t } = useFrame();
  const noModel = isModelMissing(client, target);
  const values = { tool: tool.name, client: client.id };
  const writable = client.id === "claude-code" || client.id === "codex" || client.id === "opencode";
  return (
    <section>
      <h3>{t("use.notes")}</h3>
      <ul class="use-notes">
        {client.id === "url-only" && !tool.token_in_url ? (
          <li>
            <Text id="use.token-in-url" values={values} />
          </li>
        ) : null}
        {noModel ? (
          <li>
            <Text id="use.model.missing" values={values} />
          </li>
        ) : null}
        {notesFor(client, target).map((note) => (
          <li key={note}>{note}</li>
        ))}
        {typed ? <li>{t("use.history")}</li> : null}
        {writable ? (
          <li>
            <Text id="use.write" values={values} />
          </li>
        ) : null}
      </ul>
    </section>
  );
}

interface UseTokenProps {
  readonly tool: ToolSettings;
  readonly sandbox: boolean;
  readonly token: string;
  readonly onToken: (token: string) => void;
}

/** A field outside of any form, without a name: no browser offers to keep it, and nothing can send it. */
function UseToken({ tool, sandbox, token, onToken }: UseTokenProps) {
  const { t } = useFrame();
  const help = useId();
  const shape = pastedToken(token);
  const wrong = shape === "other" || shape === "incomplete";
  return (
    <div class="use-token">
      <label>
        <span>{t("use.token")}</span>
        <input
          type="text"
          autocomplete="off"
          spellcheck={false}
          placeholder="kb_…"
          value={token}
          aria-describedby={help}
          aria-invalid={wrong}
          onInput={(event) => onToken(event.currentTarget.value.trim())}
        />
      </label>
      <div id={help} class="muted small">
        {wrong ? (
          <p class="wrong" role="alert">
            {t(`use.token.${shape}`)}
          </p>
        ) : (
          <p>{t("use.token.help")}</p>
        )}
        <p>
          <Text id={sandbox ? "use.token.sandbox" : "use.token.lost"} values={{ tool: tool.name }} />
        </p>
      </div>
    </div>
  );
}
