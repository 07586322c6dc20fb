import { quoteForShell } from "../core/display.ts";
import type { Client, Format, Shell, Step } from "./table.ts";

/** What a client is pointed at. */
export interface Target {
  /** http://localhost:5397 */
  readonly origin: string;
  /** null: unknown, since only its hash is stored. */
  readonly token: string | null;
  readonly model: string | null;
  /** A cheaper model for small background tasks. */
  readonly small?: string | null;
}

/** A text ready to paste. */
export interface Snippet {
  /** The index of its setup: snippets of one setup belong together, setups are alternatives. */
  readonly way: number;
  /** An env step has one snippet for each shell. */
  readonly kind: Step["kind"];
  readonly format: Format;
  /** The file the text is merged into. */
  readonly path: string | null;
  readonly text: string;
}

/** The values of a client's fields. */
export interface Fields {
  readonly baseUrl: string;
  readonly token: string;
  /** null: the client has no such field, or no model is known. */
  readonly model: string | null;
}

export const NO_TOKEN = "<token>";
export const SHELLS: readonly Shell[] = ["sh", "fish", "powershell", "cmd"];

export function settingsFor(client: Client, target: Target): readonly Snippet[] {
  const values = valuesFor(client, target);
  return client.setups.flatMap((steps, way) => steps.flatMap((step) => renderStep(step, way, values)));
}

export function fieldsFor(client: Client, target: Target): Fields {
  const values = valuesFor(client, target);
  const hasModel = client.modelField !== null && values.model !== null;
  return {
    baseUrl: fill(client.baseUrl, values),
    token: target.token ?? NO_TOKEN,
    model: hasModel ? fill(client.model, values) : null,
  };
}

/** Whether the client has a field for a model, and none is known. */
export function isModelMissing(client: Client, target: Target): boolean {
  return client.modelField !== null && plainModel(target.model) === null;
}

export function notesFor(client: Client, target: Target): readonly string[] {
  const values = valuesFor(client, target);
  return client.notes.map((note) => fill(note, values));
}

function renderStep(step: Step, way: number, values: Values): Snippet[] {
  if (step.kind !== "env") {
    const path = step.kind === "file" ? step.path : null;
    const text = step.format === "json" ? fillJson(step.text, values) : fill(step.text, values);
    return text === "" ? [] : [{ way, kind: step.kind, format: step.format, path, text }];
  }
  const variables = Object.entries(step.set)
    .map(([name, text]) => ({ name, value: fill(text, values) }))
    .filter(({ value }) => value !== "");
  return SHELLS.map((shell) => {
    const { set, unset } = SHELL_SYNTAX[shell];
    const lines = [...step.unset.map(unset), ...variables.map(({ name, value }) => set(name, value))];
    return { way, kind: "env", format: shell, path: null, text: lines.join("\n") };
  });
}

interface ShellSyntax {
  readonly set: (name: string, value: string) => string;
  readonly unset: (name: string) => string;
}

const SHELL_SYNTAX: Readonly<Record<Shell, ShellSyntax>> = {
  sh: {
    set: (name, value) => `export ${name}=${quoteForShell(value)}`,
    unset: (name) => `unset ${name}`,
  },
  fish: {
    set: (name, value) => `set -gx ${name} ${quoteForShell(value)}`,
    unset: (name) => `set -e ${name}`,
  },
  powershell: {
    set: (name, value) => `$env:${name} = '${value}'`,
    unset: (name) => `Remove-Item Env:${name} -ErrorAction Ignore`,
  },
  cmd: {
    // The quotes enclose name and value: quotes around the value alone would become part of it.
    set: (name, value) => `set "${name}=${value}"`,
    unset: (name) => `set "${name}="`,
  },
};

type Values = Readonly<Record<string, string | null>>;

/** null: not known. */
function valuesFor(client: Client, target: Target): Values {
  const { origin, token } = target;
  return {
    root: origin,
    v1: `${origin}/v1`,
    base: client.base === "root" ? origin : `${origin}/v1`,
    token: token ?? NO_TOKEN,
    model: plainModel(target.model),
    small: smallModel(target),
    background: backgroundModel(target),
  };
}

const PLACEHOLDER = /\{(root|v1|base|token|model|small|background)\}/g;

function hasUnknown(text: string, values: Values): boolean {
  return [...text.matchAll(PLACEHOLDER)].some(([, name = ""]) => values[name] === null);
}

