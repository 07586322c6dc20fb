import t from "tap";
import { meteringOf } from "../../src/usage/record.ts";

t.test("what costs tokens is told by the end of its path, however it is spelled", async (t) => {
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
    t.equal(meteringOf("POST", endpoint), metering, endpoint);
    t.equal(meteringOf("GET", endpoint), null, `GET ${endpoint}`);
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
    t.equal(meteringOf("POST", endpoint), null, endpoint);
  }
});
