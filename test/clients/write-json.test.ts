import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import t from "tap";
import {
  type JsonFlavour,
  type JsonNode,
  type JsonValue,
  plainValue,
  readJson,
} from "../../src/clients/write/json-read.ts";
import { jsonAt, removeJson, setJson } from "../../src/clients/write/json-splice.ts";
import type { Spliced } from "../../src/clients/write/spliced.ts";
import { runs } from "../doubles/random.ts";
import { changedRange } from "../doubles/written-config.ts";

function done(spliced: Spliced): string {
  if (!spliced.ok) throw new Error(`line ${spliced.line}: ${spliced.reason}`);
  return spliced.text;
}

function tree(text: string, flavour: JsonFlavour = "comments"): JsonValue {
  const read = readJson(text, flavour);
  if (!read.ok) throw new Error(read.fault.what);
  return plainValue(read.root);
}

/** One value in many hands' writing. */
interface Hand {
  readonly eol: string;
  readonly unit: string;
  readonly comments: boolean;
}

function written(value: JsonValue, hand: Hand, indent: string, wild: () => number): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const items = Object.entries(value).map(([name, inner]) => {
    const deeper = written(inner, hand, indent + hand.unit, wild);
    return Array.isArray(value) ? deeper : `${JSON.stringify(name)}${wild() % 3 === 0 ? ":" : ": "}${deeper}`;
  });
  const note = () => (hand.comments && wild() % 4 === 0 ? ` /* it's, "here" */` : "");
  const last = hand.comments && wild() % 4 === 0 ? "," : "";
  if (items.length === 0)
    return (
      [`${open}${close}`, `${open} ${close}`, `${open}${note()}${hand.eol}${indent}${close}`][wild() % 3] ??
      ""
    );
  if (wild() % 3 === 0) return `${open} ${items.join(", ")}${last}${note()} ${close}`;
  const line = () => (hand.comments && wild() % 4 === 0 ? " // a, { note" : "");
  const lines = items.map(
    (item, at) =>
      `${indent}${hand.unit}${item}${at < items.length - 1 ? "," : last}${note()}${line()}${hand.eol}`,
  );
  return `${open}${line()}${hand.eol}${lines.join("")}${indent}${close}`;
}

const name = fc.constantFrom("env", "model", "permissions", "allow", "A", 'q"uote', "ü", "");
const leaf = fc.oneof(
  fc.constantFrom<JsonValue>("x", 'a "b" // c', "/* no */", "", null, true, 1.5, -2e3),
  fc.string(),
);
const { value } = fc.letrec<{ value: JsonValue; object: JsonValue }>((tie) => ({
  value: fc.oneof({ depthSize: "small" }, leaf, fc.array(tie("value"), { maxLength: 3 }), tie("object")),
  object: fc.dictionary(name, tie("value"), { maxKeys: 4, noNullPrototype: true }),
}));
const file = fc
  .record({
    object: fc.dictionary(name, value, { maxKeys: 4, noNullPrototype: true }),
    env: fc.option(
      fc.dictionary(fc.constantFrom("A", "B", "TOKEN", "OTHER"), leaf, { maxKeys: 4, noNullPrototype: true }),
    ),
    eol: fc.constantFrom("\n", "\r\n"),
    unit: fc.constantFrom("  ", "    ", "\t"),
    comments: fc.boolean(),
    seeds: fc.array(fc.nat(100), { minLength: 20, maxLength: 20 }),
    end: fc.constantFrom("", "\n"),
    bom: fc.constantFrom("", "\uFEFF"),
  })
  .map(({ object, env, eol, unit, comments, seeds, end, bom }) => {
    let at = 0;
    const wild = () => seeds[at++ % seeds.length] ?? 0;
    const { env: _, ...rest } = object;
    const whole: JsonValue = env === null ? rest : { ...rest, env };
    const text = bom + written(whole, { eol, unit, comments }, "", wild) + (end === "" ? "" : eol);
    return { text, flavour: (comments ? "comments" : "strict") as JsonFlavour, whole };
  });

function holds(found: JsonValue, wanted: unknown): void {
  if (!isDeepStrictEqual(found, wanted)) throw new Error(`it means ${JSON.stringify(found)}`);
}

/** Whether every character of one is in the other, in the same order. */
function isWithin(inner: string, outer: string): boolean {
  let at = 0;
  for (const character of outer) if (character === inner[at]) at += 1;
  return at === inner.length;
}

function nodeAt(text: string, path: readonly string[]): JsonNode | undefined {
  const read = readJson(text, "comments");
  let node: JsonNode | undefined = read.ok ? read.root : undefined;
  for (const each of path) {
    node = node?.kind === "object" ? node.members.find((member) => member.name === each)?.value : undefined;
  }
  return node;
}

