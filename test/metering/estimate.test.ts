import { randomBytes } from "node:crypto";
import fc from "fast-check";
import t from "tap";
import {
  estimateTokens,
  ResponseText,
  requestText,
  SampledText,
  type TextBytes,
} from "../../src/metering/estimate.ts";
import { NO_TOKENS } from "../../src/metering/usage.ts";
import { runs } from "../doubles/effort.ts";
import { random } from "../doubles/random.ts";

const NOTHING = { ascii: 0, other: 0 };

function textOf(body: string | Buffer): TextBytes {
  return requestText(Buffer.from(body));
}

function inputOf(body: unknown): number {
  return estimateTokens(textOf(JSON.stringify(body)), NOTHING).input;
}

function chat(...contents: readonly unknown[]): unknown {
  return { model: "m", messages: contents.map((content) => ({ role: "user", content })) };
}

t.test("what is estimated is near what OpenAI's tokenizer (o200k) counts", (t) => {
  // The counts were made once, with the tokenizer itself.
  for (const [text, tokens] of [
    ["The quick brown fox jumps over the lazy dog, and nobody is surprised any more. ".repeat(20), 341],
    [
      "export function sum(values: readonly number[]): number {\n  return values.reduce((a, b) => a + b, 0);\n}\n".repeat(
        10,
      ),
      280,
    ],
    ["网关会记录每一次请求,并按照模型的价格计算费用。".repeat(20), 320],
    ["サーバーは、ネットワーク上で他の機器にサービスを提供するコンピューターです。".repeat(20), 500],
  ] as const) {
    const ascii = Buffer.from(text).filter((byte) => byte < 0x80).length;
    const seen = { ascii, other: Buffer.byteLength(text) - ascii };
    const { input, output, cacheRead, cacheWrite, reasoning } = estimateTokens(seen, seen);
    t.same([cacheRead, cacheWrite, reasoning], [0, 0, 0]);
    t.equal(input, output);
    t.ok(Math.abs(input / tokens - 1) < 0.35, `${input} for ${tokens}: ${text.slice(0, 30)}`);
  }
  t.end();
});

t.test("no text costs nothing", (t) => {
  t.same(estimateTokens(NOTHING, NOTHING), NO_TOKENS);
  t.end();
});

t.test("a request is counted by what stands in its strings", (t) => {
  t.same(textOf('{"a":"bc", "d" : [1.5, true, {"e":"fgh"}]}'), { ascii: 8, other: 0 });
  t.same(
    textOf('{"":"\\n\\"\\\\\\u4f60\\ud83d\\ude00é"}'),
    { ascii: 3, other: 9 },
    "an escaped character has its own bytes",
  );
  t.same(textOf('\ufeff [{"":"é"}]'), { ascii: 0, other: 2 });
  t.end();
});

t.test("a body that is no JSON holds no text", (t) => {
  for (const body of [
    "",
    "model=x",
    '--b\r\nContent-Disposition: form-data; name="file"',
    randomBytes(50).fill("R", 0, 1),
  ]) {
    t.same(textOf(body), NOTHING);
  }
  t.end();
});

t.test("a picture costs about a thousand tokens, however large it is", (t) => {
  const picture = (size: number) => ({
    type: "image_url",
    image_url: { url: `data:image/png;base64,${randomBytes(size).toString("base64")}` },
  });
  const none = inputOf(chat([{ type: "text", text: "what is this?" }]));
  for (const size of [10_000, 1_000_000]) {
    const one = inputOf(chat([{ type: "text", text: "what is this?" }, picture(size)]));
    t.ok(one - none > 900 && one - none < 1100, `${one - none} for ${size} bytes`);
  }
  t.ok(inputOf(chat([picture(5000), picture(5000)])) > 1900, "two cost twice that");
  t.end();
});

