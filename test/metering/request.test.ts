import fc from "fast-check";
import t from "tap";
import { Chunks } from "../../src/metering/chunks.ts";
import { modelInPath, type RequestFields, readRequest } from "../../src/metering/request.ts";
import { runs } from "../doubles/effort.ts";
import { anyObject, space, written } from "./any-json.ts";

function readJson(text: string): RequestFields {
  return readRequest(new Chunks([Buffer.from(text)]), "application/json");
}

const NOTHING = {
  model: null,
  ambiguous: false,
  stream: null,
  serviceTier: null,
  lengths: {},
  readable: true,
};
const UNREADABLE = { ...NOTHING, readable: false };

t.test("what a request says about its cost is read", async (t) => {
  const messages = [{ role: "user", content: 'the "model": \\ grüß dich' }];
  t.strictSame(
    readJson(
      JSON.stringify({ messages, stream: true, n: 2, max_tokens: 4000, model: "gpt-5.1", best_of: null }),
    ),
    { ...NOTHING, model: "gpt-5.1", stream: true, lengths: { n: 2, max_tokens: 4000, best_of: null } },
  );
  t.strictSame(readJson('{"stream":false,"max_completion_tokens":7,"max_output_tokens":"8"}'), {
    ...NOTHING,
    stream: false,
    lengths: { max_completion_tokens: 7, max_output_tokens: "8" },
  });
});

t.test("Gemini's bounds are read below generationConfig, of which the last one counts", async (t) => {
  const config = '"generationConfig":{"topK":4,"maxOutputTokens":800,"candidateCount":3}';
  t.strictSame(readJson(`{"contents":[],${config}}`).lengths, {
    "generationConfig.maxOutputTokens": 800,
    "generationConfig.candidateCount": 3,
  });
  t.strictSame(readJson(`{${config},"generationConfig":{"candidateCount":1}}`).lengths, {
    "generationConfig.candidateCount": 1,
  });
  for (const odd of ["null", "[]", "7", '"{"']) {
    t.strictSame(readJson(`{"generationConfig":${odd}}`).lengths, {}, odd);
  }
  t.strictSame(readJson('{"generationConfig.maxOutputTokens":9}').lengths, {}, "a key with a dot is no path");
});

t.test("a request that names no model is readable all the same", async (t) => {
  for (const text of ["", "{}", '{"input":"x"}', '{"model":""}', '{"model":null}', '{"a":{"model":"x"}}'])
    t.strictSame(readJson(text), NOTHING, text);
});

t.test("the content type matters only for forms", async (t) => {
  for (const type of [undefined, "", "text/plain", "application/x-www-form-urlencoded"])
    t.equal(readRequest(new Chunks([Buffer.from(`\uFEFF {"model":"m"}`)]), type).model, "m", `${type}`);
});

t.test("what is neither a JSON object nor a form cannot be read", async (t) => {
  for (const text of [
    "model=gpt-5.1&x=1",
    '{"x":"',
    '{"model":"a",}',
    '{"model":"a"}{"model":"b"}',
    '[{"model":"a"}]',
    '{"model":"a","n":nul}',
    '{"model":"\\q"}',
    '{"model":"a","generationConfig":{"maxOutputTokens" 1}}',
    '{"model":"a","generationConfig":{"maxOutputTokens":1e}}',
    `{"model":"${"a".repeat(600)}"}`,
    '{"c":[),"model":"a","x":(],"model":"b"}',
  ])
    t.strictSame(readJson(text), UNREADABLE, text.slice(0, 60));
});

t.test("two models are ambiguous, however the second one is written", async (t) => {
  for (const text of [
    '{"model":"a","x":[{"model":"z"}],"model":"b"}',
    '{"model":"a","mod\\u0065l":"b"}',
    '{"model":"a","Model":"b"}',
    '{"MODEL":"a","model":"b"}',
    '{"Model":"a","Model":"b"}',
    '{"model":"b","model":"b"}',
    '{"model":"a","model":null}',
  ])
    t.match(readJson(text), { ambiguous: true, readable: true }, text);
  t.equal(readJson('{"model":"a","x":1,"model":"b"}').model, "b", "the last one counts");
});

t.test("a model that is not a name is ambiguous", async (t) => {
  for (const text of ['{"model":7}', '{"model":["a"]}', '{"model":{"id":"a"}}', '{"model":true}'])
    t.match(readJson(text), { model: null, ambiguous: true }, text);
});

t.test("one model is not ambiguous, in any case and wherever else its name occurs", async (t) => {
  t.match(readJson('{"Model":"a","x":1}'), { model: "a", ambiguous: false }, "Go reads it");
  t.match(readJson('{"models":["b"],"input":{"model":"c"},"model":"a","prompt":"\\"model\\":\\"b\\""}'), {
    model: "a",
    ambiguous: false,
  });
});

t.test("the model is what JSON.parse finds, wherever its key is and however it is escaped", async () => {
  const model = fc.string({ unit: "grapheme", maxLength: 30 });
  const field = fc.tuple(space, written("model"), space, model.chain(written), space);
  fc.assert(
    fc.property(anyObject, anyObject, field, (before, after, [a, key, b, name, c]) => {
      const parts = [before.slice(1, -1), `${a}${key}${b}:${b}${name}${c}`, after.slice(1, -1)];
      const text = `{${parts.filter((part) => part.trim() !== "").join(",")}}`;
      const { model, ambiguous, readable } = readJson(text);
      // Only a value that is far too long for its field makes a whole object unreadable.
      if (!readable) return text.length > 512;
      return ambiguous || model === (JSON.parse(text).model || null);
    }),
    { numRuns: runs(200) },
  );
});

