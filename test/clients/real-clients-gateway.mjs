/* The gateway that the real clients reach through keybearer: every protocol, one answer, and faults on demand. */
import { createServer } from "node:http";

export const MODELS = ["claude-sonnet-4-5", "gpt-5.1", "gemini-2.5-pro", "qwen3-coder-plus"];
/** What the gateway itself says with a 401. */
export const GATEWAY_401 = "the double has revoked this key";

const DELTAS = ["ANSWER-BEGINS", ...Array.from({ length: 20 }, (_, at) => ` part-${at}`), " ANSWER-ENDS"];
/** The text of every answer. */
export const TEXT = DELTAS.join("");
const USAGE = { input: 120, output: 60 };

export class GatewayDouble {
  /** Each model call: its path, the size of its body, the key it carries, and whether a stream asks for its usage. */
  calls = [];
  /** Answer each model call with a 401. */
  isRefusing = false;
  /** Tokens that the next answers report as input; the spend limit is used up with it. */
  reportedInput = USAGE.input;
  #held = null;
  #server = createServer((req, res) => this.#serve(req, res));

  #port = 0;

  /** Returns the address of the version segment, which is the same after a stop. */
  async start() {
    await new Promise((resolve) => this.#server.listen(this.#port, "127.0.0.1", resolve));
    this.#port = this.#server.address().port;
    return `http://127.0.0.1:${this.#port}/v1`;
  }

  stop() {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  /** From now on, streams stop in the middle until release(). */
  hold() {
    let resolve;
    const promise = new Promise((done) => {
      resolve = done;
    });
    this.#held = { waiting: 0, promise, resolve };
  }

  /** How many streams have stopped in the middle. */
  get heldStreams() {
    return this.#held?.waiting ?? 0;
  }

  release() {
    this.#held?.resolve();
    this.#held = null;
  }

  async #serve(req, res) {
    req.on("error", () => {});
    res.on("error", () => {});
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    const path = new URL(req.url, "http://gateway").pathname;
    if (path.endsWith("/models")) return sendJson(res, 200, modelList());
    if (path.endsWith("/count_tokens")) return sendJson(res, 200, { input_tokens: USAGE.input });
    const bytes = Buffer.concat(chunks);
    const credential = req.headers.authorization ?? req.headers["x-api-key"] ?? req.headers["x-goog-api-key"];
    const body = JSON.parse(bytes.toString() || "{}");
    const asksUsage = body.stream_options?.include_usage === true;
    this.calls.push({ path, bytes: bytes.length, credential, stream: body.stream === true, asksUsage });
    const protocol = protocolOf(path);
    if (protocol === null) return sendJson(res, 404, { error: { message: `no such path: ${path}` } });
    if (this.isRefusing) return sendJson(res, 401, protocol.error(401, GATEWAY_401));
    const usage = { input: this.reportedInput, output: USAGE.output };
    if (!protocol.isStream(body, path)) return sendJson(res, 200, protocol.whole(body.model, usage));
    await this.#stream(res, protocol.events(body.model, usage));
  }

  async #stream(res, events) {
    res.writeHead(200, { "content-type": "text/event-stream" });
    const middle = Math.floor(events.length / 2);
    for (const [at, event] of events.entries()) {
      if (res.destroyed) return;
      if (at === middle && this.#held !== null) {
        this.#held.waiting += 1;
        await this.#held.promise;
      }
      res.write(event);
    }
    res.end();
  }
}

function modelList() {
  return {
    object: "list",
    data: MODELS.map((id) => ({ id, object: "model", created: 0, owned_by: "double" })),
  };
}

function sendJson(res, status, value) {
  res.writeHead(status, { "content-type": "application/json" });
  res.end(JSON.stringify(value));
}

function sse(value, event) {
  const head = event === undefined ? "" : `event: ${event}\n`;
  return `${head}data: ${JSON.stringify(value)}\n\n`;
}

function protocolOf(path) {
  if (path.endsWith("/chat/completions")) return CHAT;
  if (path.endsWith("/responses")) return RESPONSES;
  if (path.endsWith("/messages")) return MESSAGES;
  return path.includes("enerateContent") ? GEMINI : null;
}

function openaiError(_status, message) {
  return { error: { message, type: "authentication_error", param: null, code: "invalid_api_key" } };
}

