import { dirname, resolve } from "node:path";
import { AIDER } from "./described/aider.ts";
import { CLAUDE_CODE } from "./described/claude-code.ts";
import { CLINE_CLI } from "./described/cline-cli.ts";
import { CODEX } from "./described/codex.ts";
import { CONTINUE } from "./described/continue.ts";
import { COPILOT_CLI } from "./described/copilot-cli.ts";
import { CRUSH } from "./described/crush.ts";
import { APPLICATIONS, VSCODE_TERMINAL } from "./described/editors.ts";
import { GEMINI_CLI } from "./described/gemini-cli.ts";
import { GOOSE } from "./described/goose.ts";
import { LLM } from "./described/llm.ts";
import { MCP } from "./described/mcp.ts";
import { OPENCODE_AND_KILO } from "./described/opencode.ts";
import { PI } from "./described/pi.ts";
import { CONTAINERS, ENV_FILES } from "./described/projects.ts";
import { QWEN_CODE } from "./described/qwen-code.ts";
import { SESSION, SHELL } from "./described/shells.ts";
import {
  type ClientDescription,
  type ClientId,
  type ClientSettings,
  type DescribedFile,
  type Field,
  field,
  isVariableFormat,
  matchPattern,
  type Surroundings,
} from "./description.ts";
import { emptyText, type Format, type Path } from "./format.ts";
import { findVariable, suggestsKey } from "./variables.ts";

/*
 * The description of every client: where its settings are, in which order it reads them, which fields hold address, key and
 * model, and how they are written. `use`, `adopt` and `doctor` read it.
 */

export const DESCRIPTIONS: readonly ClientDescription[] = [
  CLAUDE_CODE,
  CODEX,
  ...OPENCODE_AND_KILO,
  QWEN_CODE,
  GEMINI_CLI,
  COPILOT_CLI,
  CLINE_CLI,
  CONTINUE,
  AIDER,
  LLM,
  GOOSE,
  CRUSH,
  PI,
  VSCODE_TERMINAL,
  SHELL,
  SESSION,
  ENV_FILES,
  CONTAINERS,
  MCP,
  APPLICATIONS,
];

/** Descriptions of files that hold variables for every program. */
export const SHARED: readonly ClientId[] = ["shell", "session", "env-file", "vscode-terminal"];

/** The clients whose own settings `use --write` can change. */
export const WRITABLE: readonly ClientId[] = DESCRIPTIONS.filter(({ canWrite }) => canWrite).map(
  ({ client }) => client,
);

export function findDescription(client: ClientId): ClientDescription | null {
  return DESCRIPTIONS.find((description) => description.client === client) ?? null;
}

/** The client's settings as `use --write` writes them first. Throws if it cannot. */
export function settingsOf(client: ClientId, where: Surroundings = NOWHERE): ClientSettings {
  const [first] = findDescription(client)?.writes(where) ?? [];
  if (first === undefined) throw new Error(`the settings of ${client} cannot be written`);
  return first;
}

const NOWHERE: Surroundings = { env: {}, home: "/", cwd: "/", platform: "linux", folders: [] };

/** A file that a record of --undo may name. */
export interface KnownFile {
  readonly format: Format;
  readonly empty: string;
  /**
   * What a setting holds; null: no write of keybearer changes it there. mayBeAny: a variable may have any name, because the
   * settings of a client can name one of its own for a key.
   */
  field(path: Path, mayBeAny: boolean): Omit<Field, "path"> | null;
}

/** null: keybearer would not write this file for the client. */
export function findFile(client: ClientId, path: string, where: Surroundings): KnownFile | null {
  const description = findDescription(client);
  if (description === null || resolve(path) !== path) return null;
  const written = description.mayWrite(where).filter((settings) => settings.files(where).includes(path));
  // A project's files are described by its folder, and they may be one level deeper.
  const folders = [dirname(path), dirname(dirname(path)), ...where.folders];
  const file = description
    .files({ ...where, folders })
    .find((each) => each.path === path && each.byHand === null && !each.isOpaque);
  const format = written[0]?.format ?? file?.format;
  if (format === undefined || format === "text") return null;
  const fields = [
    ...written.flatMap((settings) => settings.fields),
    ...(file === undefined ? [] : fieldsOf(file)),
  ];
  return {
    format,
    empty: written[0]?.empty ?? emptyText(format),
    field: (setting, mayBeAny) =>
      fields.find((each) => matchPattern(each.path, setting) !== null) ??
      (file === undefined ? null : variableField(file, setting, mayBeAny)),
  };
}

/** The fields that `adopt` may change in a file, apart from variables. */
export function fieldsOf({ keys }: DescribedFile): readonly Field[] {
  return keys
    .filter(({ move, isName }) => move !== "by hand" && !isName)
    .flatMap(({ key, address, within, companions }): Field[] => [
      { path: key, holds: "key", within },
      ...(address === null ? [] : [field(address, "address")]),
      ...companions.map((path) => field(path)),
    ]);
}

const VARIABLE_NAME = /^[A-Za-z_]\w*$/;

/** What a variable in a described file holds; null: it is none that matters here. */
function variableField(
  { format, variables }: DescribedFile,
  path: Path,
  mayBeAny: boolean,
): Omit<Field, "path"> | null {
  if (variables === null) return null;
  // In a file of variables the number of the assignment follows.
  const depth = variables.length + (isVariableFormat(format) ? 2 : 1);
  const name = path[variables.length];
  const isBelow = path.length === depth && variables.every((part, index) => part === path[index]);
  if (!isBelow || typeof name !== "string" || !VARIABLE_NAME.test(name)) return null;
  const role = findVariable(name)?.role ?? (mayBeAny || suggestsKey(name) ? "key" : null);
  if (role === null) return null;
  if (role === "address") return field([], "address");
  return field([], role === "cloud" ? "other" : "key");
}
