import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import t from "tap";
import type { TextSeen } from "../../src/metering/reading.ts";
import { TextScan } from "../../src/metering/text-scan.ts";
import { runs } from "../doubles/random.ts";
import { cutAt, someCuts } from "./cuts.ts";

function seen(text: string, cuts: readonly number[] = []): TextSeen {
  const scan = new TextScan();
  for (const piece of cutAt(Buffer.from(text), cuts)) scan.see(piece);
  return scan.seen;
}

/** The bytes of a text by what they are. */
function bytesOf(...texts: readonly string[]): TextSeen {
  const bytes = Buffer.from(texts.join(""));
  const ascii = bytes.filter((byte) => byte < 0x80).length;
  return { ascii, other: bytes.length - ascii };
}

/** As encoders write it that keep to ASCII. */
function inAscii(json: string): string {
  return json.replace(/[^\0-~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

t.test("what a model wrote is counted by its bytes, however it is escaped and cut", async () => {
  const words = fc.string({ unit: "grapheme", maxLength: 60 });
  fc.assert(
    fc.property(words, words, fc.boolean(), someCuts, (one, two, ascii, cuts) => {
      const json = JSON.stringify({
        id: two,
        choices: [{ delta: { role: one, content: one } }],
        more: [{ text: two }],
      });
      return isDeepStrictEqual(seen(ascii ? inAscii(json) : json, cuts), bytesOf(one, two));
    }),
    { numRuns: runs(50) },
  );
});

t.test("keys, and strings below other names, are not what a model wrote", (t) => {
  for (const json of [
    '{"content":{"name":"abc"}}',
    '{"content":null,"name":"abc"}',
    '{"text":{"format":{"type":"text"}}}',
    '{"a":[{"text":1},"abc"]}',
    '["content","abc"]',
    '{"content" : 5 , "x" : "content"}',
  ])
    t.strictSame(seen(json), { ascii: 0, other: 0 }, json);
  t.strictSame(seen('{"content" : [ "ab" , "c" ] , "x":"d"}'), { ascii: 3, other: 0 });
  t.end();
});

t.test("a document that was cut does not spoil the next", (t) => {
  const scan = new TextScan();
  scan.see(Buffer.from('{"content":"ab'));
  scan.reset();
  scan.see(Buffer.from('{"content":"c"}'));
  t.strictSame(scan.seen, { ascii: 1, other: 0 });
  t.end();
});
