import fc from "fast-check";
import t from "tap";
import { type Format, formatFor } from "../../src/clients/format.ts";
import { LONG, runs } from "../doubles/effort.ts";

const FORMATS: readonly Format[] = ["json", "jsonc", "toml", "yaml", "dotenv", "sh", "fish"];

/** Texts that cost a careless reader quadratic time or its stack. */
const REPEATED = [
  "x",
  " ",
  "\t",
  "\n",
  "\r",
  "\r\n",
  "\0",
  "\uFEFF",
  "\ud800",
  "'",
  '"',
  "`",
  "\\",
  "$",
  "#",
  "=",
  ":",
  ",",
  "-",
  "- ",
  "? ",
  "[",
  "]",
  "{",
  "}",
  "(",
  ")",
  "((",
  "$(",
  "$((",
  "${",
  "${x[",
  '"$(',
  "<<A ",
  "<<A\n",
  "&a ",
  "*a ",
  "| ",
  ";;",
  "//",
  "/*",
  "'''",
  '"""',
  "[[a]]\n",
  "[a]\n",
  "a.",
  "a=1\n",
  "a='\n",
  'a="\n',
  "a=1 ",
  "a=1;",
  "a=(",
  "a=()",
  "a: 1\n",
  "a: [\n",
  "a:\n - ",
  "a: {",
  '{"a":',
  '"a",',
  "export a=1 ",
  "set a ",
  "a \\\n",
  "# a=1\n",
];

t.test("every text has an answer, in linear time, and a problem is a sentence without the text", (t) => {
  const size = LONG ? 50_000 : 1_500;
  for (const format of FORMATS) {
    const { read, at, set } = formatFor(format);
    const secret = "sk-0123456789abcdef";
    for (const piece of REPEATED) {
      for (const text of [
        piece.repeat(size / piece.length),
        `a=1\n${secret}${piece.repeat(size / piece.length)}`,
      ]) {
        const all = read(text);
        const edited = set(text, ["a", 0], "b");
        at(text, ["a", 0]);
        for (const result of [all, edited]) {
          if (result.ok) continue;
          const { problem, line } = result;
          const isSentence = /^\S.{5,200}$/.test(problem) && !problem.includes(secret);
          if (!isSentence) t.fail(`${format}: ${JSON.stringify(piece)}: ${problem}`);
          if (line !== null && !(line >= 1)) t.fail(`${format}: ${JSON.stringify(piece)}: line ${line}`);
        }
      }
    }
    t.pass(format);
  }
  t.end();
});

t.test("a line of a megabyte is read and edited", (t) => {
  const long = "x".repeat(990_000);
  const texts: Readonly<Record<Format, string>> = {
    json: `{"a":["${long}"],"b":1}`,
    jsonc: `{"a":["${long}"],"b":1}`,
    toml: `a = ["${long}"]\nb = 1`,
    yaml: `a: [${long}]\nb: 1`,
    dotenv: `a='${long}'\nb=1`,
    sh: `export a="${long}" b=1`,
    fish: `set -g a ${long}; set b 1`,
  };
  for (const format of FORMATS) {
    const text = texts[format];
    const after = formatFor(format).set(text, ["a", 0], "short");
    t.same(after, { ok: true, text: text.replace(long, "short") }, format);
    t.equal(formatFor(format).at(text, ["a", 0]), long, format);
  }
  t.end();
});

const piece = fc.constantFrom(
  ..."'\"`$#=:,-[]{}()<>&|;\\/* \n\t",
  "\r\n",
  "a",
  "b",
  "A=1",
  "a: ",
  "- ",
  "export ",
  "set ",
  "<<a",
  "1.5",
  "true",
  "&a",
  "*a",
  "[[",
  "]]",
  '"""',
  "'''",
);

t.test("a comment that does not end is an error", (t) => {
  for (const format of ["json", "jsonc"] as const)
    for (const text of ["/*", '{"a":1} /*', '{"a":1}/', '{"a":1} //'])
      t.equal(typeof formatFor(format).read(text).ok, "boolean", `${format} ${text}`);
  t.end();
});

t.test("an edit of any text is refused, or changes that one setting", (t) => {
  for (const format of FORMATS) {
    let edits = 0;
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
        const text = pieces.join("");
        const { read, at, set } = formatFor(format);
        const before = read(text);
        if (!before.ok) return;
        for (const { path, value } of before.settings) {
          if (path.length === 0) continue;
          const edited = set(text, path, "new");
          if (!edited.ok) continue;
          edits += 1;
          const after = read(edited.text);
          if (!after.ok || at(edited.text, path) !== "new")
            throw new Error(`not set: ${JSON.stringify(edited.text)}`);
          const others = (all: typeof before) =>
            JSON.stringify(
              all.settings.map((each) => (each.path.join("\n") === path.join("\n") ? null : each)),
            );
          // A value of several lines moves the lines behind it.
          const isOneLine = typeof value !== "string" || !value.includes("\n");
          if (isOneLine && !text.includes("\n") && others(after) !== others(before))
            throw new Error("others changed");
        }
      }),
      { numRuns: runs(300) },
    );
    t.comment(`${format}: ${edits} edits`);
  }
  t.end();
});
