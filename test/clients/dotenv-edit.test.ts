import fc from "fast-check";
import t from "tap";
import { formatFor, type Path } from "../../src/clients/format.ts";
import { changedVariables, checkEdits, done, isWithin } from "../doubles/checked-edits.ts";
import { runs } from "../doubles/effort.ts";

const DOTENV = formatFor("dotenv");

function set(text: string, path: Path, value: string | undefined, near?: Path): string {
  return done(DOTENV.set(text, path, value, near));
}

/** Lines, and what they assign. */
type Part = readonly [lines: string, ...assigned: (readonly [name: string, value: string | null])[]];

const part = fc.constantFrom<Part>(
  ["A=sk-abc", ["A", "sk-abc"]],
  ["export A=http://gateway/v1", ["A", "http://gateway/v1"]],
  ["  A = spaced  ", ["A", "spaced"]],
  ["B='single # no comment'", ["B", "single # no comment"]],
  ['B="it\'s" # a comment', ["B", "it's"]],
  ["B=plain # A=no", ["B", "plain"]],
  ["C=", ["C", ""]],
  ["C= # nothing", ["C", ""]],
  ["C=two words", ["C", "two words"]],
  ["D=$OTHER", ["D", null]],
  ['D="a\\nb"', ["D", null]],
  ["D=a#b", ["D", null]],
  ["D='a'b", ["D", null]],
  ["D=`cmd`", ["D", null]],
);

/** Values of several lines. */
const several = fc.constantFrom<Part>(
  ["E='over\nA=inside\nlines'", ["E", null]],
  ['E="-----BEGIN\nA=inside\n# no comment\nB=\'\n-----END" # note', ["E", null]],
);
const noise = fc.constantFrom<Part>(
  ["# A=sk-comment"],
  ["  # 'it"],
  [""],
  ["not an assignment"],
  ["=x"],
  ["1A=x"],
  ["A B=x"],
);

const file = fc
  .record({
    parts: fc.array(fc.oneof(part, part, several, noise), { maxLength: 8 }),
    eol: fc.constantFrom("\n", "\r\n"),
    end: fc.constantFrom("", "\n", "\n\n"),
    bom: fc.constantFrom("", "\uFEFF"),
  })
  .map(({ parts, eol, end, bom }) => ({
    text: bom + (parts.map(([lines]) => lines).join("\n") + end).replaceAll("\n", eol),
    assigned: parts.flatMap(([, ...assigned]) => assigned),
  }));