t.test("the service tier that a request asks for is read", async (t) => {
  for (const [text, tier] of [
    ['{"service_tier":"priority"}', "priority"],
    ['{"service_tier":"FLEX"}', "flex"],
    ['{"serviceTier":"SERVICE_TIER_PRIORITY"}', "priority"],
    ['{"service_tier":"default"}', "standard"],
    ['{"service_tier":"standard_only"}', "standard"],
    ['{"service_tier":"auto"}', null],
    ['{"service_tier":null}', null],
    ['{"service_tier":7}', null],
    ['{"service_tier":"auto","speed":"fast"}', "fast"],
    ['{"service_tier":"flex","speed":"standard"}', "flex"],
  ] as const)
    t.equal(readJson(text).serviceTier, tier, text);
});

const TYPE = 'multipart/form-data; charset=utf-8; boundary="----x7"';

function part(disposition: string, value: string): string {
  return `------x7\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n${value}\r\n`;
}

function readForm(text: string, type = TYPE): RequestFields {
  return readRequest(new Chunks([Buffer.from(text, "latin1")]), type);
}

const END = "------x7--\r\n";
const FILE = part('name="file"; filename="model"', "RIFF\r\n-----x7\r\n\0\xff");
const MODEL = part('name="model"', "whisper-1");

t.test("a form names its model before or behind the file", async (t) => {
  for (const [name, form] of Object.entries({
    before: MODEL + FILE + END,
    behind: FILE + MODEL + END,
    "after a preamble": `preamble\r\n${FILE}${MODEL}${END}`,
    "with an epilogue": `${FILE}${MODEL}${END}epilogue`,
    "without quotes": part("name=model", "whisper-1") + FILE + END,
    "after another header": `------x7 \r\nX: y\r\ncontent-disposition: form-data;\r\n name="model"\r\n\r\nwhisper-1\r\n${END}`,
  }))
    t.strictSame(readForm(form), { ...NOTHING, model: "whisper-1" }, name);
  t.strictSame(readForm(FILE + END), NOTHING, "a file called model is none");
  t.equal(readForm(part('x="; name=y"; name="model"', "m") + END).model, "m", "a value is no parameter");
  const upload = part('name="file"; filename="a \\"b\\"; name=model.wav"; filename*=utf-8\'\'a%20b', "RIFF");
  t.strictSame(readForm(upload + MODEL + END), { ...NOTHING, model: "whisper-1" });
  t.equal(readForm(part('name="stream"', "true") + MODEL + END).stream, true);
  t.equal(readForm(part('name="model"', "\xe5\xad\x97") + END).model, "字");
});

t.test("two models in a form are ambiguous", async (t) => {
  t.match(readForm(MODEL + part('name="model"', "b") + END), { model: "b", ambiguous: true });
  t.match(readForm(part('name="Model"', "b") + MODEL + END), { ambiguous: true });
});

t.test("a form that is broken, or that readers take in different ways, cannot be read", async (t) => {
  for (const [name, form] of Object.entries({
    "without an end": FILE + MODEL,
    "without a delimiter": "whisper-1",
    "with lines that end in LF": (MODEL + END).replaceAll("\r\n", "\n"),
    "a part without an end of its head": `------x7\r\nmodel\r\n${END}`,
    "an encoded name": part("name*=utf-8''model", "whisper-1") + END,
    "two names": part('name="x"; name="model"', "whisper-1") + END,
    "a name that is not closed": part('name="model', "whisper-1") + END,
    "a part without a name": `------x7\r\nContent-Type: text/plain\r\n\r\nmodel\r\n${END}`,
    "two dispositions":
      MODEL.replace("\r\n\r\n", '\r\ncontent-disposition: form-data; name="x"\r\n\r\n') + END,
    "a head of megabytes": part(`name="${"a".repeat(9_000_000)}"`, "") + END,
    "a model that is too long": part('name="model"', "a".repeat(600)) + END,
  }))
    t.strictSame(readForm(form), UNREADABLE, name);
  t.strictSame(readForm(MODEL + END, "multipart/form-data"), UNREADABLE, "without a boundary");
});

t.test("the model of Gemini's and of OpenAI's oldest endpoints is in the path", async (t) => {
  for (const [endpoint, model] of [
    ["/v1beta/models/gemini-2.5-pro:streamGenerateContent", "gemini-2.5-pro"],
    ["/v1beta/models/gemini-2.5-pro:countTokens", "gemini-2.5-pro"],
    ["/v1/models/google%2Fgemma-3:generateContent", "google/gemma-3"],
    ["/v1/engines/ada/embeddings", "ada"],
    ["/v1/models/gpt-5.1", null],
    ["/v1/chat/completions", null],
    [`/v1beta/models/${"a".repeat(600)}:generateContent`, null],
  ] as const)
    t.equal(modelInPath(endpoint), model, endpoint.slice(0, 80));
});