/** A line with a value that is not known is left out. A line that ends in a backslash continues on the next one. */
function fill(text: string, values: Values): string {
  return text
    .split(/(?<!\\)\n/)
    .filter((line) => !hasUnknown(line, values))
    .join("\n")
    .replace(PLACEHOLDER, (whole, name: string) => values[name] ?? whole);
}

function fillJson(text: string, values: Values): string {
  return JSON.stringify(fillValue(JSON.parse(text), values), null, 2);
}

/** undefined: it has no content, because a value is not known. */
function fillValue(value: unknown, values: Values): unknown {
  if (typeof value === "string") return hasUnknown(value, values) ? undefined : fill(value, values);
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    // An entry of a list without its model's name would be of no use.
    const useful = value.filter((item) => !Object.values(item).some((each) => isUnknown(each, values)));
    return useful.length === 0 ? undefined : useful.map((item) => fillValue(item, values));
  }
  const known = Object.entries(value)
    .filter(([name]) => !hasUnknown(name, values))
    .map(([name, each]) => [fill(name, values), fillValue(each, values)] as const)
    .filter(([, each]) => each !== undefined);
  const isEmptied = known.length === 0 && Object.keys(value).length > 0;
  return isEmptied ? undefined : Object.fromEntries(known);
}

function isUnknown(value: unknown, values: Values): boolean {
  return typeof value === "string" && hasUnknown(value, values);
}

/** The model for small tasks, for clients that have a good choice of their own. null: leave it to the client. */
export function smallModel(target: Target): string | null {
  const model = plainModel(target.model);
  // A client that runs a Claude model chooses its own cheap model; the gateway very likely has it.
  return plainModel(target.small ?? null) ?? (model?.startsWith("claude") ? null : model);
}

/** The model for small tasks, for clients whose own choice the gateway may not have. */
export function backgroundModel(target: Target): string | null {
  return plainModel(target.small ?? null) ?? plainModel(target.model);
}

/**
 * Gateways choose the names of their models, and people paste these texts into shells. A name with a quote, a dollar sign
 * or a line break in it is left for the person to write.
 */
export function plainModel(model: string | null): string | null {
  return model !== null && /^[\p{L}\p{N}][\p{L}\p{N} ._:/@+,()[\]#=-]{0,199}$/u.test(model) ? model : null;
}

/** The chosen model, else the listed one that suits the client best; and a cheaper one of the same maker. */
export function chooseModels(
  client: Client,
  listed: readonly string[],
  chosen: string | null = null,
): { readonly model: string | null; readonly small: string | null } {
  const chat = listed.filter(
    (name) =>
      plainModel(name) !== null && !/embed|image|audio|tts|whisper|dall|moderation|rerank/i.test(name),
  );
  const preferred = client.prefers.map((pattern) => chat.find((name) => pattern.test(name)));
  const model = chosen ?? preferred.find((name) => name !== undefined) ?? chat[0] ?? null;
  // Another maker's model may not speak the client's protocol.
  const maker = makerOf(model);
  const small = chat.find(
    (name) => makerOf(name) === maker && /haiku|mini|small|flash|lite|nano/i.test(name),
  );
  return { model, small: maker === null ? null : (small ?? null) };
}

/** claude of claude-sonnet-4-5, sandbox of sandbox-large. */
function makerOf(model: string | null): string | null {
  return /^\p{L}+/u.exec(model ?? "")?.[0] ?? null;
}

/**
 * The link that imports a client's settings into the settings switcher cc-switch. cc-switch takes the endpoint as it is,
 * adds no /v1, and allows http to localhost. The link does not switch to the new entry: the person chooses when.
 */
export function switchLink(
  client: Client,
  tool: string,
  target: Target & { readonly token: string },
): string | null {
  if (client.switchApp === null) return null;
  const link = new URL("ccswitch://v1/import");
  const model = plainModel(target.model);
  const small = plainModel(target.small ?? null);
  const query = {
    resource: "provider",
    app: client.switchApp,
    name: `keybearer ${tool}`,
    endpoint: fieldsFor(client, target).baseUrl,
    apiKey: target.token,
    ...(model === null ? {} : { model }),
    ...(client.switchApp === "claude" && small !== null ? { haikuModel: small } : {}),
  };
  // %20 instead of +: a parser of deep links may not know the rules of forms.
  link.search = Object.entries(query)
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
    .join("&");
  return link.href;
}
