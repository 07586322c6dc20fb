import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import t from "tap";
import { FieldScan } from "../../src/proxy/field-scan.ts";
import { runs } from "../doubles/random.ts";
import { cutAt, someCuts } from "../metering/cuts.ts";

const WANTED = ["model", "usage", "response.usage", "response.id", "message.usage"];

function scan(text: string | Buffer, cuts: readonly number[] = [], wanted = WANTED): FieldScan {
  const fields = new FieldScan(wanted, undefined, true);
  for (const piece of cutAt(Buffer.from(text), cuts)) fields.see(piece);
  return fields;
}

function found(fields: FieldScan): Record<string, unknown> {
  return Object.fromEntries(WANTED.map((path) => [path, fields.get(path)]));
}

/** What JSON.parse would have found. */
function expected(text: string): Record<string, unknown> {
  const whole: unknown = JSON.parse(text);
  return Object.fromEntries(
    WANTED.map((path) => [path, path.split(".").reduce((value, key) => field(value, key), whole)]),
  );
}

function field(value: unknown, key: string): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return Object.hasOwn(value, key) ? (value as Record<string, unknown>)[key] : undefined;
}

/** JSON as nobody would write it: keys that stand twice or are escaped, any white space, deep and long values. */
const space = fc.string({ unit: fc.constantFrom(" ", "\n", "\r", "\t"), maxLength: 2 });
const key = fc
  .oneof(fc.constantFrom("model", "usage", "response", "message", "id", "response.usage", ""), fc.string())
  .chain((name) => fc.boolean().map((escaped) => (escaped ? escapedAll(name) : JSON.stringify(name))));
const scalar = fc.oneof(
  fc.string({ unit: "binary" }).map((text) => JSON.stringify(text)),
  fc
    .string({ unit: fc.constantFrom('"', "\\", "é", "字", "😀", "}", "]", ","), maxLength: 80 })
    .map(escapedOrNot),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => JSON.stringify(number)),
  fc.constantFrom("true", "false", "null", "-0", "1e3", "{}", "[]"),
);
const { value, object } = fc.letrec<{ value: string; object: string }>((tie) => ({
  value: fc.oneof({ maxDepth: 5, depthIdentifier: "json" }, scalar, tie("object"), list(tie("value"))),
  object: fc
    .array(fc.tuple(space, key, space, tie("value"), space), { maxLength: 6, depthIdentifier: "json" })
    .map((fields) => fields.map(([a, name, b, held, c]) => `${a}${name}${b}:${b}${held}${c}`).join(","))
    .map((inside) => `{${inside}}`),
}));

function list(of: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return fc
    .array(fc.tuple(space, of, space), { maxLength: 4, depthIdentifier: "json" })
    .map((held) => `[${held.map((parts) => parts.join("")).join(",")}]`);
}

function escapedAll(text: string): string {
  const units = [...Array(text.length).keys()].map((i) => text.charCodeAt(i).toString(16).padStart(4, "0"));
  return `"${units.map((unit) => `\\u${unit}`).join("")}"`;
}

function escapedOrNot(text: string): string {
  return text.length % 2 === 0 ? JSON.stringify(text) : escapedAll(text);
}

t.test("a field is what JSON.parse says it is, wherever the text is cut", async () => {
  fc.assert(
    fc.property(space, object, someCuts, (before, text, cuts) => {
      const fields = scan(before + text, cuts);
      return fields.done && isDeepStrictEqual(found(fields), expected(text));
    }),
    { numRuns: runs(150) },
  );
});

t.test("of a text that is not an object no field is found", async () => {
  fc.assert(
    fc.property(value, someCuts, (text, cuts) => {
      if (text.startsWith("{") || text.startsWith("[")) return true;
      return Object.values(found(scan(text, cuts))).every((each) => each === undefined);
    }),
  );
});

