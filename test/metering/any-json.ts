import fc from "fast-check";

/** JSON as hardly anyone writes it: keys that occur twice or are escaped, any white space, deep and odd values. */

export const space = fc.string({ unit: fc.constantFrom(" ", "\n", "\r", "\t"), maxLength: 2 });

/** A string as JSON, written plainly or with every character escaped. */
export function written(text: string): fc.Arbitrary<string> {
  return fc.boolean().map((escaped) => (escaped ? escapedAll(text) : JSON.stringify(text)));
}

function escapedAll(text: string): string {
  const units = text.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `"${units.join("")}"`;
}

const texts = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.string({ unit: fc.constantFrom('"', "\\", "é", "字", "😀", "}", "]", ","), maxLength: 80 }),
);
const scalar = fc.oneof(
  texts.chain(written),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => JSON.stringify(number)),
  fc.constantFrom("true", "false", "null", "-0", "1e3", "{}", "[]"),
);
const key = fc
  .oneof(fc.constantFrom("model", "Model", "stream", "n", "generationConfig", ""), fc.string())
  .chain(written);

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

/** The text of any JSON value, and of any JSON object. */
export { object as anyObject, value as anyValue };
