import fc from "fast-check";
import t from "tap";
import { parse } from "yaml";
import { formatFor, type Path, type PlainValue } from "../../src/clients/format.ts";
import { withNext } from "../../src/core/display.ts";
import { checkEdits, done, isWithin } from "../doubles/checked-edits.ts";
import { runs } from "../doubles/effort.ts";
import { failureText } from "../doubles/failure-text.ts";

const YAML = formatFor("yaml");

function set(text: string, path: Path, value: PlainValue | undefined): string {
  return done(YAML.set(text, path, value));
}

type Tree = string | number | boolean | null | readonly Tree[] | { readonly [name: string]: Tree };

interface Hand {
  readonly unit: string;
  readonly wild: () => number;
}

const PLAIN = /^[a-z][a-z0-9./:?=_-]*(?: [a-z0-9]+)*$/i;

function scalar(value: Tree, { wild }: Hand): string {
  if (typeof value !== "string") return String(value ?? ["~", "null", ""][wild() % 3]);
  const styles = [JSON.stringify(value)];
  if (!/[\p{Cc}]/u.test(value)) styles.push(`'${value.replaceAll("'", "''")}'`);
  if (PLAIN.test(value) && !/^(?:yes|no)$|: /.test(value)) styles.push(value, value);
  return styles[wild() % styles.length] ?? "";
}

function flow(value: Tree, hand: Hand): string {
  if (Array.isArray(value)) return `[${value.map((item) => flow(item, hand)).join(", ")}]`;
  if (typeof value !== "object" || value === null) return scalar(value, hand) || "~";
  const entries = Object.entries(value).map(
    ([name, inner]) => `${JSON.stringify(name)}: ${flow(inner, hand)}`,
  );
  if (entries.length === 0) return "{}";
  return hand.wild() % 2 === 0 ? `{ ${entries.join(", ")} }` : `{${entries.join(",")}}`;
}

function isFilled(value: Tree): value is { readonly [name: string]: Tree } | readonly Tree[] {
  return typeof value === "object" && value !== null && Object.keys(value).length > 0;
}

/** Lines without the first indentation. */
function block(value: Tree, indent: string, hand: Hand): string[] {
  const note = () => ["", "", " # it's: [a note]", '  # { "b"'][hand.wild() % 4] ?? "";
  const above = () => (hand.wild() % 5 === 0 ? [`${indent}# above: 'it`] : []);
  if (!isFilled(value)) return [];
  if (Array.isArray(value)) {
    return value.flatMap((item: Tree) => {
      if (!isFilled(item) || Array.isArray(item) || hand.wild() % 3 === 0)
        return [...above(), `${indent}- ${flow(item, hand)}${note()}`];
      const [first = "", ...rest] = block(item, `${indent}  `, { ...hand, wild: () => hand.wild() | 1 });
      return first.trim().startsWith("#")
        ? [`${indent}- ${flow(item, hand)}${note()}`]
        : [`${indent}- ${first.trimStart()}`, ...rest];
    });
  }
  return Object.entries(value).flatMap(([name, inner]) => {
    const key = `${indent}${/^[a-z]+$/i.test(name) ? name : JSON.stringify(name)}:`;
    if (!isFilled(inner) || hand.wild() % 4 === 0) {
      const content = isFilled(inner) || typeof inner === "object" ? flow(inner, hand) : scalar(inner, hand);
      return [...above(), `${key}${content === "" ? "" : " "}${content}${note()}`];
    }
    const deeper = Array.isArray(inner) && hand.wild() % 2 === 0 ? indent : indent + hand.unit;
    return [...above(), `${key}${note()}`, ...block(inner, deeper, hand)];
  });
}