const CHAT = {
  error: openaiError,
  isStream: (body) => body.stream === true,
  whole: (model, usage) => ({
    id: "chatcmpl-1",
    object: "chat.completion",
    created: 0,
    model,
    choices: [{ index: 0, message: { role: "assistant", content: TEXT }, finish_reason: "stop" }],
    usage: chatUsage(usage),
  }),
  events(model, usage) {
    const chunk = (choices, rest = {}) =>
      sse({ id: "chatcmpl-1", object: "chat.completion.chunk", created: 0, model, choices, ...rest });
    return [
      ...DELTAS.map((content) =>
        chunk([{ index: 0, delta: { role: "assistant", content }, finish_reason: null }]),
      ),
      chunk([{ index: 0, delta: {}, finish_reason: "stop" }]),
      chunk([], { usage: chatUsage(usage) }),
      "data: [DONE]\n\n",
    ];
  },
};

function chatUsage({ input, output }) {
  return { prompt_tokens: input, completion_tokens: output, total_tokens: input + output };
}

const RESPONSES = {
  error: openaiError,
  isStream: (body) => body.stream === true,
  whole: (model, usage) => response(model, "completed", usage),
  events(model, usage) {
    let sequence = 0;
    const event = (type, fields) => sse({ type, sequence_number: sequence++, ...fields }, type);
    const position = { item_id: "msg_1", output_index: 0, content_index: 0 };
    return [
      event("response.created", { response: response(model, "in_progress", null) }),
      event("response.output_item.added", {
        output_index: 0,
        item: { id: "msg_1", type: "message", status: "in_progress", role: "assistant", content: [] },
      }),
      event("response.content_part.added", { ...position, part: outputText("") }),
      ...DELTAS.map((delta) => event("response.output_text.delta", { ...position, delta })),
      event("response.output_text.done", { ...position, text: TEXT }),
      event("response.content_part.done", { ...position, part: outputText(TEXT) }),
      event("response.output_item.done", { output_index: 0, item: messageItem() }),
      event("response.completed", { response: response(model, "completed", usage) }),
    ];
  },
};

function outputText(text) {
  return { type: "output_text", text, annotations: [] };
}

function messageItem() {
  return {
    id: "msg_1",
    type: "message",
    status: "completed",
    role: "assistant",
    content: [outputText(TEXT)],
  };
}

function response(model, status, usage) {
  return {
    id: "resp_1",
    object: "response",
    created_at: 0,
    status,
    model,
    output: usage === null ? [] : [messageItem()],
    usage: usage === null ? null : responseUsage(usage),
  };
}

function responseUsage({ input, output }) {
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input + output,
  };
}

const MESSAGES = {
  error: (_status, message) => ({ type: "error", error: { type: "authentication_error", message } }),
  isStream: (body) => body.stream === true,
  whole: (model, usage) => ({
    ...message(model, usage),
    content: [{ type: "text", text: TEXT }],
    stop_reason: "end_turn",
  }),
  events(model, usage) {
    const event = (type, fields) => sse({ type, ...fields }, type);
    return [
      event("message_start", { message: message(model, usage) }),
      event("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
      ...DELTAS.map((text) =>
        event("content_block_delta", { index: 0, delta: { type: "text_delta", text } }),
      ),
      event("content_block_stop", { index: 0 }),
      event("message_delta", {
        delta: { stop_reason: "end_turn", stop_sequence: null },
        usage: { output_tokens: usage.output },
      }),
      event("message_stop", {}),
    ];
  },
};

function message(model, { input, output }) {
  return {
    id: "msg_1",
    type: "message",
    role: "assistant",
    model,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: { input_tokens: input, output_tokens: output },
  };
}

const GEMINI = {
  error: (code, text) => ({ error: { code, message: text, status: "UNAUTHENTICATED" } }),
  isStream: (_body, path) => path.includes(":streamGenerateContent"),
  whole: (_model, usage) => candidate(TEXT, usage),
  events: (_model, usage) => [...DELTAS.map((text) => sse(candidate(text, null))), sse(candidate("", usage))],
};

function candidate(text, usage) {
  const content = { role: "model", parts: [{ text }] };
  if (usage === null) return { candidates: [{ content, index: 0 }] };
  const { input, output } = usage;
  return {
    candidates: [{ content, index: 0, finishReason: "STOP" }],
    usageMetadata: {
      promptTokenCount: input,
      candidatesTokenCount: output,
      totalTokenCount: input + output,
    },
  };
}
