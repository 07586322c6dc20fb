import fc from "fast-check";
import { parse } from "smol-toml";
import t from "tap";
import { formatFor, type Path } from "../../src/clients/format.ts";
import { editToml, tomlAt } from "../../src/clients/toml-edit.ts";
import { checkEdits, done } from "../doubles/checked-edits.ts";
import { runs } from "../doubles/effort.ts";
import { changedRange } from "../doubles/written-config.ts";

const TABLE = ["model_providers", "keybearer"];

/** Lines that look like what they are not, and all the ways to write a value. */
const setting = fc.constantFrom(
  ["approval_policy = 'never'  # it's mine"],
  ["notify = [", "  'a', # one", '  ["b"],', "]"],
  ['note = """', "[model_providers.keybearer]", 'name = "not a setting" \\', '  """'],
  ["raw = '''", 'model_provider = "no"', "''''"],
  ["when = 2026-11-15T09:00:00Z", "day = 2026-11-15", "at = 09:00:00.5"],
  ['"quoted key" = { a = 1, "b.c" = [ { d = 0xff } ] }'],
  ["tui.theme = 'dark'", "tui . size = 1_000"],
  ["flag = true", "", "# a comment", "nothing = inf"],
);
const tables = fc.constantFrom(
  ["[mcp_servers.files]", "command = 'npx' # run", "  args = ['-y']"],
  ["[model_providers.other]", 'name = "Other"', 'env_key = "OTHER"'],
  ["[[hooks]]", "a = 1", "[[hooks]]", "a = 2", "[hooks.inner]", "b = 3"],
  ['[ projects . "/home/me/x y" ]', 'trust_level = "trusted"'],
  ["# above", "[empty] # beside", ""],
);
const ours = fc.constantFrom(
  [],
  [
    "[model_providers.keybearer]",
    'name = "keybearer"',
    'env_key = "X" # gone',
    'base_url = "http://old" # stays',
  ],
  ["[model_providers.keybearer] # ours", "", "  experimental_bearer_token = 'kb_old'", "  # the end", ""],
  ["[model_providers.keybearer]"],
);
const root = fc.constantFrom(
  [],
  ['model = "old"  # mine'],
  ["model_provider = 'x'"],
  ['"model" = """old"""'],
);
const file = fc
  .record({
    settings: fc.uniqueArray(setting, { maxLength: 4, selector: (lines) => lines[0] }),
    root,
    before: fc.uniqueArray(tables, { maxLength: 2, selector: (lines) => lines[0] }),
    ours,
    after: fc.constantFrom([], ["[last]", "x = 1"]),
    eol: fc.constantFrom("\n", "\r\n"),
    end: fc.constantFrom("", "\n", "\n\n"),
    bom: fc.constantFrom("", "\uFEFF"),
  })
  .map(({ settings, root, before, ours, after, eol, end, bom }) => {
    const lines = [...settings.slice(0, 2), root, ...settings.slice(2), ...before, ours, after].flat();
    return bom + [lines.join("\n"), end].join("").replaceAll("\n", eol);
  });
const wanted = fc.oneof(fc.constantFrom("keybearer", 'a "b" \\c', "ü\u007f"), fc.string());

