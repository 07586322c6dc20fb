/** What is asked and answered. One model whose price is known, and sizes that real clients send. */
export const MODEL = "bench-model";
export const KEY = "sk-bench-0123456789abcdefghijklmnopqrstuvwxyz";
export const PLAIN_PATH = "/v1/chat/completions";
export const DOWNLOAD_PATH = "/v1/files/large/content";
export const DOWNLOAD_BYTES = 100 * 1024 * 1024;
/** A short question, and what Claude Code sends for its first one. */
export const SMALL = 800;
export const LARGE = 85_000;
export const BODY_SIZES = { small: SMALL, large: LARGE } as const;
export type BodySize = keyof typeof BODY_SIZES;

const ANSWER_BYTES = 800;

/** A chat request of exactly so many bytes. */
export function requestBody(bytes: number): string {
  return filled(bytes, (content) =>
    JSON.stringify({ model: MODEL, max_tokens: 256, messages: [{ role: "user", content }] }),
  );
}

/** A request for a stream of so many events. */
export function streamBody(events: number): string {
  return JSON.stringify({
    model: MODEL,
    stream: true,
    max_tokens: events,
    messages: [{ role: "user", content: "count" }],
  });
}

/** The answer the upstream gives to every plain request. */
export function plainAnswer(): string {
  return filled(ANSWER_BYTES, (content) =>
    JSON.stringify({
      id: "chatcmpl-bench0123456789",
      object: "chat.completion",
      created: 1_763_164_800,
      model: MODEL,
      choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
      usage: { prompt_tokens: 190, completion_tokens: 120, total_tokens: 310 },
    }),
  );
}

function filled(bytes: number, text: (content: string) => string): string {
  const words = "the quick brown fox jumps over the lazy dog and ";
  const missing = Math.max(0, bytes - text("").length);
  return text(words.repeat(Math.ceil(missing / words.length)).slice(0, missing));
}
