import {
  fieldsFor,
  NO_MODEL,
  notesFor,
  type Snippet,
  switchLink,
  type Target,
} from "../../../clients/snippets.ts";
import type { Client, Shell } from "../../../clients/table.ts";
import type { ToolSettings } from "../../api.ts";
import { useFrame } from "../frame.tsx";
import { snippetsFor } from "../use-settings.ts";
import { Copy } from "./copy.tsx";
import { Text } from "./text.tsx";

interface UseTextProps {
  readonly tool: ToolSettings;
  readonly client: Client;
  readonly target: Target;
  readonly shell: Shell;
}

/** Which field takes which value, what to paste, and what is to be known. */
export function UseText({ tool, client, target, shell }: UseTextProps) {
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
  const noModel = fieldsFor(client, target).model?.includes(NO_MODEL) === true;
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
