import {
  fieldsFor,
  notesFor,
  SHELLS,
  type Snippet,
  settingsFor,
  type Target,
} from "../../clients/snippets.ts";
import { CLIENTS, type Client, guessClients, type Shell } from "../../clients/table.ts";
import { advice } from "../../core/advice.ts";
import { formatNote, type Note } from "../ui/messages.ts";
import { columnsFor, renderTable } from "../ui/table.ts";
import { printable, printableLines, textWidth, wrap } from "../ui/text.ts";
import type { FoundTool } from "./tool.ts";

export interface Settings {
  readonly tool: FoundTool;
  readonly client: Client;
  readonly target: Target;
  /** Why no model is known; null: one is, or none is needed. */
  readonly noModel: Note | null;
}

/** Which field takes which value, what to paste, and notes. */
export function formatSettings(settings: Settings, shell: Shell, width: number): string {
  const { tool, client, target } = settings;
  const lines = [printable(`${client.name}, for the tool ${tool.name}`), "", ...fieldLines(settings, width)];
  const snippets = settingsFor(client, target).filter(
    ({ kind, format }) => kind !== "env" || format === shell,
  );
  for (const [at, snippet] of snippets.entries())
    lines.push("", printable(heading(snippet, snippets[at - 1])), "", printableLines(snippet.text));
  const notes: Note[] = notesFor(client, target).map((what) => ({ what, next: null }));
  notes.push(...missingNotes(settings), GATEWAY_401_NOTE);
  if (snippets.some(({ kind }) => kind === "env")) notes.push(HISTORY_NOTE);
  if (notes.length > 0) lines.push("", ...notes.map((note) => formatNote(note, width)));
  return `${lines.join("\n")}\n`;
}

const HISTORY_NOTE: Note = {
  what: "lines typed into a shell stay in its history, the token too: better put them into its profile",
  next: null,
};

const GATEWAY_401_NOTE: Note = {
  what: 'a 401 whose text does not begin with "keybearer:" comes from the gateway',
  next: advice.status(),
};

function fieldLines(settings: Settings, width: number): string[] {
  const { client, target } = settings;
  const { baseUrl, token, model } = fieldsFor(client, target);
  const suffix = client.base === "root" ? " (without /v1)" : "";
  const rows: (readonly [string, string])[] = [
    [client.baseUrlField, `${baseUrl}${suffix}`],
    ...(client.id === "url-only" ? [] : [[client.tokenField, token] as const]),
    ...(client.modelField === null || model === null ? [] : [[client.modelField, model] as const]),
  ];
  const labelWidth = Math.min(26, Math.max(...rows.map(([label]) => textWidth(label))));
  return [
    ...rows.flatMap(([label, value]) => fieldLine(printable(label), printable(value), labelWidth, width)),
    ...wrap(printable(`in: ${client.where}`), width - 2)
      .split("\n")
      .map((line) => `  ${line}`),
  ];
}

/** A value to be copied is not broken; if it is too long, it has its own line. */
function fieldLine(label: string, value: string, labelWidth: number, width: number): string[] {
  const line = `  ${label}${" ".repeat(Math.max(0, labelWidth - textWidth(label)))}  ${value}`;
  return textWidth(line) <= width ? [line] : [`  ${label}`, `    ${value}`];
}

function heading({ kind, path, way, format }: Snippet, before: Snippet | undefined): string {
  const conjunction = before === undefined ? "" : before.way === way ? "and " : "or ";
  switch (kind) {
    case "env":
      return `${conjunction}in the shell that starts it (${format}; --shell ${SHELLS.filter((each) => each !== format).join(", ")}):`;
    case "file":
      return `${conjunction}in ${path}, beside what is there:`;
    case "code":
      return `${conjunction}in your program:`;
    case "command":
      return `${conjunction}once in a shell:`;
  }
}

/** What is missing, and how to get it. */
function missingNotes({ tool, client, target, noModel }: Settings): Note[] {
  const guessed = guessClients(tool.name);
  const isGuessed = guessed.length === 1 && guessed[0] === client;
  const command = advice.useNewToken(tool.name, isGuessed ? null : client.id);
  const notes: Note[] = [];
  if (target.token === null)
    notes.push(
      tool.isSandbox
        ? { what: `<token> is the one that \`${advice.run()}\` printed; each run has a new one`, next: null }
        : {
            what:
              tool.tokens.length === 0
                ? "<token>: the tool has none yet"
                : "<token>: it was shown when it was created, and only its hash is kept. lost it, or one more client?",
            next: command,
          },
    );
  if (noModel !== null) notes.push(noModel);
  if (client.id === "url-only" && !tool.tokenInUrl)
    notes.push({
      what: `the token is not accepted in the address yet: set tools.${tool.name}.token_in_url: true`,
      next: null,
    });
  return notes;
}

/** Why there are no settings, and what is possible without. */
export function formatUnusable({ tool, client }: Settings, width: number): string {
  const lines = [
    `${client.name} cannot be pointed at keybearer: ${client.unusable}.`,
    `it needs a key of its own, in its own settings. with watch_only: true for ${tool.name} in config.yaml, keybearer still shows what that key uses, from the gateway's console (${advice.mirror()}).`,
  ];
  return `${lines.map((line) => wrap(printable(line), width)).join("\n")}\n`;
}

/** The list to choose from if the tool's name fits no client, or several; null: no tool was named. */
export function formatClients(
  tool: string | null,
  choice: readonly Client[],
  width: number,
  newToken = false,
): string {
  const what = describeList(tool, choice);
  const { text } = columnsFor(choice);
  const table = renderTable(
    [
      text("client", 0, ({ id }) => id),
      text("what it is", 0, ({ name }) => name),
      text("base URL", 1, addressShape),
    ],
    width,
  );
  const next = (newToken ? advice.useNewToken : advice.use)(tool ?? "<tool>", "<client>");
  return `${formatNote({ what, next }, width)}\n\n${table}\n`;
}

function describeList(tool: string | null, choice: readonly Client[]): string {
  if (tool === null) return "the clients that keybearer has settings for";
  if (choice.length < CLIENTS.length) return `${tool} may be one of these`;
  return `which program is ${tool}? its name does not say`;
}

function addressShape({ base, unusable }: Client): string {
  if (unusable !== null) return "cannot";
  return base === "root" ? "without /v1" : "with /v1";
}

/** For --json, with the lines of every shell. */
export function settingsJson(settings: Settings, link: string | null): unknown {
  const { tool, client, target } = settings;
  const { baseUrl, model } = fieldsFor(client, target);
  const isUsable = client.unusable === null;
  return {
    tool: tool.name,
    client: client.id,
    name: client.name,
    unusable: client.unusable,
    base_url_field: client.baseUrlField,
    base_url: isUsable ? baseUrl : null,
    where: client.where,
    token_field: client.tokenField,
    token: target.token,
    model_field: client.modelField,
    model: isUsable ? model : null,
    snippets: settingsFor(client, target),
    notes: notesFor(client, target),
    link,
  };
}

export function clientsJson(tool: string | null, choice: readonly Client[]): unknown {
  return {
    tool,
    client: null,
    clients: choice.map(({ id, name, baseUrlField, base, unusable }) => ({
      id,
      name,
      base_url_field: baseUrlField,
      base,
      unusable,
    })),
  };
}
