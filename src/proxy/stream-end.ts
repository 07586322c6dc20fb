/**
 * Whether an event stream has said its last word. Codex, Copilot, LangChain and openai-python hang up right after it,
 * before the server ends the stream: that is a finished call, not an abort. And a stream that ends without it was cut,
 * however cleanly.
 */
export interface StreamEnd {
  see(chunk: Buffer): void;
  /** null: this is no stream whose end could be told. */
  readonly reached: boolean | null;
  /** Its last word was an error. */
  readonly failed: boolean;
}

/** How the streams of each protocol begin: only of these is it known how they should end. */
const FIRST_WORDS =
  /"chat\.completion\.chunk"|"text_completion"|"message_start"|"response\.created"|"candidates"/;
/**
 * A bare quote or line break never stands inside a JSON string, so that no text a model wrote can look like these. The
 * finish reasons are for gateways that send no [DONE].
 */
const LAST_WORDS =
  /(?:^|[\r\n])(?:data: ?\[DONE\]|event: ?(?:message_stop|error|response\.(?:completed|failed|incomplete)))|[{,]\s*"type": ?"(?:message_stop|response\.(?:completed|failed|incomplete))"|[{,]\s*"finish_?[rR]eason": ?"/;
const ERROR_WORDS = /(?:^|[\r\n])event: ?(?:error|response\.failed)|[{,]\s*"type": ?"response\.failed"/;
/** Longer than any of these, so that one that is cut between two chunks is seen. */
const OVERLAP = 96;

export function watchStreamEnd(contentType: string, contentEncoding: string | undefined): StreamEnd {
  const readable = contentEncoding === undefined || contentEncoding === "identity";
  if (!readable || !/^\s*text\/event-stream\b/i.test(contentType))
    return { see: () => {}, reached: null, failed: false };
  let tail = "\n";
  let begun = false;
  let reached = false;
  let failed = false;
  return {
    see(chunk) {
      if (reached) return;
      const text = tail + chunk.toString("latin1");
      begun ||= FIRST_WORDS.test(text);
      reached = LAST_WORDS.test(text);
      failed = reached && ERROR_WORDS.test(text);
      tail = text.slice(-OVERLAP);
    },
    get reached() {
      return reached || begun ? reached : null;
    },
    get failed() {
      return failed;
    },
  };
}
