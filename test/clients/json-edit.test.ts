import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import t from "tap";
import { formatFor } from "../../src/clients/format.ts";
import { editJson, type JsonDialect, type JsonValue, jsonAt } from "../../src/clients/json-edit.ts";
import { checkEdits, done, isWithin } from "../doubles/checked-edits.ts";
import { runs } from "../doubles/effort.ts";
import { changedRange } from "../doubles/written-config.ts";

/** How a file is laid out. */
interface Layout {
  readonly eol: string;
  readonly unit: string;
  readonly comments: boolean;
}

function written(value: JsonValue, layout: Layout, indent: string, wild: () => number): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const items = Object.entries(value).map(([name, inner]) => {
    const deeper = written(inner, layout, indent + layout.unit, wild);
    return Array.isArray(value) ? deeper : `${JSON.stringify(name)}${wild() % 3 === 0 ? ":" : ": "}${deeper}`;
  });
  const note = () => (layout.comments && wild() % 4 === 0 ? ` /* it's, "here" */` : "");
  const last = layout.comments && wild() % 4 === 0 ? "," : "";
  if (items.length === 0)
    return (
      [`${open}${close}`, `${open} ${close}`, `${open}${note()}${layout.eol}${indent}${close}`][wild() % 3] ??
      ""
    );
  if (wild() % 3 === 0) return `${open} ${items.join(", ")}${last}${note()} ${close}`;
  const line = () => (layout.comments && wild() % 4 === 0 ? " // a, { note" : "");
  const lines = items.map(
    (item, at) =>
      `${indent}${layout.unit}${item}${at < items.length - 1 ? "," : last}${note()}${line()}${layout.eol}`,
  );
  return `${open}${line()}${layout.eol}${lines.join("")}${indent}${close}`;
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
    return { text, dialect: (comments ? "comments" : "strict") as JsonDialect, whole };
  });

function holds(found: unknown, wanted: unknown): void {
  if (!isDeepStrictEqual(found, wanted)) throw new Error(`it means ${JSON.stringify(found)}`);
}

t.test("a setting comes in or changes, and no other byte does, however the file is written", (t) => {
  fc.assert(
    fc.property(file, fc.string(), ({ text, dialect, whole }, wanted) => {
      const path = ["env", "TOKEN"] as const;
      const after = done(editJson(text, path, wanted, dialect));
      const env = jsonAt(text, ["env"], dialect);
      const old = jsonAt(text, path, dialect);
      holds(jsonAt(after, [], dialect), { ...(whole as object), env: { ...(env as object), TOKEN: wanted } });
      if (done(editJson(after, path, wanted, dialect)) !== after) throw new Error("twice is not once");
      if (old !== undefined) {
        const [from, to] = changedRange(text, after);
        const rest = text.slice(from, to);
        if (!JSON.stringify(old).includes(rest)) throw new Error(`changed beyond the value: ${rest}`);
        return;
      }
      const empty = Object.keys((env ?? whole) as object).length === 0;
      const solid = (all: string) => all.replaceAll(/\s/g, "");
      if (!isWithin(empty ? solid(text) : text, empty ? solid(after) : after))
        throw new Error("something was lost");
      if (text.includes("\r\n") && /(?<!\r)\n/.test(after))
        throw new Error("a line break of another kind came in");
      const back = done(editJson(after, path, undefined, dialect));
      if (!empty && env !== undefined && back !== text) throw new Error("out again is not as before");
    }),
    { numRuns: runs(50) },
  );
  t.end();
});

t.test("a setting goes, and what is left is what was there", (t) => {
  fc.assert(
    fc.property(file, ({ text, dialect, whole }) => {
      for (const each of Object.keys(whole as object)) {
        const after = done(editJson(text, [each], undefined, dialect));
        const { [each]: _, ...rest } = whole as Record<string, JsonValue>;
        holds(jsonAt(after, [], dialect), rest);
        if (!isWithin(after, text)) throw new Error("something came in");
      }
      if (done(editJson(text, ["nowhere", "there"], undefined, dialect)) !== text)
        throw new Error("changed for nothing");
    }),
    { numRuns: runs(30) },
  );
  t.end();
});

t.test("any setting is changed or goes, also in lists, and no other byte is", (t) => {
  fc.assert(
    fc.property(file, fc.string(), ({ text, dialect }, wanted) => {
      const format = formatFor(dialect === "strict" ? "json" : "jsonc");
      const meaning = (each: string) => jsonAt(each, [], dialect);
      const isUsual = (line: string) => !line.includes("\\");
      const { left } = checkEdits({ format, meaning, isUsual }, text, wanted);
      if (left > 0) throw new Error("an edit was left to the person");
    }),
    { numRuns: runs(100) },
  );
  t.end();
});