t.test("a setting comes in or changes, and no other byte does, in whatever hand the file is written", (t) => {
  fc.assert(
    fc.property(file, fc.string(), ({ text, flavour, whole }, wanted) => {
      const path = ["env", "TOKEN"] as const;
      const after = done(setJson(text, path, wanted, flavour));
      const env = jsonAt(text, ["env"], flavour) ?? {};
      holds(tree(after, flavour), {
        ...(whole as object),
        env: { ...(env as object), TOKEN: wanted },
      });
      if (done(setJson(after, path, wanted, flavour)) !== after) throw new Error("twice is not once");
      const old = nodeAt(text, path);
      if (old !== undefined) {
        const [from, to] = changedRange(text, after);
        if (from < to && (from < old.start || to > old.end)) throw new Error("changed beyond the value");
        return;
      }
      const parent = nodeAt(text, ["env"]) ?? nodeAt(text, []);
      const empty = parent?.kind !== "object" || parent.members.length === 0;
      const solid = (all: string) => all.replaceAll(/\s/g, "");
      if (!isWithin(empty ? solid(text) : text, empty ? solid(after) : after))
        throw new Error("something was lost");
      if (text.includes("\r\n") && /(?<!\r)\n/.test(after))
        throw new Error("a line break of another kind came in");
      const back = done(removeJson(after, path, flavour));
      if (!empty && nodeAt(text, ["env"]) !== undefined && back !== text)
        throw new Error("out again is not as before");
    }),
    { numRuns: runs(50) },
  );
  t.end();
});

t.test("a setting goes, and what is left is what was there", (t) => {
  fc.assert(
    fc.property(file, ({ text, flavour, whole }) => {
      for (const each of Object.keys(whole as object)) {
        const after = done(removeJson(text, [each], flavour));
        const { [each]: _, ...rest } = whole as Record<string, JsonValue>;
        holds(tree(after, flavour), rest);
        if (!isWithin(after, text)) throw new Error("something came in");
      }
      if (done(removeJson(text, ["nowhere", "there"], flavour)) !== text)
        throw new Error("changed for nothing");
    }),
    { numRuns: runs(30) },
  );
  t.end();
});

t.test("a new setting looks like those beside it", (t) => {
  const set = (text: string) => done(setJson(text, ["env", "TOKEN"], "x", "comments"));
  t.equal(set("{}\n"), '{\n  "env": {\n    "TOKEN": "x"\n  }\n}\n');
  t.equal(set('{\n\t"a": 1\n}'), '{\n\t"a": 1,\n\t"env": {\n\t\t"TOKEN": "x"\n\t}\n}');
  t.equal(set('{"a":1,"env":{"b":2}}'), '{"a":1,"env":{"b":2,"TOKEN":"x"}}');
  t.equal(set('{ "env": { "b": 2, } }'), '{ "env": { "b": 2, "TOKEN": "x", } }');
  t.equal(
    set('{\r\n  "env": {\r\n    "b": 2 // two\r\n    // the end\r\n  }\r\n}'),
    '{\r\n  "env": {\r\n    "b": 2, // two\r\n    "TOKEN": "x"\r\n    // the end\r\n  }\r\n}',
  );
  t.equal(
    set('{\n  "env": {\n    // nothing yet\n  }\n}'),
    '{\n  "env": {\n    // nothing yet\n    "TOKEN": "x"\n  }\n}',
  );
  t.end();
});

t.test("a file that is no JSON is refused with its line", (t) => {
  const bad: [string, JsonFlavour, number, RegExp][] = [
    ['{\n  "a": 1\n  "b": 2\n}', "strict", 3, /comma/],
    ['{\n  // why\n  "a": 1\n}', "strict", 2, /comment/],
    ['{\n  "a": 1,\n}', "strict", 3, /comma/],
    ['{\n  "a": 1,\n', "comments", 3, /ends too early/],
    ["{\n  'a': 1 }", "comments", 2, /missing/],
    ['{ "a": 01 }', "comments", 1, /number/],
    ['{ "a": "\n" }', "comments", 1, /missing/],
    ['{ "a": "\\x" }', "comments", 1, /number or a text/],
    ["{} {}", "comments", 1, /behind the end/],
    ["[]", "comments", 1, /no \{ \}/],
    ["{ /* ", "comments", 1, /without its end/],
    ["[".repeat(100_000), "comments", 1, /brackets/],
  ];
  for (const [text, flavour, line, reason] of bad) {
    t.match(setJson(text, ["a"], "x", flavour), { ok: false, line, reason }, text.slice(0, 20));
  }
  t.match(setJson('{"a":1,"a":2}', ["a"], "x", "strict"), { ok: false, reason: /a twice/ });
  t.match(setJson('{"env":[]}', ["env", "a"], "x", "strict"), { ok: false, reason: /env in it is no/ });
  t.end();
});

t.test("what the language itself reads as JSON, and only that, is read in a strict file", (t) => {
  const pieces = fc.constantFrom(
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"a"',
    '"\\u00e9"',
    "1",
    "-0.5e1",
    "01",
    "null",
    " ",
    "\n",
    '"\t"',
  );
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 9 }), (all) => {
      const text = all.join("");
      let valid = true;
      try {
        JSON.parse(text);
      } catch {
        valid = false;
      }
      if (readJson(text, "strict").ok !== valid) throw new Error(`${valid ? "refused" : "read"}: ${text}`);
    }),
    { numRuns: runs(100) },
  );
  t.end();
});
