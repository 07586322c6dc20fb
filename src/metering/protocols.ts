/** What kind of request it is, if it costs tokens. It decides how the response reports them. */
export type Metering =
  | "chat"
  | "completions"
  | "responses"
  | "messages"
  | "embeddings"
  | "gemini"
  | "images"
  | "audio"
  /** An unknown endpoint. If its response reports tokens, they are read. */
  | "other";

/** By the end of the path: gateways serve the same endpoint below many prefixes. */
const ENDINGS: readonly (readonly [Metering, RegExp])[] = [
  ["chat", /\/chat\/completions$/],
  ["completions", /\/completions$/],
  ["responses", /\/responses(?:\/compact)?$/],
  ["messages", /\/messages$/],
  ["embeddings", /\/embeddings$/],
  ["gemini", /:(?:generateContent|streamGenerateContent|embedContent|batchEmbedContents)$/],
  ["images", /\/images\/[^/]+$/],
  ["audio", /\/audio\/[^/]+$/],
];
/** Known to cost no tokens. */
const FREE =
  /(?:\/(?:count_tokens|input_tokens|moderations|cancel)|:countTokens)$|^\/v1(?:beta)?\/(?:files|uploads|models\/?|vector_stores|containers|conversations)(?:\/[^:]*)?$/;
/** Costs something later, and nothing in the response says how much. */
const BILLED_LATER =
  /^\/v1(?:beta)?\/(?:batches|messages\/batches|fine_tuning|assistants|threads|evals)(?:\/[^:]*)?$|:batchGenerateContent$/;

/** null: not billed by tokens, like a list of models. */
export function findMetering(method: string, endpoint: string): Metering | null {
  if (method !== "POST") return null;
  const path = plainPath(endpoint);
  if (FREE.test(path) || BILLED_LATER.test(path)) return null;
  return ENDINGS.find(([, ending]) => ending.test(path))?.[0] ?? "other";
}

/** Whether neither the request nor its response says which models run and what they cost. */
export function isBilledLater(method: string, endpoint: string): boolean {
  const path = plainPath(endpoint);
  return method === "POST" && BILLED_LATER.test(path) && !FREE.test(path);
}

/** The path as a lenient server reads it: some serve //chat%2Fcompletions/ too. */
export function plainPath(endpoint: string): string {
  if (!/%|\/\/|\/$/.test(endpoint)) return endpoint;
  let path = endpoint;
  try {
    path = decodeURIComponent(endpoint);
  } catch {
    // No server can decode it either, so it stays as it is.
  }
  return path.replace(/\/{2,}/g, "/").replace(/\/$/, "");
}

/** What a content type says about a body. Gateways state wrong types, so the body decides where it can. */
type ContentKind =
  | "json"
  | "events"
  /** Images, sound and the like: never text, whatever the first byte. */
  | "media"
  | "page"
  | "other";

export function contentKind(contentType: string): ContentKind {
  if (/^\s*application\/json\b/i.test(contentType)) return "json";
  if (/^\s*text\/event-stream\b/i.test(contentType)) return "events";
  if (/^\s*(?:image|audio|video|font)\//i.test(contentType)) return "media";
  return /^\s*text\/html/i.test(contentType) ? "page" : "other";
}