const name = fc.constantFrom("models", "apiKey", "env", "a", "B", "with space", "no", "12", "ü");
const leaf = fc.constantFrom<Tree>(
  "x",
  "sk-abc123",
  "https://gateway.example/v1?a=b",
  "it's",
  'say "hi"',
  "a: b",
  "# no comment",
  "",
  "yes",
  "12",
  "two words",
  "two\nlines",
  "{env:X}",
  true,
  false,
  null,
  17,
  1.5,
);
const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { depthSize: "small" },
    leaf,
    fc.array(tie("tree"), { maxLength: 3 }),
    fc.dictionary(name, tie("tree"), { maxKeys: 4, noNullPrototype: true }),
  ),
}));

/** Ways to write that an edit passes by. */
const extra = fc.constantFrom(
  [],
  ["base: &base", "  x: 1", "use: *base", "more:", "  <<: *base"],
  ["tagged: !secret abc", "note: |", "  apiKey: no setting", "  # no comment", "folded: >-", "  a", "  b"],
  ['long: "over', '  two lines"', "plain: over", "  two lines"],
);
const file = fc
  .record({
    value: fc.dictionary(name, tree, { minKeys: 1, maxKeys: 4, noNullPrototype: true }),
    extra,
    unit: fc.constantFrom("  ", "    "),
    head: fc.constantFrom([], ["# about: this"], ["---"], ["%YAML 1.2", "---"]),
    eol: fc.constantFrom("\n", "\r\n"),
    end: fc.constantFrom("", "\n", "\n\n"),
    bom: fc.constantFrom("", "\uFEFF"),
    seeds: fc.array(fc.nat(100), { minLength: 30, maxLength: 30 }),
  })
  .map(({ value, extra, unit, head, eol, end, bom, seeds }) => {
    let at = 0;
    const wild = () => seeds[at++ % seeds.length] ?? 0;
    const lines = [...head, ...block(value, "", { unit, wild }), ...extra];
    return bom + (lines.join("\n") + end).replaceAll("\n", eol);
  });

function meaning(text: string): unknown {
  // A file that has only comments left means the same as an empty map to its readers.
  return parse(text, { uniqueKeys: false, merge: true, logLevel: "error" }) ?? {};
}

/** Texts that the editor quotes in another way, or that end on another line, are not written again to the byte. */
function isUsual(line: string): boolean {
  return !/[\\|>]|null|~|lines|: "?over/.test(line);
}

t.test("one setting is changed or goes, however the file is written, and no other byte is", (t) => {
  const counts = { made: 0, left: 0 };
  fc.assert(
    fc.property(file, fc.constantFrom("kb_x", "http://127.0.0.1:8787/v1", "a: 'b'", "NO"), (text, value) => {
      const checked = { format: YAML, meaning, isUsual, mayAdd: / ?(?:\{\}|\[\])/g };
      const { made, left } = checkEdits(checked, text, value);
      counts.made += made;
      counts.left += left;
    }),
    { numRuns: runs(100) },
  );
  t.comment(`${counts.made} edits, and ${counts.left} left to a person`);
  t.ok(counts.made > counts.left);
  t.end();
});

t.test("a new setting comes in, and all else stays", (t) => {
  fc.assert(
    fc.property(file, fc.constantFrom("kb_x", "two words", "12"), (text, value) => {
      for (const path of [
        ["new"],
        ["env", "new"],
        ["new", "b", "c"],
        ["models", 0, "new"],
      ] satisfies Path[]) {
        const edited = YAML.set(text, path, value);
        if (!edited.ok) {
          if (!/by hand|twice/.test(withNext(edited))) throw new Error(edited.problem);
          continue;
        }
        if (YAML.at(edited.text, path) !== value) throw new Error("not set");
        if (!isWithin(text.replace("{}", "{").replace("[]", "["), edited.text))
          throw new Error(`lost: ${edited.text}`);
        if (text.includes("\r\n") && /(?<!\r)\n/.test(edited.text))
          throw new Error("another line break came in");
        meaning(edited.text);
      }
      if (!YAML.set(text, ["new"], value).ok) throw new Error("not even at the top");
    }),
    { numRuns: runs(60) },
  );
  t.end();
});

