/** What can be asked for that costs tokens, and how its answer tells so. */
export type Metering =
  | "chat"
  | "completions"
  | "responses"
  | "messages"
  | "embeddings"
  | "gemini"
  | "images"
  | "audio"
  /** Nobody knows what it costs: what it reports is read, and what it does not report is unknown. */
  | "other";

/** By how a path ends: gateways serve the same endpoint below many prefixes. */
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
/** Costs something, but later, and nothing in the answer tells how much. */
const LATER =
  /^\/v1(?:beta)?\/(?:batches|messages\/batches|fine_tuning|assistants|threads|evals)(?:\/[^:]*)?$|:batchGenerateContent$/;

/** null: nothing that is billed by tokens, such as a list of models or a count of tokens. */
export function meteringOf(method: string, endpoint: string): Metering | null {
  if (method !== "POST") return null;
  // As it stands, what nearly every request asks for.
  if (endpoint === "/v1/chat/completions") return "chat";
  if (endpoint === "/v1/messages") return "messages";
  if (endpoint === "/v1/responses") return "responses";
  const path = plainPath(endpoint);
  if (FREE.test(path) || LATER.test(path)) return null;
  return ENDINGS.find(([, ending]) => ending.test(path))?.[0] ?? "other";
}

/** What it runs, and what that costs, is told neither by it nor by its answer. */
export function isBilledLater(method: string, endpoint: string): boolean {
  const path = plainPath(endpoint);
  return method === "POST" && LATER.test(path) && !FREE.test(path);
}

/** What is found here is changed by reading it leniently. */
const NOT_PLAIN = /%|\/\/|\/$/;

/** As a lenient server reads it: //chat%2Fcompletions/ is served by some. */
export function plainPath(endpoint: string): string {
  if (!NOT_PLAIN.test(endpoint)) return endpoint;
  let path = endpoint;
  try {
    path = decodeURIComponent(endpoint);
  } catch {
    // It is none that a server could read either.
  }
  return path.replace(/\/{2,}/g, "/").replace(/\/$/, "");
}