t.test("base64 is an image only if it is the whole string, or all of a data URL", (t) => {
  const base64 = randomBytes(6000).toString("base64");
  t.same(textOf(JSON.stringify({ "": base64 })), { ascii: 4000, other: 0 });
  t.same(textOf(JSON.stringify({ "": `data:image/png;base64,${base64}` })), { ascii: 4000, other: 0 });
  t.same(textOf(JSON.stringify({ "": `decode ${base64}` })), { ascii: base64.length + 7, other: 0 });
  t.same(textOf(JSON.stringify({ "": base64.slice(0, 1000) })), NOTHING, "the signature of a thinking block");
  t.same(textOf(JSON.stringify({ "": base64.slice(0, 256) })), { ascii: 256, other: 0 });
  t.end();
});

t.test("any bytes can be counted", (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      const { ascii, other } = textOf(Buffer.concat([Buffer.from("{"), bytes]));
      return ascii >= 0 && other >= 0 && ascii + other <= bytes.length * 3;
    }),
  );
  t.end();
});

function writtenIn(document: unknown): TextBytes {
  const text = new ResponseText();
  text.add(document);
  return text.bytes;
}

t.test("what a model wrote is counted by its bytes", async () => {
  const words = fc.string({ unit: "grapheme", maxLength: 60 });
  fc.assert(
    fc.property(words, words, (one, two) => {
      const document = { id: two, choices: [{ delta: { role: one, content: one } }], more: [{ text: two }] };
      const bytes = Buffer.from(one + two);
      const ascii = bytes.filter((byte) => byte < 0x80).length;
      const counted = writtenIn(document);
      return counted.ascii === ascii && counted.other === bytes.length - ascii;
    }),
    { numRuns: runs(50) },
  );
});

t.test("keys, and strings in other fields, are not what a model wrote", async (t) => {
  for (const document of [
    { content: { name: "abc" } },
    { content: null, name: "abc" },
    { text: { format: { type: "text" } } },
    { a: [{ text: 1 }, "abc"] },
    ["content", "abc"],
    "content",
    null,
  ])
    t.strictSame(writtenIn(document), NOTHING, JSON.stringify(document));
  t.strictSame(writtenIn({ content: ["ab", "c"], x: "d" }), { ascii: 3, other: 0 });
});

t.test("an answer that is nested too deep is not counted to its end", async (t) => {
  const deep = JSON.parse(`${'{"content":['.repeat(100_000)}"abc"${"]}".repeat(100_000)}`);
  t.strictSame(writtenIn(deep), NOTHING);
});

t.test("some pieces of a stream show how much text all of them have", async (t) => {
  const below = random(7);
  const words = ["a ", "longer ", "function sum(", '\n  "quoted": ', "网关会记录每一次请求"];
  for (const count of [1, 7, 60, 900]) {
    const all = new ResponseText();
    const sample = new SampledText();
    for (let n = 0; n < count; n += 1) {
      const delta = Array.from({ length: 1 + below(6) }, () => words[below(words.length)]).join("");
      // OpenAI pads its pieces with text that nobody wrote.
      const piece = { type: "response.output_text.delta", delta, obfuscation: "x".repeat(below(16)) };
      all.add(piece);
      sample.add(Buffer.from(JSON.stringify(piece)).toString("latin1"), (json) =>
        JSON.parse(Buffer.from(json, "latin1").toString()),
      );
    }
    const { output } = estimateTokens(NOTHING, all.bytes);
    const isNear = Math.abs(sample.tokens / output - 1) < (count < 100 ? 0.6 : 0.15);
    t.ok(isNear, `${count} pieces: ${sample.tokens} for ${output}`);
  }
  const none = new SampledText();
  t.equal(none.tokens, 0);
  none.add("[DONE]", () => undefined);
  t.equal(none.tokens, 0);
});

t.test("the first pieces of a long stream do not decide for the others", async (t) => {
  const sample = new SampledText();
  const long = JSON.stringify({ delta: "x".repeat(400), index: 0 });
  const short = JSON.stringify({ delta: "", padding: "x".repeat(400) });
  for (let n = 0; n < 64; n += 1) sample.add(long, JSON.parse);
  const { tokens } = sample;
  for (let n = 0; n < 640; n += 1) sample.add(short, JSON.parse);
  t.equal(sample.tokens, tokens);
});
