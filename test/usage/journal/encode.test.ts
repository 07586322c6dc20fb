import fc from "fast-check";
import t from "tap";
import { closeLine, encodeLine, openLine, SharedFields } from "../../../src/usage/journal/encode.ts";
import { parseLine } from "../../../src/usage/journal/lines.ts";
import { OWN_REQUEST, wholeRecord } from "../../../src/usage/record.ts";
import { runs } from "../../doubles/effort.ts";
import { closing, opening } from "./journal-under-test.ts";

const ASCII = /^[\x20-\x7e]*\n$/;

t.test("the lines of a request are read as they were written, whatever its texts are", async () => {
  const text = fc.oneof(fc.constant(null), fc.string({ unit: "grapheme" }), fc.constant("…a1b2"));
  // libsql would cut a text at a NUL, and half a surrogate pair is no character: records.ts removes both before.
  const texts = fc.record({
    tool: text,
    key: text,
    model: text,
    user_agent: text,
    session: text,
    token: text,
  });
  const origins = fc.record({ project: fc.string({ unit: "grapheme" }), branch: text });
  const multipliers = fc.option(fc.double({ noNaN: true, min: 0, max: 9 }));
  fc.assert(
    fc.property(texts, fc.option(origins), multipliers, (given, origin, multiplier) => {
      const first = opening({ ...given, multiplier: multiplier ?? 1 });
      const gateway_ids = { body: 'é"\\\u2028' };
      const second = closing({ model: null, gateway_ids, input_tokens: 12, ...origin });
      const common = new SharedFields().encode(first);
      const lines = [openLine(common, first), closeLine(common, first, second)];
      const [open, close] = lines.map(parseLine);
      const whole = { kind: "close", ...wholeRecord(first, second), ...OWN_REQUEST };
      return (
        lines.every((line) => ASCII.test(line)) &&
        isSame(open, { kind: "open", ...first }) &&
        isSame(close, whole)
      );
    }),
    { numRuns: runs(300) },
  );
});

t.test("every field is written under its own name", async (t) => {
  const first = distinct(opening({ gateway_ids: { "x-litellm-call-id": "01KA" } }), 1);
  const second = distinct({ ...closing(), model: null, counts: false }, 101);
  const common = new SharedFields().encode(first);
  const open = { kind: "open", ...first };
  const close = { kind: "close", ...wholeRecord(first, second) };
  for (const [line, record] of [
    [openLine(common, first), open],
    [closeLine(common, first, second), close],
  ] as const) {
    t.ok(isSame(JSON.parse(line), record));
  }
});

t.test("NaN is written as null", async (t) => {
  const first = opening();
  const line = closeLine(new SharedFields().encode(first), first, closing({ cost_microdollars: Number.NaN }));
  t.match(parseLine(line), { kind: "close", cost_microdollars: null });
});

t.test("the kind comes first, and every line is ASCII", async (t) => {
  t.equal(
    encodeLine("rename", { from: "ä", to: "…" }),
    '{"kind":"rename","from":"\\u00e4","to":"\\u2026"}\n',
  );
});

/** The same fields, each with a value of its own: a number, or its own name. */
function distinct<Fields extends object>(fields: Fields, from: number): Fields {
  const entries = Object.entries(fields).map(([name, value], index) => {
    if (typeof value === "boolean" || (typeof value === "object" && value !== null)) return [name, value];
    const isNumber = typeof value === "number" || /_(?:tokens|microdollars|at|ms)$/.test(name);
    return [name, isNumber ? from + index : name];
  });
  return Object.fromEntries(entries);
}

/** In any order. */
function isSame(one: unknown, other: object): boolean {
  const sorted = (value: unknown) => JSON.stringify(Object.entries(value ?? {}).sort());
  return sorted(one) === sorted(other);
}
