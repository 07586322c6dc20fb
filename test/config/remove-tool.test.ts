import { deepStrictEqual, equal, ok } from "node:assert/strict";
import fc from "fast-check";
import t from "tap";
import { parse } from "yaml";
import { removeTool } from "../../src/config/edit-tools.ts";
import { runs } from "../doubles/effort.ts";
import { failureText } from "../doubles/failure-text.ts";
import { changedRange, written } from "../doubles/written-config.ts";

interface Case {
  readonly name: string;
  readonly before: string;
  readonly after: string;
  readonly comment?: boolean;
}

const cases: readonly Case[] = [
  {
    name: "a block tool goes with its lines and the comments inside it",
    before:
      "tools:\n  codex: # mine\n    key: x # k\n    # model: y\n    limits:\n      concurrent: 4\n      # deeper\n    # last\n  other: {}\n",
    after: "tools:\n  other: {}\n",
  },
  {
    name: "what is above it stays, and that is reported",
    before: "tools:\n  a: {}\n\n  # the agent\n  codex: {}\n  # the next\n  other: {}\n",
    after: "tools:\n  a: {}\n\n  # the agent\n  # the next\n  other: {}\n",
    comment: true,
  },
  {
    name: "a comment inside the one before is none above it",
    before: "tools:\n  a:\n    key: x\n    # model: y\n  codex: {}\n",
    after: "tools:\n  a:\n    key: x\n    # model: y\n",
  },
  {
    name: "a comment inside it behind a blank line goes, one beside its name stays",
    before: "tools:\n  codex:\n    key: x\n\n    # spare\n\n  # other\n  other: {}\n",
    after: "tools:\n\n  # other\n  other: {}\n",
  },
  {
    name: "the last of a block, at the end of a file without a line end",
    before: "tools:\n  other: {}\n  codex:\n    key: x",
    after: "tools:\n  other: {}",
  },
  {
    name: "a tool without a value",
    before: "tools:\r\n  codex:\r\n  other:\r\n",
    after: "tools:\r\n  other:\r\n",
  },
  {
    name: "a value of several lines goes whole",
    before: "tools:\n  codex:\n    process: |+\n      /bin/x\n      # no comment\n\n  other: {}\nlog: {}\n",
    after: "tools:\n  other: {}\nlog: {}\n",
  },
  {
    name: "a flow tool on several lines below a block",
    before: "tools:\n  codex: {\n    key: x, # k\n  } # end\n  other: {}\n",
    after: "tools:\n  other: {}\n",
  },
  {
    name: "the first of a line",
    before: "tools: { codex: {}, other: {} } # all\n",
    after: "tools: { other: {} } # all\n",
  },
  {
    name: "one in the middle of a line",
    before: "tools: { a: {}, codex: { key: x } , other: {} }\n",
    after: "tools: { a: {}, other: {} }\n",
  },
  {
    name: "the last of a line",
    before: "tools: { a: {}, codex: { key: x } }\n",
    after: "tools: { a: {} }\n",
  },
  {
    name: "the last of a line that ends in a comma",
    before: "tools: { a: {}, codex: {}, }\n",
    after: "tools: { a: {}, }\n",
  },
  {
    name: "names without values in a line",
    before: "tools: {a, codex, other:}",
    after: "tools: {a, other:}",
  },
  {
    name: "one of a flow map with one tool a line",
    before: "tools: {\n  # first\n  codex: {}, # mine\n  other: {}\n}\n",
    after: "tools: {\n  # first\n  other: {}\n}\n",
    comment: true,
  },
  {
    name: "the last of a flow map with one tool a line, with its comment and the comma that it needed",
    before: "tools: {\n  a: {},\n  codex: {} # mine\n}\n",
    after: "tools: {\n  a: {}\n}\n",
  },
  {
    name: "the last of a flow map behind a comment",
    before: "tools: {\n  a: {}, # a\n  codex: {}\n}\n",
    after: "tools: {\n  a: {}, # a\n}\n",
  },
  {
    name: "a quoted name",
    before: "tools:\n  'codex':\n    key: x\n  \"other\": {}\n",
    after: 'tools:\n  "other": {}\n',
  },
  {
    name: "a name written in the long way",
    before: "tools:\n  ? codex # mine\n  : key: x\n    model: y\n  other: {}\n",
    after: "tools:\n  other: {}\n",
  },
  {
    name: "only that tool, where another thing has its name",
    before: "gateways:\n  codex: {}\ntools:\n  other: { model: codex }\n  codex: {}\nprices: { codex: {} }\n",
    after: "gateways:\n  codex: {}\ntools:\n  other: { model: codex }\nprices: { codex: {} }\n",
  },
];

for (const { name, before, after, comment = false } of cases) {
  t.test(`a tool is removed: ${name}`, async (t) => {
    t.strictSame(removeTool(before, "codex"), { ok: true, text: after, commentAbove: comment });
  });
}

t.test("after the last tool an empty map is left", async (t) => {
  for (const text of ["tools: { codex: {} }\n", "tools:\n  codex:\n    key: x\n"])
    t.match(removeTool(text, "codex"), { ok: true, text: "tools: {}\n" });
});

t.test("what cannot be followed safely is left alone, without showing a key", async (t) => {
  const texts: [string, RegExp][] = [
    ["tools: { other: {} }", /no tool codex .* are other/],
    ["tools: { codex: {}, codex: {}, other: {} }", /twice/],
    ["tools: { codex: { key: [", /keybearer check/],
    ["tools: { a: {}, # a\n  codex: { key: sk-secretsecret } }", /by hand/],
    ["tools: [codex]", /no map of tools/],
    ["tools: { codex: &x {}, other: *x }", /keybearer check/],
  ];
  for (const [text, problem] of texts) {
    const result = removeTool(text, "codex");
    t.match(failureText(result), problem, text);
    t.notMatch(JSON.stringify(result), /secretsecret/);
  }
});

t.test("from any file one tool is removed, in one piece, and nothing else", async () => {
  fc.assert(
    fc.property(written, ({ text, tool, tools, eol }) => {
      const result = removeTool(text, tool);
      if (!result.ok) throw new Error(result.problem);
      const wanted = parse(text, { schema: "failsafe" });
      delete wanted.tools[tool];
      deepStrictEqual(parse(result.text, { schema: "failsafe" }), wanted);
      const [start, end] = changedRange(text, result.text);
      // Instead of the last one there is {}, without the comments inside the map.
      const isLast = tools === 1;
      if (!isLast) equal(text.length - result.text.length, end - start, "something was written");
      for (const note of [...(isLast ? [] : ["  # about the next"]), "# at the margin", "# the end"]) {
        const count = (of: string) => of.split(eol).filter((line) => line === note).length;
        equal(count(result.text), count(text), "a comment beside the tool went");
      }
      if (eol === "\r\n") ok(!/[^\r]\n/.test(result.text), "a line end of another kind");
      equal(result.text.endsWith(eol), text.endsWith(eol), "the end of the file");
      equal(result.text.startsWith("\uFEFF"), text.startsWith("\uFEFF"), "the byte order mark");
    }),
    { numRuns: runs(50) },
  );
});
