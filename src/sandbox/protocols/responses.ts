import type { Tokens } from "../billing.ts";
import { textAt } from "../json.ts";
import { lastUserText, textOf } from "../tokens.ts";
import {
  type Ask,
  event,
  type Frame,
  limitAt,
  MODEL_REQUIRED,
  type Protocol,
  type Reply,
} from "./protocol.ts";

/** POST /v1/responses */
export const responses: Protocol = {
  shape: "openai",
  wants: "text",
  tellsCacheWrites: false,

  read(body) {
    const model = textAt(body, "model");
    if (model === null || model === "") return MODEL_REQUIRED;
    const maxTokens = limitAt(body, "max_output_tokens");
    if (maxTokens === "invalid") return "max_output_tokens must be a whole number of at least 1";
    return {
      model,
      stream: body.stream === true,
      prompt: textOf(body.tools, body.instructions, body.input),
      lastUserText: lastUserText(body.input),
      maxTokens,
      body,
    };
  },

  whole: (ask, reply) => finished(ask, reply),

  *frames(ask, reply): Generator<Frame> {
    let sequence = 0;
    const next = (type: string, rest: object): Frame => {
      const bytes = event({ type, sequence_number: sequence, ...rest }, type);
      sequence += 1;
      return { bytes };
    };
    const place = { item_id: `msg_${reply.id}`, output_index: 0, content_index: 0 };
    const begun = { response: envelope(ask, reply, "in_progress", [], null) };
    yield next("response.created", begun);
    yield next("response.in_progress", begun);
    yield next("response.output_item.added", { output_index: 0, item: message(reply, "in_progress", []) });
    yield next("response.content_part.added", { ...place, part: outputText("") });
    for (const words of reply.pieces) {
      yield { ...next("response.output_text.delta", { ...place, delta: words, logprobs: [] }), words };
    }
    yield next("response.output_text.done", { ...place, text: reply.text, logprobs: [] });
    yield next("response.content_part.done", { ...place, part: outputText(reply.text) });
    yield next("response.output_item.done", { output_index: 0, item: finishedMessage(reply) });
    const last = reply.truncated ? "response.incomplete" : "response.completed";
    yield next(last, { response: finished(ask, reply) });
  },
};

function finished(ask: Ask, reply: Reply): object {
  const usage = responsesUsage(reply.tokens);
  return envelope(ask, reply, reply.truncated ? "incomplete" : "completed", [finishedMessage(reply)], usage);
}

function finishedMessage(reply: Reply): object {
  return message(reply, reply.truncated ? "incomplete" : "completed", [outputText(reply.text)]);
}

function message(reply: Reply, status: string, content: readonly object[]): object {
  return { id: `msg_${reply.id}`, type: "message", status, role: "assistant", content };
}

function outputText(text: string): object {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

/** The settings come back as they were sent, with the service's defaults where they were not. */
function envelope(
  ask: Ask,
  reply: Reply,
  status: "in_progress" | "completed" | "incomplete",
  output: readonly object[],
  usage: object | null,
): object {
  const { body } = ask;
  return {
    id: `resp_${reply.id}`,
    object: "response",
    created_at: reply.created,
    status,
    background: false,
    error: null,
    incomplete_details: status === "incomplete" ? { reason: "max_output_tokens" } : null,
    instructions: body.instructions ?? null,
    max_output_tokens: ask.maxTokens,
    model: reply.model,
    output,
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    previous_response_id: body.previous_response_id ?? null,
    reasoning: body.reasoning ?? { effort: null, summary: null },
    service_tier: "default",
    store: body.store ?? true,
    temperature: body.temperature ?? 1,
    text: body.text ?? { format: { type: "text" } },
    tool_choice: body.tool_choice ?? "auto",
    tools: body.tools ?? [],
    top_p: body.top_p ?? 1,
    truncation: body.truncation ?? "disabled",
    usage,
    user: body.user ?? null,
    metadata: body.metadata ?? {},
  };
}

/** input_tokens includes the cached ones, output_tokens the reasoning ones. */
function responsesUsage(tokens: Tokens): object {
  const input = tokens.input + tokens.cacheRead + tokens.cacheWrite;
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: tokens.cacheRead },
    output_tokens: tokens.output,
    output_tokens_details: { reasoning_tokens: tokens.reasoning },
    total_tokens: input + tokens.output,
  };
}
