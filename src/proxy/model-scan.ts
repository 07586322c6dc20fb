import { plainPath } from "../metering/protocols.ts";
import { FieldScan } from "./field-scan.ts";
import { type Wanted, wantedFields } from "./wanted.ts";

/** Looks for the model in a request's body as its bytes pass, cut anywhere. */
export interface ModelScan {
  see(chunk: Buffer): void;
  /** The model asked for; null: none so far. */
  readonly model: string | null;
  /** Two that differ stand in it. Told only by a scan that goes to the end. */
  readonly disputed: boolean;
  /** What it says of how long its answer may be, by field. Told only by a scan that goes to the end. */
  readonly lengths: Readonly<Record<string, unknown>>;
  /** The rest cannot change this any more. */
  readonly done: boolean;
}

/** No model has a longer name. */
const LONGEST_NAME = 512;
/** Of one part of a form. */
const LONGEST_PART_HEAD = 16 * 1024;

/**
 * null: nobody but the gateway can read this body.
 * @param toEnd false: done at the first model that stands there. true: read the whole body, and the last one counts. Of
 *   a key that stands twice Go, JavaScript and Python, and so most gateways, take the last; those that only look into
 *   the text, the first. So wherever the model decides something, a disputed one must not pass.
 */
export function modelScan(
  contentType: string | undefined,
  contentEncoding: string | undefined,
  toEnd: boolean,
): ModelScan | null {
  if (contentEncoding !== undefined && !/^(?:|identity)$/i.test(contentEncoding.trim())) return null;
  if (contentType === undefined || !/^\s*multipart\//i.test(contentType)) return new JsonScan(toEnd);
  const boundary = /;\s*boundary=(?:"([^"]+)"|([^\s;"]+))/i.exec(contentType ?? "");
  return boundary === null ? null : formScan(boundary[1] ?? boundary[2] ?? "", toEnd);
}

/** Gemini names the model in the path, and so do OpenAI's oldest endpoints. */
export function modelInPath(endpoint: string): string | null {
  // Nearly always neither stands there, not even encoded.
  if (!/%|\/models\/|\/engines\//.test(endpoint)) return null;
  const path = plainPath(endpoint);
  const named =
    /^\/v1(?:beta)?\/models\/(.+):[A-Za-z]+$/.exec(path) ?? /^\/v1\/engines\/([^/]+)\/./.exec(path);
  const name = named?.[1];
  return name === undefined || name.length > LONGEST_NAME ? null : name;
}

class JsonScan implements ModelScan {
  model: string | null = null;
  disputed = false;
  done = false;
  readonly #fields: FieldScan;
  readonly #toEnd: boolean;

  constructor(toEnd: boolean) {
    this.#toEnd = toEnd;
    this.#fields = new FieldScan(toEnd ? DECISIVE : MODEL, LONGEST_NAME, toEnd);
  }

  see(chunk: Buffer): void {
    this.#fields.see(chunk);
    this.done = this.#fields.done;
    if (this.#toEnd) this.#judge();
    else this.model = nameOf(this.#fields.get("model"));
  }

  get lengths(): Readonly<Record<string, unknown>> {
    const lengths: Record<string, unknown> = {};
    if (this.#toEnd)
      for (const { path, value } of this.#fields.found) if (!SPELLINGS.includes(path)) lengths[path] = value;
    return lengths;
  }

  #judge(): void {
    const { found, first } = this.#fields;
    let named: unknown;
    let other: unknown;
    let spelled = 0;
    for (const { path, value } of found) {
      if (!SPELLINGS.includes(path)) continue;
      spelled += 1;
      if (path === "model") named = value;
      else other ??= value;
    }
    this.model = nameOf(named === undefined ? other : named);
    // What is neither text nor number may be read in more than one way.
    this.disputed = spelled > 1 || first !== named || (typeof named === "object" && named !== null);
  }
}

/**
 * The field in every case: Go, in which most gateways are written, takes "Model" for "model" too, and of both the later
 * one. Nobody writes it so by accident.
 */
const SPELLINGS: readonly string[] = spellings("model");

/** The fields of every protocol in which a request bounds its answer. */
const LENGTHS: readonly string[] = [
  "max_tokens",
  "max_completion_tokens",
  "max_output_tokens",
  "n",
  "best_of",
  "generationConfig.maxOutputTokens",
  "generationConfig.candidateCount",
];

const MODEL: Wanted = wantedFields(["model"]);
const DECISIVE: Wanted = wantedFields([...SPELLINGS, ...LENGTHS], "model");

function spellings(word: string): string[] {
  let all = [""];
  for (const letter of word) all = all.flatMap((begun) => [begun + letter, begun + letter.toUpperCase()]);
  return all;
}

function nameOf(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

const PART_HEAD_END = Buffer.from("\r\n\r\n");

/** The field of a form (RFC 7578), as audio and edits of images are asked for, which may stand behind a large file. */
function formScan(boundary: string, toEnd: boolean): ModelScan {
  const delimiter = Buffer.from(`\r\n--${boundary}`, "latin1");
  // The first delimiter may be the first thing in the body, without a line break before it.
  let rest: Buffer = Buffer.from("\r\n");
  let state: "between" | "head" | "value" | "done" = "between";
  const found: string[] = [];

  /** From where to go on; null: more bytes are needed. What is still of use is in `rest` then. */
  const step = (bytes: Buffer, at: number): number | null => {
    const end = bytes.indexOf(state === "head" ? PART_HEAD_END : delimiter, at);
    if (state === "head" && bytes.length >= at + 2 && bytes.toString("latin1", at, at + 2) === "--") {
      state = "done";
      return null;
    }
    if (end !== -1) {
      if (state === "value") {
        found.push(bytes.toString("utf8", at, end));
        if (!toEnd) {
          state = "done";
          return null;
        }
      }
      if (state === "head") {
        state = isModel(bytes.toString("utf8", at, end)) ? "value" : "between";
        return end + PART_HEAD_END.length;
      }
      state = "head";
      return end + delimiter.length;
    }
    if (state === "head" && bytes.length - at > LONGEST_PART_HEAD) state = "done";
    if (state === "value" && bytes.length - at > LONGEST_NAME + delimiter.length) state = "between";
    rest = bytes.subarray(state === "between" ? Math.max(at, bytes.length - delimiter.length + 1) : at);
    return null;
  };

  return {
    see(chunk) {
      const bytes = Buffer.concat([rest, chunk]);
      for (let at: number | null = 0; at !== null && state !== "done"; ) at = step(bytes, at);
    },
    get model() {
      return nameOf(found.at(-1)?.trim());
    },
    get disputed() {
      return found.some((name) => name !== found[0]);
    },
    lengths: {},
    get done() {
      return state === "done";
    },
  };
}

function isModel(head: string): boolean {
  return /^content-disposition:[^\r\n]*[;\s]name=(?:"model"|model(?=[\s;]|$))/im.test(head);
}