t.test("a new setting looks like those beside it", (t) => {
  t.equal(set("", ["a", "b"], "x"), "a:\n  b: x\n");
  t.equal(set("# only this", ["a"], "x"), "# only this\na: x");
  t.equal(set("a:\n    b: 1\n", ["a", "c", "d"], "x"), "a:\n    b: 1\n    c:\n        d: x\n");
  t.equal(set("a: # note\nb: 1\n", ["a", "c"], "x"), "a: # note\n  c: x\nb: 1\n");
  t.equal(set("a: {}\n", ["a", "c"], true), "a: { c: true }\n");
  t.equal(set("a: { b: 1 }\n", ["a", "c", "d", 0], "x y"), 'a: { b: 1, c: { d: ["x y"] } }\n');
  t.equal(
    set("models:\n  - name: a\n", ["models", 1, "apiKey"], "x"),
    "models:\n  - name: a\n  - apiKey: x\n",
  );
  t.equal(
    set("models:\n  - name: a\n\n# end\n", ["models", 0, "apiKey"], "x"),
    "models:\n  - name: a\n    apiKey: x\n\n# end\n",
  );
  t.equal(set("a:\r\n- 1\r\n- 2", ["a", 2], "x"), "a:\r\n- 1\r\n- 2\r\n- x");
  t.equal(set("a:\n", ["a"], "x"), "a: x\n");
  t.equal(set("{a, b: }", ["a"], "x"), "{a: x, b: }");
  t.end();
});

t.test("a value is quoted as before, or where a reader could take it for something else", (t) => {
  t.equal(set("a: 'it''s' # c\n", ["a"], "o'k"), "a: 'o''k' # c\n");
  t.equal(set('a: "x"\n', ["a"], "y"), 'a: "y"\n');
  t.equal(set("a: x\n", ["a"], "on"), 'a: "on"\n');
  t.equal(set("a: x\n", ["a"], "0123"), 'a: "0123"\n');
  t.equal(set("a: x\n", ["a"], "1:30"), 'a: "1:30"\n');
  t.equal(set("a: x\n", ["a"], "2026-11-18"), 'a: "2026-11-18"\n');
  t.equal(set("a: x\n", ["a"], `$\{{ secrets.X }}`), `a: $\{{ secrets.X }}\n`);
  t.equal(set("{ a: x }", ["a"], "{env:X}"), '{ a: "{env:X}" }');
  t.equal(set("a: x\n", ["a"], "a # b"), 'a: "a # b"\n');
  t.equal(set("a: |\n  x\n  y\nb: 1\n", ["a"], "z"), "a: z\nb: 1\n");
  t.equal(set("a: 'x'\n", ["a"], "\u0085\u2028"), 'a: "\\u0085\\u2028"\n');
  t.equal(set("a: x\n", ["a"], 5), "a: 5\n");
  t.equal(YAML.at("a: 0123", ["a"]), "0123", "it may be a key of digits");
  t.end();
});

t.test("a removed setting takes its line along, and comments stay", (t) => {
  t.equal(set("# a\na: 1 # one\n# b\nb: 2\n", ["a"], undefined), "# a\n# b\nb: 2\n");
  t.equal(set("a:\n  # why\n  b: 1\nc: 2\n", ["a", "b"], undefined), "a: {}\n  # why\nc: 2\n");
  t.equal(set("a:\n- x\n", ["a", 0], undefined), "a: []\n");
  t.equal(set("- a: 1\n  b: 2\n", [0, "a"], undefined), "- b: 2\n");
  t.equal(set("- a: 1 # c\n", [0, "a"], undefined), "- {} # c\n");
  t.equal(set("{ a: 1 }", ["a"], undefined), "{}");
  t.equal(set("b: 2\na: 1", ["a"], undefined), "b: 2");
  t.equal(set("a: 1\n", ["a"], undefined), "");
  t.equal(set("a:\n  b: 1\n", ["a"], undefined), "", "with all that is in it");
  t.equal(set("a: 1\n", ["b", "c"], undefined), "a: 1\n");
  t.end();
});