t.test("texts come in or change below their header, and no other byte does", (t) => {
  fc.assert(
    fc.property(file, wanted, (text, value) => {
      const top = done(editToml(text, [], "model", value));
      if (tomlAt(top, ["model"]) !== value) throw new Error("model is not set");
      if (done(editToml(top, [], "model", value)) !== top) throw new Error("twice is not once");
      const provider = (before: string) => {
        const withUrl = done(editToml(before, TABLE, "base_url", value));
        const withToken = done(editToml(withUrl, TABLE, "experimental_bearer_token", "kb_x"));
        return done(editToml(withToken, TABLE, "env_key", null));
      };
      const after = provider(top);
      if (tomlAt(after, [...TABLE, "base_url"]) !== value) throw new Error("base_url is not set");
      if (tomlAt(after, [...TABLE, "env_key"]) !== undefined) throw new Error("env_key is still there");
      if (provider(after) !== after) throw new Error("twice is not once");
      // One place is touched by one setting: all that is before and behind it is as it was.
      const [from, to] = changedRange(text, top);
      const gone = text.slice(from, to);
      if (/[\n#]/.test(gone)) throw new Error(`more than a value went: ${gone}`);
      if (text.includes("\r\n") && /(?<!\r)\n/.test(after))
        throw new Error("a line break of another kind came in");
      if (/\w/.test(text) && text.endsWith("\n") !== after.endsWith("\n"))
        throw new Error("the end is another");
      for (const line of text.replace("\uFEFF", "").split(/\r?\n/)) {
        const touched = /^\s*"?(?:model|env_key|base_url|experimental_bearer_token)"? =/.test(line);
        if (!touched && !after.includes(line)) throw new Error(`gone: ${line}`);
      }
    }),
    { numRuns: runs(50) },
  );
  t.end();
});

t.test("what is new stands where the format and the eye want it", (t) => {
  const change = (text: string) =>
    done(editToml(done(editToml(text, [], "model_provider", "k")), TABLE, "name", "k"));
  const table = '[model_providers.keybearer]\nname = "k"\n';
  t.equal(change(""), `model_provider = "k"\n\n${table}`);
  t.equal(
    change("a = 1 # one\n\n[b]\nc = 2\n"),
    `a = 1 # one\nmodel_provider = "k"\n\n[b]\nc = 2\n\n${table}`,
  );
  t.equal(change("# about b\n[b]"), `model_provider = "k"\n\n# about b\n[b]\n\n${table.trimEnd()}`);
  t.equal(change(`model_provider = 'o' # mine\n\n${table}`), `model_provider = 'k' # mine\n\n${table}`);
  t.equal(
    change("[model_providers.keybearer]\n  wire_api = 'x' # y\n\n[z]\n"),
    'model_provider = "k"\n\n[model_providers.keybearer]\n  wire_api = \'x\' # y\n  name = "k"\n\n[z]\n',
  );
  t.end();
});

t.test("a scalar is replaced wherever it is", (t) => {
  const TOML = formatFor("toml");
  const cases: [string, Path, string][] = [
    ['a.b.name = "x" # c\n', ["a", "b", "name"], 'a.b.name = "k" # c\n'],
    ["a = { b = { name = 'x' } }\n", ["a", "b", "name"], "a = { b = { name = 'k' } }\n"],
    ['a = { "x y".name = 1, b = [] }\n', ["a", "x y", "name"], 'a = { "x y".name = "k", b = [] }\n'],
    [
      'args = [\n  "x", # one\n  1979-05-27 07:32:00,\n]\n',
      ["args", 0],
      'args = [\n  "k", # one\n  1979-05-27 07:32:00,\n]\n',
    ],
    ["args = [1979-05-27 07:32:00, [2]]\n", ["args", 0], 'args = ["k", [2]]\n'],
    [
      "[[a]]\nn = 1\n[[a]]\nn = 2\n[a.b]\nn = 3\n",
      ["a", 1, "n"],
      '[[a]]\nn = 1\n[[a]]\nn = "k"\n[a.b]\nn = 3\n',
    ],
    ["[[a]]\n[[a]]\n[a.b]\nn = 3\n", ["a", 1, "b", "n"], '[[a]]\n[[a]]\n[a.b]\nn = "k"\n'],
    ["[[a]]\n[[a.b]]\n[[a.b]]\nn = 3\n", ["a", 0, "b", 1, "n"], '[[a]]\n[[a.b]]\n[[a.b]]\nn = "k"\n'],
    ['n = """\nx"""\n', ["n"], 'n = "k"\n'],
  ];
  for (const [text, path, after] of cases) t.equal(done(TOML.set(text, path, "k")), after);
  t.equal(
    done(TOML.set("[[a]]\nn = 1\n[[a]]\nn = 2\n", ["a", 0, "m"], true)),
    "[[a]]\nn = 1\nm = true\n[[a]]\nn = 2\n",
  );
  t.equal(done(TOML.set("n = 1\n", ["n"], 2)), "n = 2\n");
  t.equal(done(TOML.set("n = 1\n", ["n"], 1.5)), "n = 1.5\n");
  t.equal(done(TOML.set("n = 1\n", ["a b"], "x")), 'n = 1\n"a b" = "x"\n');
  t.equal(done(TOML.set("a = 1\nn = 1", ["n"], undefined)), "a = 1");
  t.equal(done(TOML.set("a = 1\n\n[b]\n", ["b"], undefined)), "a = 1\n");
  t.end();
});

t.test("ways of writing that an edit cannot follow are left for the person", (t) => {
  for (const text of [
    'model_providers = { other = { name = "x" } }\n',
    'model_providers.keybearer.url = "x"\n',
    '[model_providers]\nkeybearer = { url = "x" }\n',
    '[model_providers]\nkeybearer.url = "x"\n',
    "[[model_providers]]\nname = 1\n",
    "model_providers = 1\n",
  ]) {
    t.match(editToml(text, TABLE, "name", "k"), { ok: false, next: "change it by hand" }, text);
  }
  const TOML = formatFor("toml");
  for (const [text, path] of [
    ["a = [1]\n", ["a", 1]],
    ["a = [1]\n", ["a", 3]],
    ["[[a]]\nn = 1\n", ["a", 1, "n"]],
    ["a = 1\n", ["a", "b"]],
  ] satisfies [string, Path][]) {
    t.match(TOML.set(text, path, "k"), { ok: false, next: "change it by hand" }, text);
  }
  t.match(TOML.set("a = { b = 1 }\n", ["a", "b"], undefined), { ok: false, next: "change it by hand" });
  t.match(TOML.set("a = [1]\n", ["a", 0], undefined), { ok: false, next: "change it by hand" });
  t.match(TOML.set("a = 1\n", ["a"], Number.POSITIVE_INFINITY), { ok: false, next: "change it by hand" });
  t.match(TOML.set("a = 1\n", [], undefined), { ok: false });
  t.end();
});

t.test("one scalar is changed or goes, and no other byte is", (t) => {
  const counts = { made: 0, left: 0 };
  fc.assert(
    fc.property(file, wanted, (text, value) => {
      const { made, left } = checkEdits(
        {
          format: formatFor("toml"),
          // Without the classes of the parser.
          meaning: (each) => JSON.parse(JSON.stringify(parse(each))),
          isUsual: (line) => !/\\|"""|'''|0x|_0/.test(line),
        },
        text,
        value,
      );
      counts.made += made;
      counts.left += left;
    }),
    { numRuns: runs(60) },
  );
  t.comment(`${counts.made} edits, and ${counts.left} left to a person`);
  t.ok(counts.made > counts.left);
  t.end();
});

t.test("all scalars are read, with their lines", (t) => {
  const text = [
    "# a = 1",
    "a = 'x' # no",
    "b.c = [ 1, # one",
    "  { d = true, e.f = 1.0 },",
    "]",
    "[[t]]",
    'n = """',
    'm = "no"',
    '"""',
    "[[t]]",
    "when = 1979-05-27 07:32:00",
    '["q q".r]',
    "big = 9223372036854775807",
  ].join("\r\n");
  t.same(formatFor("toml").read(text), {
    ok: true,
    settings: [
      { path: ["a"], value: "x", line: 2 },
      { path: ["b", "c", 0], value: 1, line: 3 },
      { path: ["b", "c", 1, "d"], value: true, line: 4 },
      { path: ["b", "c", 1, "e", "f"], value: 1, line: 4 },
      { path: ["t", 0, "n"], value: 'm = "no"\r\n', line: 7 },
      { path: ["t", 1, "when"], value: null, line: 11 },
      { path: ["q q", "r", "big"], value: null, line: 13 },
    ],
  });
  t.end();
});

t.test("a file that is no TOML is refused with its line", (t) => {
  const bad: [string, number, RegExp][] = [
    ["a = 1\nb = \n", 2, /invalid value/],
    ["a = 1\nb\n", 2, /illegal character in key/],
    ["a = 1\n\na = 2\n", 3, /redefine/],
    ["[a]\n[b]\n[a]\n", 3, /redefine/],
    ["a = { b = 1 }\n[a.c]\n", 2, /redefine/],
    ["[a]\nb.c = 1\n[a.b]\n", 3, /redefine/],
    ["a = []\n[[a]]\n", 2, /redefine/],
    ["a = bare\n", 1, /invalid value/],
    ["a = 1 b = 2\n", 1, /end-of-line/],
    ['\na = "C:\\Users"\n', 2, /unicode/],
    ['a = "x\n', 1, /control characters/],
    ['a = """x\n', 1, /end of file|unfinished/],
    ["[a\n", 1, /key/],
    ["a = [1, 2\n", 2, /expected comma/],
    ["a = 'x\u0001'\n", 1, /control characters/],
    [`a = ${"[".repeat(50_000)}`, 1, /nested/],
  ];
  for (const [text, line, problem] of bad)
    t.match(editToml(text, [], "x", "y"), { ok: false, line, problem }, text.slice(0, 30));
  t.end();
});

t.test("a refusal never quotes the file, which may hold keys", (t) => {
  const edited = editToml('api_key = "sk-real-key\nb = 1\n', [], "x", "y");
  t.match(edited, { ok: false, line: 1 });
  t.notMatch(JSON.stringify(edited), /sk-real-key/);
  t.end();
});
