import type { Client, Format, Part } from "./client.ts";
import { SHELLS, shellLines } from "./shell-lines.ts";

/** What a client is to be pointed at. */
export interface Target {
  /** http://localhost:5397 */
  readonly origin: string;
  /** null: not known, because only its hash is kept. */
  readonly token: string | null;
  /** null: not known. */
  readonly model: string | null;
  /** A cheaper one for small tasks in the background. Default: none is known. */
  readonly small?: string | null;
}

/** A text ready to be pasted. */
export interface Snippet {
  /** Snippets of one way belong together; ways are alternatives. Counted from 0. */
  readonly way: number;
  /** Of an env, one for each shell. */
  readonly kind: Part["kind"];
  readonly format: Format;
  /** The file it belongs into. A file's part, to be merged: what else is there stays. */
  readonly path: string | null;
  readonly text: string;
}

/** The fields of a client and what goes into them. */
export interface Fields {
  readonly baseUrl: string;
  readonly token: string;
  /** As it is written in this client. null: it has no such field. */
  readonly model: string | null;
}

export const NO_TOKEN = "<token>";
export const NO_MODEL = "<model>";

export function settingsFor(client: Client, target: Target): readonly Snippet[] {
  if (client.unusable !== null) return [];
  return client.ways.flatMap((parts, way) => parts.flatMap((part) => snippets(client, part, way, target)));
}

export function fieldsFor(client: Client, target: Target): Fields {
  const { modelLabel, modelText = "{model}" } = client;
  return {
    baseUrl: filled(client.baseText ?? "{base}", client, target),
    token: target.token ?? NO_TOKEN,
    model: modelLabel === null ? null : filled(modelText, client, target),
  };
}

export function notesFor(client: Client, target: Target): readonly string[] {
  return client.notes.map((note) => filled(note, client, target));
}

/** For clients that cannot send a header. */
export function originWithToken({ origin, token }: Target): string {
  return `${origin}/t/${token ?? NO_TOKEN}`;
}

function snippets(client: Client, part: Part, way: number, target: Target): Snippet[] {
  const fill = (text: string) => filled(text, client, target);
  if (part.kind !== "env") {
    const path = part.kind === "file" ? part.path : null;
    return [{ way, kind: part.kind, format: part.format, path, text: fill(part.text) }];
  }
  const set = part.set.map(([name, text]) => [name, fill(text)] as const).filter(([, value]) => value !== "");
  return SHELLS.map((shell) => ({
    way,
    kind: "env",
    format: shell,
    path: null,
    text: shellLines(shell, set, part.unset ?? []),
  }));
}

function filled(text: string, client: Client, target: Target): string {
  const { origin, token } = target;
  const model = plainModel(target.model) ?? NO_MODEL;
  const small = smallModel(target);
  const values: Readonly<Record<string, string>> = {
    root: origin,
    v1: `${origin}/v1`,
    base: client.base === "root" ? origin : `${origin}/v1`,
    token: token ?? NO_TOKEN,
    model,
    small: small ?? "",
  };
  return text
    .split("\n")
    .filter((line) => small !== null || !line.includes("{small}"))
    .join("\n")
    .replace(/\{(root|v1|base|token|model|small)\}/g, (whole, name: string) => values[name] ?? whole);
}

/** Where the gateway has the models that a client asks for by itself, its own choice is the cheapest. */
export function smallModel(target: Target): string | null {
  const small = plainModel(target.small ?? null);
  const model = plainModel(target.model);
  return small ?? (model?.startsWith("claude") ? null : model);
}

/**
 * Gateways choose the names of their models, and people paste these texts into shells: a name with a quote, a dollar
 * or a line break in it is left for the person to write.
 */
export function plainModel(model: string | null): string | null {
  return model !== null && /^[\p{L}\p{N}][\p{L}\p{N} ._:/@+,()[\]#=-]{0,199}$/u.test(model) ? model : null;
}

/** The one of a gateway's models that suits this client best, and a cheaper one. */
export function chooseModels(
  client: Client,
  models: readonly string[],
): { readonly model: string | null; readonly small: string | null } {
  const plain = models.filter((model) => plainModel(model) !== null);
  // What only embeds, draws or speaks does not answer a chat.
  const chatting = plain.filter(
    (model) => !/embed|image|audio|tts|whisper|dall|moderation|rerank/i.test(model),
  );
  const first = (wanted: RegExp) => chatting.find((model) => wanted.test(model));
  const preferred = client.prefers.map(first).find((model) => model !== undefined);
  const model = preferred ?? chatting[0] ?? null;
  // Of the same maker: claude-… and claude-…, sandbox-… and sandbox-….
  const maker = /^[\p{L}]+/u.exec(model ?? "")?.[0] ?? "";
  const kin = chatting.filter((each) => each.startsWith(maker));
  return { model, small: kin.find((each) => /haiku|mini|small|flash|lite|nano/i.test(each)) ?? null };
}