t.test("whatever the bytes, it does not throw", async () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), someCuts, (bytes, cuts) => {
      scan(Buffer.from(bytes), cuts);
    }),
  );
  const change = fc.tuple(fc.nat(500), fc.nat(255));
  fc.assert(
    fc.property(object, fc.array(change, { minLength: 1, maxLength: 5 }), someCuts, (text, changes, cuts) => {
      const bytes = Buffer.from(text);
      for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
      scan(bytes, cuts);
    }),
  );
});

t.test("a list of objects is several documents, of which the last to tell a field tells it", (t) => {
  const text = '[{"usage":{"n":1},"model":"a"}\r\n,\r\n{"usage":{"n":2}},3,"[{",[{"usage":9}],{}\n]';
  for (let cut = 0; cut <= text.length; cut += 1) {
    const fields = scan(text, [cut]);
    t.strictSame(fields.get("usage"), { n: 2 });
    t.equal(fields.get("model"), "a");
    t.ok(fields.done);
  }
  const broken = scan('[{"usage":{"n":1}},{"usage":{"n"');
  t.strictSame(broken.get("usage"), { n: 1 }, "what the cut one would have said does not matter");
  t.end();
});

t.test("what is broken holds nothing, what is cut holds what came", (t) => {
  for (const text of [
    '{"model":"a",}',
    '{"model":"a" "usage":1}',
    '{"model":"a",usage:1}',
    '{"model":"a","usage":}',
    '{"model":"a","usage":nul}',
    '{"model":"a","usage":"\\q"}',
    '{"model" "a"}',
    '<html>{"model":"a"}',
  ]) {
    const fields = scan(text);
    t.equal(fields.get("model"), undefined, text);
    t.ok(fields.done, text);
  }
  const cut = scan('{"model":"a","usage":{"n":1');
  t.equal(cut.get("model"), "a");
  t.equal(cut.get("usage"), undefined);
  t.notOk(cut.done);
  t.end();
});

t.test("a byte order mark is passed over", (t) => {
  for (const cut of [1, 2, 3]) t.equal(scan('\uFEFF {"model":"a"}', [cut]).get("model"), "a");
  t.end();
});

t.test("a key with a dot in it is no path", (t) => {
  t.equal(scan('{"response.usage":1}').get("response.usage"), undefined);
  t.end();
});

t.test("unless it reads to the end it is done once all was seen, and the first of two counts", (t) => {
  const text = Buffer.from('{"model":"a","x":1,"model":"b"}');
  const first = new FieldScan(["model"]);
  first.see(text.subarray(0, 13));
  t.ok(first.done);
  first.see(text.subarray(13));
  t.equal(first.get("model"), "a");
  const last = new FieldScan(["model"], undefined, true);
  last.see(text.subarray(0, 13));
  t.notOk(last.done);
  last.see(text.subarray(13));
  t.equal(last.get("model"), "b");
  t.end();
});

t.test("a value over the bound is passed over, and what follows is found", (t) => {
  const fields = new FieldScan(["model", "usage"], 100, true);
  const text = Buffer.from(`{"model":"${"a".repeat(200)}","usage":1}`);
  for (const piece of cutAt(text, [50, 90, 150])) fields.see(piece);
  t.equal(fields.get("model"), undefined);
  t.equal(fields.get("usage"), 1);
  const twice = new FieldScan(["model"], 100, true);
  twice.see(Buffer.from(`{"model":"a","model":"${"a".repeat(200)}"}`));
  t.equal(twice.get("model"), undefined, "it is the one that counts, although nobody kept it");
  t.end();
});

t.test("depth costs nothing", (t) => {
  const deep = 200_000;
  const fields = new FieldScan(["model"], undefined, true);
  fields.see(Buffer.from(`{"a":${'[{"b":'.repeat(deep)}1${"}]".repeat(deep)},"model":"m"}`));
  t.equal(fields.get("model"), "m");
  t.end();
});