t.test("a new item comes in behind the last one of a list", (t) => {
  fc.assert(
    fc.property(file, fc.string(), ({ text, dialect, whole }, wanted) => {
      for (const [name, list] of Object.entries(whole as Record<string, JsonValue>)) {
        if (!Array.isArray(list)) continue;
        const after = done(editJson(text, [name, list.length], wanted, dialect));
        holds(jsonAt(after, [name], dialect), [...list, wanted]);
        if (!isWithin(text.replaceAll(/\s/g, ""), after.replaceAll(/\s/g, "")))
          throw new Error("something was lost");
        const back = done(editJson(after, [name, list.length], undefined, dialect));
        if (list.length > 0 && back !== text) throw new Error("out again is not as before");
      }
    }),
    { numRuns: runs(100) },
  );
  t.end();
});

t.test("lists on the way are passed, and created if they are missing", (t) => {
  const set = (text: string, path: readonly (string | number)[]) => done(editJson(text, path, "x", "strict"));
  t.equal(set('{"a":[{"b":1},{"b":2}]}', ["a", 1, "b"]), '{"a":[{"b":1},{"b":"x"}]}');
  t.equal(set('{"a":["b","c"]}', ["a", 2]), '{"a":["b","c","x"]}');
  t.equal(set('{"a": ["b"]}', ["a", 1]), '{"a": ["b", "x"]}');
  t.equal(set('{\n  "a": [\n    "b"\n  ]\n}', ["a", 1]), '{\n  "a": [\n    "b",\n    "x"\n  ]\n}');
  t.equal(set('{"a":1}', ["b", 0, "c"]), '{"a":1,"b":[{"c":"x"}]}');
  t.equal(set('["a"]', [0]), '["x"]');
  for (const path of [["a", 3], ["a", 0, "b"], ["a", "b"], ["b", 1], []]) {
    t.match(editJson('{"a":["b","c"]}', path, "x", "strict"), { ok: false, line: null }, path.join("."));
  }
  t.equal(jsonAt('{"a":[{"b":2}]}', ["a", 0, "b"], "strict"), 2);
  t.equal(jsonAt('{"a":{"0":2}}', ["a", 0], "strict"), undefined);
  t.end();
});

t.test("all scalars are read, with their lines", (t) => {
  const text = '{\n  // "no": 1\n  "a": "x", "b": [true,\n    null, { "c": 1.5 } ],\n  "d": {}, "a": 2\n}';
  t.same(formatFor("jsonc").read(text), {
    ok: true,
    settings: [
      { path: ["a"], value: "x", line: 3 },
      { path: ["b", 0], value: true, line: 3 },
      { path: ["b", 1], value: null, line: 4 },
      { path: ["b", 2, "c"], value: 1.5, line: 4 },
      { path: ["a"], value: 2, line: 5 },
    ],
  });
  t.match(formatFor("json").read(text), { ok: false, line: 2, problem: /comment/ });
  t.end();
});

t.test("a new setting looks like those beside it", (t) => {
  const set = (text: string) => done(editJson(text, ["env", "TOKEN"], "x", "comments"));
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
  const bad: [string, JsonDialect, number, RegExp][] = [
    ['{\n  "a": 1\n  "b": 2\n}', "strict", 3, /^comma expected/],
    ['{\n  // why\n  "a": 1\n}', "strict", 2, /^invalid comment token/],
    ['{\n  "a": 1,\n}', "strict", 3, /^property name expected/],
    ['{\n  "a": 1,\n', "comments", 3, /^property name expected/],
    ["{\n  'a': 1 }", "comments", 2, /^invalid symbol/],
    ['{ "a": 01 }', "comments", 1, /^comma expected/],
    ['{ "a": "\n" }', "comments", 1, /^unexpected end of string/],
    ['{ "a": "\\x" }', "comments", 1, /^invalid escape character/],
    ["{} {}", "comments", 1, /^end of file expected/],
    ["", "comments", 1, /^value expected/],
    ["[]", "comments", 1, /not a JSON object/],
    ["{ /* ", "comments", 1, /^unexpected end of comment/],
    ["[".repeat(100_000), "comments", 1, /brackets/],
  ];
  for (const [text, dialect, line, problem] of bad) {
    t.match(editJson(text, ["a"], "x", dialect), { ok: false, line, problem }, text.slice(0, 20));
  }
  t.match(editJson('{"a":1,"a":2}', ["a"], "x", "strict"), { ok: false, problem: /a twice/ });
  t.match(editJson('{"env":[]}', ["env", "a"], "x", "strict"), {
    ok: false,
    problem: /env is not an object/,
  });
  t.end();
});

t.test("a strict file is read exactly when JSON.parse reads it", (t) => {
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
      if ((jsonAt(text, [], "strict") !== undefined) !== valid)
        throw new Error(`${valid ? "refused" : "read"}: ${text}`);
    }),
    { numRuns: runs(100) },
  );
  t.end();
});
