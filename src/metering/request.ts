import type { Chunks } from "./chunks.ts";
import { type JsonField, type JsonFields, jsonFields, OPEN_OBJECT } from "./json-fields.ts";
import { plainPath } from "./protocols.ts";
import { FAST_TIER, serviceTier } from "./service-tiers.ts";

/** What a request's body says about its cost. */
export interface RequestFields {
  /** null: it names none. */
  readonly model: string | null;
  /**
   * Gateways may read different models. If a key occurs twice, Go, JavaScript and Python take the last one; gjson, which only
   * searches the text, takes the first.
   */
  readonly ambiguous: boolean;
  readonly stream: boolean | null;
  /** As serviceTier() names it. */
  readonly serviceTier: string | null;
  /** The fields that bound the length of the response, by path, as they are: see namedMaximum in limits/. */
  readonly lengths: Readonly<Record<string, unknown>>;
  /** false: the body is broken, or neither a JSON object nor a form. */
  readonly readable: boolean;
}

/** Bytes. No value of the fields below is as long. */
const MAX_VALUE = 512;
/** Of one part of a form. */
const MAX_PART_HEAD = 16 * 1024;
const LENGTHS = ["max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"];
const GENERATION_LENGTHS = ["maxOutputTokens", "candidateCount"];
const OTHERS = ["stream", "service_tier", "serviceTier", "speed"];
const NO_FIELDS: Pick<JsonFields, "fields"> = Object.freeze({ fields: [] });

const BROKEN: unique symbol = Symbol("broken");

export const NOTHING_READ: RequestFields = Object.freeze({
  model: null,
  ambiguous: false,
  stream: null,
  serviceTier: null,
  lengths: Object.freeze({}),
  readable: true,
});
const UNREADABLE: RequestFields = Object.freeze({ ...NOTHING_READ, readable: false });

/** Gateways read JSON whatever its content type, so the content type matters only for forms. */
export function readRequest(body: Chunks, contentType: string | undefined): RequestFields {
  if (body.length === 0) return NOTHING_READ;
  if (contentType === undefined || !/^\s*multipart\//i.test(contentType)) return readJson(body);
  const boundary = /;\s*boundary=(?:"([^"]+)"|([^\s;"]+))/i.exec(contentType);
  return boundary === null ? UNREADABLE : readForm(body.joined(), boundary[1] ?? boundary[2] ?? "");
}

/** Gemini names the model in the path, and so do OpenAI's oldest endpoints. */
export function modelInPath(endpoint: string): string | null {
  const path = plainPath(endpoint);
  const named =
    /^\/v1(?:beta)?\/models\/(.+):[A-Za-z]+$/.exec(path) ?? /^\/v1\/engines\/([^/]+)\/./.exec(path);
  const name = named?.[1];
  return name === undefined || name.length > MAX_VALUE ? null : name;
}

function readJson(body: Chunks): RequestFields {
  const outer = jsonFields(body);
  const config = outer?.fields.findLast(({ key }) => key === "generationConfig");
  const hasConfig = config !== undefined && body.at(config.from) === OPEN_OBJECT;
  const inner = hasConfig ? jsonFields(body, config.from) : NO_FIELDS;
  if (outer === null || inner === null) return UNREADABLE;
  // Go, in which most gateways are written, reads "Model" too.
  const models = outer.fields.filter(({ key }) => key.toLowerCase() === "model");
  const names = models.map((field) => parse(body, field));
  const lengths: Record<string, unknown> = {};
  const others: Record<string, unknown> = {};
  for (const field of outer.fields) {
    if (LENGTHS.includes(field.key)) lengths[field.key] = parse(body, field);
    else if (OTHERS.includes(field.key)) others[field.key] = parse(body, field);
  }
  for (const field of inner.fields)
    if (GENERATION_LENGTHS.includes(field.key)) lengths[`generationConfig.${field.key}`] = parse(body, field);
  const all = [...names, ...Object.values(lengths), ...Object.values(others)];
  if (all.includes(BROKEN)) return UNREADABLE;
  const { stream, speed } = others;
  return {
    model: readName(names.at(-1)),
    ambiguous: names.length > 1 || names.some((name) => typeof name !== "string" && name !== null),
    stream: typeof stream === "boolean" ? stream : null,
    serviceTier: speed === FAST_TIER ? FAST_TIER : serviceTier(others.service_tier ?? others.serviceTier),
    lengths,
    readable: true,
  };
}

/** BROKEN: the value is not JSON, or too long for its field. */
function parse(body: Chunks, { from, to }: JsonField): unknown {
  if (to - from > MAX_VALUE) return BROKEN;
  try {
    return JSON.parse(body.toString("utf8", from, to));
  } catch {
    return BROKEN;
  }
}

function readName(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

/** A form (RFC 7578): audio, and edits of images. */
function readForm(body: Buffer, boundary: string): RequestFields {
  const parts = splitForm(body.toString("latin1"), boundary);
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
  return { ...NOTHING_READ, model: readName(models.at(-1)), ambiguous: models.length > 1, stream };
}

/** The parts with their heads; null: the form is broken. */
function splitForm(form: string, boundary: string): string[] | null {
  const parts = form.split(`\r\n--${boundary}`);
  const first = parts.shift() ?? "";
  // The body may begin with the delimiter. If it does not, what comes before the delimiter is ignored.
  if (first.startsWith(`--${boundary}`)) parts.unshift(first.slice(boundary.length + 2));
  const last = parts.pop() ?? "";
  const isWhole = last.startsWith("--") && parts.every((part) => /^[ \t]*\r\n/.test(part));
  return isWhole ? parts : null;
}

/** A quoted value may contain what looks like another parameter. */
const PARAMETER = /;\s*([\w*-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))\s*/g;

/** null: the head is broken, or servers read it in different ways. RFC 7578 forbids name*=, for example, but Go decodes it. */
function partName(head: string): string | null {
  const lines = head.replace(/\r\n[ \t]+/g, " ").split("\r\n");
  const dispositions = lines.filter((line) => /^content-disposition:/i.test(line));
  const parameters = /^[^;]*:\s*form-data\s*(;.*)$/i.exec(dispositions[0] ?? "")?.[1] ?? "";
  const names = [...parameters.matchAll(PARAMETER)].filter(([, key]) => key?.toLowerCase() === "name");
  const isPlain = dispositions.length === 1 && names.length === 1 && parameters.replace(PARAMETER, "") === "";
  return isPlain ? (names[0]?.[2] ?? names[0]?.[3] ?? "").toLowerCase() : null;
}
