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
  /** null: the client has no such field. */
  readonly model: string | null;
}

export const NO_TOKEN = "<token>";
export const NO_MODEL = "<model>";
export const SHELLS: readonly Shell[] = ["sh", "fish", "powershell", "cmd"];

export function settingsFor(client: Client, target: Target): readonly Snippet[] {
  return client.setups.flatMap((steps, way) =>
    steps.flatMap((step) => snippetsOf(client, step, way, target)),
  );
}

export function fieldsFor(client: Client, target: Target): Fields {
  return {
    baseUrl: fill(client.baseUrl, client, target),
    token: target.token ?? NO_TOKEN,
    model: client.modelField === null ? null : fill(client.model, client, target),
  };
}

export function notesFor(client: Client, target: Target): readonly string[] {
  return client.notes.map((note) => fill(note, client, target));
}

function snippetsOf(client: Client, step: Step, way: number, target: Target): Snippet[] {
  if (step.kind !== "env") {
    const path = step.kind === "file" ? step.path : null;
    return [{ way, kind: step.kind, format: step.format, path, text: fill(step.text, client, target) }];
  }
  const variables = Object.entries(step.set)
    .map(([name, text]) => ({ name, value: fill(text, client, target) }))
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
    set: (name, value) => `export ${name}=${quote(value)}`,
    unset: (name) => `unset ${name}`,
  },
  fish: {
    set: (name, value) => `set -gx ${name} ${quote(value)}`,
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

/** Without quotes, <token> would be a redirection. */
function quote(value: string): string {
  return /^[\w.:/@+,-]+$/.test(value) ? value : `'${value}'`;
}

function fill(text: string, client: Client, target: Target): string {
  const { origin, token } = target;
  const small = smallModel(target);
  const values: Readonly<Record<string, string>> = {
    root: origin,
    v1: `${origin}/v1`,
    base: client.base === "root" ? origin : `${origin}/v1`,
    token: token ?? NO_TOKEN,
    model: plainModel(target.model) ?? NO_MODEL,
    small: small ?? "",
  };
  return text
    .split("\n")
    .filter((line) => small !== null || !line.includes("{small}"))
    .join("\n")
    .replace(/\{(root|v1|base|token|model|small)\}/g, (whole, name: string) => values[name] ?? whole);
}

/** A client that runs a Claude model chooses its own cheap model; the gateway very likely has it. */
function smallModel(target: Target): string | null {
  const model = plainModel(target.model);
  return plainModel(target.small ?? null) ?? (model?.startsWith("claude") ? null : model);
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
