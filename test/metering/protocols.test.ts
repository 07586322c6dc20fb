import t from "tap";
import { contentKind, findMetering, isBilledLater } from "../../src/metering/protocols.ts";

t.test("the end of a path decides whether it costs tokens, however it is spelled", async (t) => {
  for (const [endpoint, metering] of [
    ["/v1/chat/completions", "chat"],
    ["/v1/chat/completions/", "chat"],
    ["/v1//chat/completions", "chat"],
    ["/v1/chat/completion%73", "chat"],
    ["/v1/chat%2Fcompletions", "chat"],
    ["/v1/openai/chat/completions", "chat"],
    ["/v1beta/openai/chat/completions", "chat"],
    ["/v1/completions", "completions"],
    ["/v1/responses", "responses"],
    ["/v1/responses/compact", "responses"],
    ["/v1/messages", "messages"],
    ["/v1/embeddings", "embeddings"],
    ["/v1beta/models/gemini-2.5-pro:streamGenerateContent", "gemini"],
    ["/v1/images/generations", "images"],
    ["/v1/audio/transcriptions", "audio"],
    ["/v1/rerank", "other"],
    ["/v1/what-comes-next-year", "other"],
    ["/v1/%E0%A4%A", "other"],
  ] as const) {
    t.equal(findMetering("POST", endpoint), metering, endpoint);
    t.equal(findMetering("GET", endpoint), null, `GET ${endpoint}`);
  }
});

t.test("what is known to cost no tokens is not waited for", async (t) => {
  for (const endpoint of [
    "/v1/messages/count_tokens",
    "/v1/responses/input_tokens",
    "/v1/responses/resp_1/cancel",
    "/v1beta/models/gemini-2.5-pro:countTokens",
    "/v1/moderations",
    "/v1/files",
    "/v1/uploads/u1/parts",
    "/v1/batches",
    "/v1/messages/batches",
    "/v1/threads/t1/messages",
    "/v1/vector_stores/vs1/search",
  ]) {
    t.equal(findMetering("POST", endpoint), null, endpoint);
  }
});

t.test("what is billed later is distinguished from what is free", async (t) => {
  for (const [endpoint, later] of [
    ["/v1/batches", true],
    ["/v1/messages/batches", true],
    ["/v1/threads/t1/runs", true],
    ["/v1/fine_tuning/jobs", true],
    ["/v1/batches/b1/cancel", false],
    ["/v1/files", false],
    ["/v1/messages", false],
    ["/v1/messages/count_tokens", false],
  ] as const) {
    t.equal(isBilledLater("POST", endpoint), later, endpoint);
    t.equal(isBilledLater("GET", endpoint), false, `GET ${endpoint}`);
  }
});

t.test("a content type is read whatever its case, with white space and parameters", async (t) => {
  for (const [contentType, kind] of [
    ["application/json", "json"],
    [" Application/JSON; charset=utf-8", "json"],
    ["application/jsonl", "other"],
    ["text/event-stream;charset=utf-8", "events"],
    ["TEXT/Event-Stream", "events"],
    ["image/png", "media"],
    ["text/html; charset=utf-8", "page"],
    ["text/plain", "other"],
    ["", "other"],
  ] as const)
    t.equal(contentKind(contentType), kind, contentType);
});