t.test("what an edit could change elsewhere is left to the person", (t) => {
  const left: [string, Path][] = [
    ["a: &x 1\nb: *x\n", ["a"]],
    ["a: &x 1\nb: *x\n", ["b"]],
    ["a: &x\n  k: 1\nb: *x\n", ["a", "k"]],
    ["a: &x\n  k: 1\nb: *x\n", ["a", "new"]],
    ["a: &x { k: 1 }\nb:\n  <<: *x\n", ["b", "k"]],
    ["a: !secret x\n", ["a"]],
    ["a: 1\n", ["a", "b"]],
    ["a: [1]\n", ["a", "b"]],
    ["a: { b: 1 }\n", ["a"]],
    ["a: { b: 1 }\n", ["a", 0]],
    ["a: [1]\n", ["a", 2]],
    ["a: | # why\n  x\n", ["a"]],
    ["? { k: 1 }\n: 2\n", ["a"]],
    ["a: 1\na: 2\n", ["a"]],
  ];
  for (const [text, path] of left) {
    t.match(failureText(YAML.set(text, path, "y")), /by hand|twice/, JSON.stringify(text));
  }
  t.same(YAML.set("a: &x\n  k: 1\nb: *x\nc: 1\n", ["c"], "y").ok, true, "beside them it can be edited");
  t.end();
});

t.test("all scalars are read, with their lines", (t) => {
  const text = [
    "# comment: no",
    "models:",
    "  - name: 'a'",
    `    apiKey: $\{{ secrets.K }}`,
    "  - { apiKey: &k sk-1, on: true }",
    "text: |",
    "  apiKey: no",
    "use: *k",
    "none:",
    "tag: !x 1",
    "n: 1.5",
  ].join("\n");
  t.same(YAML.read(text), {
    ok: true,
    settings: [
      { path: ["models", 0, "name"], value: "a", line: 3 },
      { path: ["models", 0, "apiKey"], value: `$\{{ secrets.K }}`, line: 4 },
      { path: ["models", 1, "apiKey"], value: "sk-1", line: 5 },
      { path: ["models", 1, "on"], value: true, line: 5 },
      { path: ["text"], value: "apiKey: no\n", line: 6 },
      { path: ["use"], value: null, line: 8 },
      { path: ["none"], value: null, line: 9 },
      { path: ["tag"], value: null, line: 10 },
      { path: ["n"], value: 1.5, line: 11 },
    ],
  });
  t.same(YAML.read(""), { ok: true, settings: [] });
  t.same(YAML.at("", []), {});
  t.same(YAML.at("a: [1, { b: x }]", []), { a: [1, { b: "x" }] });
  t.equal(YAML.at("a: [1, { b: x }]", ["a", 1, "b"]), "x");
  t.equal(YAML.at("a: 1", ["constructor"]), undefined);
  t.end();
});

t.test("a file that is no YAML is refused with its line, and never quoted", (t) => {
  for (const [text, line] of [
    ["a: 1\nb: [1, 2\n", 2],
    ["a: 'sk-secret\n", 1],
    ["a: 1\n\tb: 2\n", 2],
    ["a: 1\nb\n", 2],
    ["a: 1\n---\nb: 2\n", 2],
    ["a: sk-secret: b\n", 1],
    ["[".repeat(1000), null],
    [`${"- ".repeat(1000)}x`, null],
  ] as const) {
    const edited = YAML.set(text, ["a"], "x");
    t.match(edited, { ok: false }, JSON.stringify(text.slice(0, 20)));
    t.notMatch(JSON.stringify(edited), /sk-secret/);
    if (line !== null) t.match(edited, { line });
    t.same(YAML.read(text), edited);
    t.equal(YAML.at(text, ["a"]), undefined);
  }
  t.end();
});