/** As lib/main.js of npm's dotenv 17 reads a file. */
function parseLikeNpm(text: string): Map<string, string> {
  const line =
    /^\s*(?:export\s+)?([\w.-]+)(?:\s*=\s*?|:\s+?)(\s*'(?:\\'|[^'])*'|\s*"(?:\\"|[^"])*"|\s*`(?:\\`|[^`])*`|[^#\r\n]+)?\s*(?:#.*)?$/gm;
  const values = new Map<string, string>();
  for (const [, name = "", raw = ""] of text.replace(/\r\n?/g, "\n").matchAll(line)) {
    values.set(name, raw.trim().replace(/^(['"`])([\s\S]*)\1$/, "$2"));
  }
  return values;
}

t.test("the assignments are those that other readers find", (t) => {
  fc.assert(
    fc.property(file, ({ text, assigned }) => {
      const read = DOTENV.read(text);
      if (!read.ok) throw new Error(read.problem);
      const found = read.settings.map(({ path, value }) => [path[0], value]);
      if (JSON.stringify(found) !== JSON.stringify(assigned))
        throw new Error(`found ${JSON.stringify(found)}`);
      const npm = parseLikeNpm(text);
      for (const [name, value] of new Map(assigned)) {
        if (value !== null && npm.get(name) !== value)
          throw new Error(`${name} is ${npm.get(name)} for dotenv`);
      }
    }),
    { numRuns: runs(300) },
  );
  t.end();
});

t.test("one setting is changed or goes, and no other byte is", (t) => {
  const counts = { made: 0, left: 0 };
  fc.assert(
    fc.property(file, fc.constantFrom("kb_x", "http://127.0.0.1:8787", "a 'b'"), ({ text }, value) => {
      const isUsual = (line: string) => !/\$|\\|#b|'b$|`|two words/.test(line);
      const meaning = (each: string) => DOTENV.at(each, []);
      const checked = { format: DOTENV, meaning, changed: changedVariables, isUsual };
      const { made, left } = checkEdits(checked, text, value);
      counts.made += made;
      counts.left += left;
    }),
    { numRuns: runs(300) },
  );
  t.comment(`${counts.made} edits, and ${counts.left} left to a person`);
  t.ok(counts.made > counts.left);
  t.end();
});

t.test("a new variable comes in, at the end or beside another one", (t) => {
  fc.assert(
    fc.property(
      file,
      fc.constantFrom("kb_x", "a 'b'", ""),
      fc.boolean(),
      ({ text, assigned }, value, isBeside) => {
        const after = set(text, ["NEW", 0], value, isBeside ? [assigned[0]?.[0] ?? "NO", 0] : undefined);
        if (DOTENV.at(after, ["NEW", 0]) !== value) throw new Error("not set");
        if (!isWithin(text, after)) throw new Error("something was lost");
        if (text.includes("\r\n") && /(?<!\r)\n/.test(after)) throw new Error("another line break came in");
        if (parseLikeNpm(after).get("NEW") !== value) throw new Error("dotenv does not find it");
        if (set(after, ["NEW", 0], undefined) !== text) throw new Error("out again is not as before");
      },
    ),
    { numRuns: runs(150) },
  );
  t.end();
});

t.test("a new variable is written like the one beside it", (t) => {
  t.equal(set("A=x\nB=y\n", ["N", 0], "z", ["A", 0]), "A=x\nN=z\nB=y\n");
  t.equal(set("  export A = 'x' # c\n", ["N", 0], "z", ["A", 0]), "  export A = 'x' # c\n  export N = 'z'\n");
  t.equal(set("A=x", ["N", 0], "z"), "A=x\nN=z");
  t.equal(set("", ["N", 0], "z"), "N=z\n");
  t.equal(set("A=x\nA=y\n", ["A", 1], "z"), "A=x\nA=z\n");
  t.equal(set("A=x\nA=y\n", ["A", 0], undefined), "A=y\n");
  t.equal(set("A=x\r\n", ["A", 1], "z"), "A=x\r\nA=z\r\n");
  t.end();
});

t.test("a value is quoted if it needs quotes, and refused if no quotes can hold it", (t) => {
  t.equal(set("A=x\n", ["A", 0], "a b"), "A='a b'\n");
  t.equal(set("A=x\n", ["A", 0], "it's"), 'A="it\'s"\n');
  t.equal(set('A="x"\n', ["A", 0], "y"), 'A="y"\n');
  t.equal(set("A= # c\n", ["A", 0], "y"), "A=y # c\n");
  for (const value of ["$X", "a\nb", "\\n", "'\"", "\0"]) {
    t.match(DOTENV.set("A=x\n", ["A", 0], value), { ok: false, next: "change it by hand" });
  }
  t.match(
    DOTENV.set("A='a\nb'\n", ["A", 0], "x"),
    { ok: false, next: "change it by hand" },
    "a value of two lines",
  );
  t.match(
    DOTENV.set("A=x\n", ["A", 2], "x"),
    { ok: false, next: "change it by hand" },
    "there is no second one",
  );
  t.match(DOTENV.set("A=x\n", ["a b", 0], "x"), { ok: false });
  t.match(DOTENV.set("A=x\n", [], "x"), { ok: false });
  t.end();
});

t.test("a setting has its line, and two assignments of one name are two settings", (t) => {
  t.same(DOTENV.read("# c\nA=1\nB='x\ny'\nA=$B\n"), {
    ok: true,
    settings: [
      { path: ["A", 0], value: "1", line: 2 },
      { path: ["B", 0], value: null, line: 3 },
      { path: ["A", 1], value: null, line: 5 },
    ],
  });
  t.same(DOTENV.at("A=1\nB=x\nA=2", []), { A: ["1", "2"], B: ["x"] });
  t.equal(DOTENV.at("A='x\nB=no'", ["B", 0]), undefined);
  t.end();
});
