import { type JsonField, jsonFields, OPEN_OBJECT } from "./json-fields.ts";
import { plainPath } from "./protocols.ts";
import { FAST_TIER, serviceTier } from "./service-tiers.ts";

/** What a request's body says about its cost. */
export interface RequestFields {
  /** null: it names none. */
  readonly model: string | null;
  /**
   * Gateways may differ in which model they read. If a key occurs twice, Go, JavaScript and Python take the last one, and
   * readers that only search the text, such as gjson, take the first.
   */
  readonly ambiguous: boolean;
  readonly stream: boolean | null;
  /** As serviceTier() names it. */
  readonly serviceTier: string | null;
  /** The fields that bound the length of the answer, by path, as they are: see namedMaximum in limits/. */
  readonly lengths: Readonly<Record<string, unknown>>;
  /** false: this is neither a JSON object nor a form, or it is broken. Nothing is known of it. */
  readonly readable: boolean;
}

/** Bytes. No value of the fields below is as long. */
const MAX_VALUE = 512;
/** Of one part of a form. */
const MAX_PART_HEAD = 16 * 1024;
const LENGTHS = ["max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"];
const GENERATION_LENGTHS = ["maxOutputTokens", "candidateCount"];
const TIERS = ["service_tier", "serviceTier", "speed"];

const BROKEN: unique symbol = Symbol("broken");

const NOTHING: RequestFields = Object.freeze({
  model: null,
  ambiguous: false,
  stream: null,
  serviceTier: null,
  lengths: Object.freeze({}),
  readable: true,
});
const UNREADABLE: RequestFields = Object.freeze({ ...NOTHING, readable: false });

/** Gateways read JSON whatever its content type, so only forms are told by it. */
export function readRequest(body: Buffer, contentType: string | undefined): RequestFields {
  if (body.length === 0) return NOTHING;
  if (contentType === undefined || !/^\s*multipart\//i.test(contentType)) return readJson(body);
  const boundary = /;\s*boundary=(?:"([^"]+)"|([^\s;"]+))/i.exec(contentType);
  return boundary === null ? UNREADABLE : readForm(body, boundary[1] ?? boundary[2] ?? "");
}

/** Gemini names the model in the path, and so do OpenAI's oldest endpoints. */
export function modelInPath(endpoint: string): string | null {
  // Most paths contain neither of these, not even encoded.
  if (!/%|\/models\/|\/engines\//.test(endpoint)) return null;
  const path = plainPath(endpoint);
  const named =
    /^\/v1(?:beta)?\/models\/(.+):[A-Za-z]+$/.exec(path) ?? /^\/v1\/engines\/([^/]+)\/./.exec(path);
  const name = named?.[1];
  return name === undefined || name.length > MAX_VALUE ? null : name;
}

function readJson(body: Buffer): RequestFields {
  const fields = jsonFields(body)?.fields ?? null;
  const config = fields === null ? null : generationConfigIn(body, fields);
  if (fields === null || config === null) return UNREADABLE;
  // Go, in which most gateways are written, reads "Model" too.
  const models = fields.filter(({ key }) => key.toLowerCase() === "model").map((field) => parse(body, field));
  const lengths = valuesOf(body, fields, LENGTHS);
  const tiers = valuesOf(body, fields, TIERS);
  const { stream } = valuesOf(body, fields, ["stream"]);
  for (const [key, value] of Object.entries(valuesOf(body, config, GENERATION_LENGTHS)))
    lengths[`generationConfig.${key}`] = value;
  const all = [...models, stream, ...Object.values(lengths), ...Object.values(tiers)];
  if (all.includes(BROKEN)) return UNREADABLE;
  return {
    model: nameOf(models.at(-1)),
    ambiguous: models.length > 1 || models.some((model) => typeof model !== "string" && model !== null),
    stream: typeof stream === "boolean" ? stream : null,
    serviceTier: tiers.speed === FAST_TIER ? FAST_TIER : serviceTier(tiers.service_tier ?? tiers.serviceTier),
    lengths,
    readable: true,
  };
}

/** The fields of the last one, if it is an object; null: it is broken. */
function generationConfigIn(body: Buffer, fields: readonly JsonField[]): readonly JsonField[] | null {
  const config = fields.findLast(({ key }) => key === "generationConfig");
  if (config === undefined || body[config.from] !== OPEN_OBJECT) return [];
  return jsonFields(body, config.from)?.fields ?? null;
}

/** If a key occurs twice, its last value. */
function valuesOf(
  body: Buffer,
  fields: readonly JsonField[],
  keys: readonly string[],
): Record<string, unknown> {
  const wanted = fields.filter(({ key }) => keys.includes(key));
  return Object.fromEntries(wanted.map((field) => [field.key, parse(body, field)]));
}

/** BROKEN: this is not JSON, or too long for its field. */
function parse(body: Buffer, { from, to }: JsonField): unknown {
  if (to - from > MAX_VALUE) return BROKEN;
  try {
    return JSON.parse(body.toString("utf8", from, to));
  } catch {
    return BROKEN;
  }
}

function nameOf(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

/** A form (RFC 7578): audio, and edits of images. */
function readForm(body: Buffer, boundary: string): RequestFields {
  const parts = partsOf(body.toString("latin1"), boundary);
  if (parts === null) return UNREADABLE;
  const models: string[] = [];
  let stream: boolean | null = null;
  for (const part of parts) {
    const headEnd = part.indexOf("\r\n\r\n");
    const name = headEnd === -1 || headEnd > MAX_PART_HEAD ? null : partName(part.slice(0, headEnd));
    const value = part.slice(headEnd + 4);
    if (name === null || (name === "model" && value.length > MAX_VALUE)) return UNREADABLE;
    if (name === "model") models.push(Buffer.from(value, "latin1").toString().trim());
    if (name === "stream") stream = value === "true";
  }
  return { ...NOTHING, model: nameOf(models.at(-1)), ambiguous: models.length > 1, stream };
}

/** The parts with their heads; null: the form is broken. */
function partsOf(form: string, boundary: string): string[] | null {
  const parts = form.split(`\r\n--${boundary}`);
  const first = parts.shift() ?? "";
  // What comes before the first delimiter is ignored. The delimiter may be the first thing in the body.
  if (first.startsWith(`--${boundary}`)) parts.unshift(first.slice(boundary.length + 2));
  const last = parts.pop() ?? "";
  const isWhole = last.startsWith("--") && parts.every((part) => /^[ \t]*\r\n/.test(part));
  return isWhole ? parts : null;
}

/** A quoted value may contain anything, even what looks like another parameter. */
const PARAMETER = /;\s*([\w*-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))\s*/g;

/** null: its head is broken, or readers differ about it. RFC 7578 forbids name*=, for example, but Go decodes it. */
function partName(head: string): string | null {
  const lines = head.replace(/\r\n[ \t]+/g, " ").split("\r\n");
  const dispositions = lines.filter((line) => /^content-disposition:/i.test(line));
  const parameters = /^[^;]*:\s*form-data\s*(;.*)$/i.exec(dispositions[0] ?? "")?.[1] ?? "";
  const names = [...parameters.matchAll(PARAMETER)].filter(([, key]) => key?.toLowerCase() === "name");
  const isPlain = dispositions.length === 1 && names.length === 1 && parameters.replace(PARAMETER, "") === "";
  return isPlain ? (names[0]?.[2] ?? names[0]?.[3] ?? "").toLowerCase() : null;
}
