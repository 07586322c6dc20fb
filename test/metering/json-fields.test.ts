import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import t from "tap";
import { Chunks } from "../../src/metering/chunks.ts";
import { type JsonFields, jsonFields } from "../../src/metering/json-fields.ts";
import { repeats } from "../doubles/effort.ts";
import { anyObject, anyValue, space } from "./any-json.ts";

/** Each field with its value; null: this is not one object. */
function fieldsIn(text: string | Buffer, begin?: number): [key: string, value: unknown][] | null {
  const body = Buffer.from(text);
  const object = fieldsOfBytes(body, begin);
  if (object === null) return null;
  return object.fields.map(({ key, from, to }) => [key, JSON.parse(body.toString("utf8", from, to))]);
}

t.test("the fields of any object are what JSON.parse finds", async () => {
  fc.assert(
    fc.property(space, anyObject, space, (before, text, after) => {
      const fields = fieldsIn(before + text + after);
      return fields !== null && isDeepStrictEqual(Object.fromEntries(fields), JSON.parse(text));
    }),
    { numRuns: repeats("KEYBEARER_PROPERTY_RUNS", 100, 3000) },
  );
});

t.test("a key that occurs twice is found twice, in the order of the text", async (t) => {
  t.strictSame(fieldsIn('{"a":1, "b" :[{"a":2}],"\\u0061":"x"}'), [
    ["a", 1],
    ["b", [{ a: 2 }]],
    ["a", "x"],
  ]);
  t.strictSame(fieldsIn("{ }"), []);
});

t.test("a value that is not an object has no fields", async () => {
  fc.assert(
    fc.property(anyValue, (text) => text.startsWith("{") || fieldsOfBytes(Buffer.from(text)) === null),
    { numRuns: repeats("KEYBEARER_PROPERTY_RUNS", 100, 1000) },
  );
});

t.test("an object inside another begins where the caller says, and what follows is ignored", async (t) => {
  const text = '{"a":{"b":1,"c":{}},"d":2}';
  t.strictSame(fieldsIn(text, text.indexOf('{"b"')), [
    ["b", 1],
    ["c", {}],
  ]);
  t.equal(fieldsIn(text, 1), null);
  t.equal(fieldsOfBytes(Buffer.from(text), 5)?.end, text.indexOf(',"d"') - 1, "where its brace is");
});

t.test("a byte order mark may come first", async (t) => {
  t.strictSame(fieldsIn('\uFEFF {"a":1}\n'), [["a", 1]]);
});

t.test("what is not one whole object has no fields", async (t) => {
  for (const text of [
    "",
    " ",
    "{",
    "<html>",
    '[{"a":1}]',
    '{"a":1',
    '{"a":1}}',
    '{"a":1} {"b":2}',
    '{"a":1},',
    '{"a":1,}',
    '{,"a":1}',
    '{"a":1 "b":2}',
    '{"a" 1}',
    '{"a"}',
    '{"a":}',
    '{"a":,"b":2}',
    '{"a":1:2}',
    "{a:1}",
    "{'a':1}",
    '{"a":"x}',
    '{"a":"x\\"}',
    '{"a":[1}',
    '{"a":[1}]}',
    '{"a":{"b":1]}',
    '{"a":[1]]}',
    '{"\\q":1}',
    '{"a":[(],"b":[)]}',
    '{"a":(1)}',
    '{"a":[1;2]}',
    '{"a":1/* */}',
  ])
    t.equal(fieldsOfBytes(Buffer.from(text)), null, JSON.stringify(text));
});

t.test("an object that is cut anywhere has no fields", async () => {
  fc.assert(
    fc.property(anyObject, fc.nat(), (text, at) => {
      const body = Buffer.from(text);
      return fieldsOfBytes(body.subarray(0, at % body.length)) === null;
    }),
    { numRuns: repeats("KEYBEARER_PROPERTY_RUNS", 100, 1000) },
  );
});

t.test("whatever the bytes, it does not throw", async () => {
  const change = fc.tuple(fc.nat(500), fc.nat(255));
  fc.assert(
    fc.property(anyObject, fc.array(change, { minLength: 1, maxLength: 5 }), (text, changes) => {
      const bytes = Buffer.from(text);
      for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
      fieldsOfBytes(bytes);
    }),
    { numRuns: repeats("KEYBEARER_PROPERTY_RUNS", 100, 2000) },
  );
});

t.test("depth and number of fields are bounded", async (t) => {
  const nested = (depth: number) =>
    `{"a":${'[{"b":'.repeat(depth / 2)}1${"}]".repeat(depth / 2)},"model":"m"}`;
  t.equal(fieldsIn(nested(1000))?.length, 2);
  t.equal(fieldsOfBytes(Buffer.from(nested(1_000_000))), null);
  const flat = (count: number) => `{${'"a":1,'.repeat(count - 1)}"a":1}`;
  t.equal(fieldsIn(flat(1000))?.length, 1000);
  t.equal(fieldsOfBytes(Buffer.from(flat(1001))), null);
});

t.test("long runs of backslashes and quotes cost no more than other text", async (t) => {
  for (const [text, isWhole] of [
    ["\\\\".repeat(3_000_000), true],
    ["\\".repeat(3_000_001), false],
    ['\\"'.repeat(3_000_000), true],
  ] as const) {
    const object = fieldsOfBytes(Buffer.from(`{"a":"${text}","b":1}`));
    t.equal(object?.fields.length, isWhole ? 2 : undefined);
  }
});

/** The same in one chunk and in pieces of every small size. */
function fieldsOfBytes(bytes: Buffer, begin?: number): JsonFields | null {
  const whole = jsonFields(new Chunks([bytes]), begin);
  if (bytes.length > 4096) return whole;
  for (const size of [1, 2, 3, 7]) {
    const inPieces = jsonFields(new Chunks(pieces(bytes, size)), begin);
    if (JSON.stringify(inPieces) !== JSON.stringify(whole)) throw new Error(`differs in pieces of ${size}`);
  }
  return whole;
}

function pieces(bytes: Buffer, size: number): Buffer[] {
  const count = Math.ceil(bytes.length / size);
  return Array.from({ length: count }, (_, at) => bytes.subarray(at * size, (at + 1) * size));
}
