import fc from "fast-check";
import t from "tap";
import { addGroup, addTool } from "../../src/config/edit-tools.ts";
import { parseConfig } from "../../src/config/parse.ts";
import { runs } from "../doubles/effort.ts";
import { failureText } from "../doubles/failure-text.ts";
import { changedRange, written } from "../doubles/written-config.ts";

const TOKEN = `sha256:${"c".repeat(64)}`;
const SETTINGS = {
  key: "file:~/keys/new, one",
  token: TOKEN,
  limits: { spend: ["$5/day", "$60/month"] },
  expires: "2027-03-31",
};
const LINES = [
  'key: "file:~/keys/new, one"',
  `token: ${TOKEN}`,
  "limits: { spend: [$5/day, $60/month] }",
  "expires: 2027-03-31",
];
const GATEWAY = "gateway: https://gateway.example.com/v1 # here";

function block(indent: number): string {
  return LINES.map((line) => `${" ".repeat(indent)}${line}\n`).join("");
}

t.test("a tool is added in the style of the others, after the last one and its comments", (t) => {
  const cases: [string, string, string][] = [
    [
      "block",
      `${GATEWAY}\ntools:\n  a: {}\n  b:\n    group: x\n    # model: y\n# the end\n`,
      `${GATEWAY}\ntools:\n  a: {}\n  b:\n    group: x\n    # model: y\n  new:\n${block(4)}# the end\n`,
    ],
    [
      "wide, apart by blank lines",
      `${GATEWAY}\ntools:\n   a:\n       group: x\n\n   b:\n       group: x\n\nlog: { level: info }\n`,
      `${GATEWAY}\ntools:\n   a:\n       group: x\n\n   b:\n       group: x\n\n   new:\n${block(7)}\nlog: { level: info }\n`,
    ],
    [
      "flow",
      `${GATEWAY}\ntools: { a: {} } # all\n`,
      `${GATEWAY}\ntools: { a: {}, new: { ${LINES.join(", ")} } } # all\n`,
    ],
    ["an empty map", `${GATEWAY}\ntools: {}\n`, `${GATEWAY}\ntools: { new: { ${LINES.join(", ")} } }\n`],
    ["nothing", `${GATEWAY}\ntools: # none yet\n`, `${GATEWAY}\ntools: # none yet\n  new:\n${block(4)}`],
    ["no tools at all", `${GATEWAY}\n# the end\n`, `${GATEWAY}\ntools:\n  new:\n${block(4)}# the end\n`],
    [
      "no line break at the end",
      `${GATEWAY}\ntools:\n  a: {}`,
      `${GATEWAY}\ntools:\n  a: {}\n  new:\n${block(4).trimEnd()}`,
    ],
    [
      "another system's line breaks",
      `${GATEWAY}\r\ntools:\r\n  a: {}\r\n`,
      `${GATEWAY}\r\ntools:\r\n  a: {}\r\n  new:\r\n${block(4).replaceAll("\n", "\r\n")}`,
    ],
  ];
  for (const [name, before, after] of cases) {
    const added = addTool(before, "new", SETTINGS);
    t.equal(added.ok ? added.text : added.problem, after, name);
  }
  t.end();
});

t.test("in any file, only the new lines are added", (t) => {
  fc.assert(
    fc.property(written, ({ text, tools }) => {
      const added = addTool(text, "new", SETTINGS);
      if (!added.ok) throw new Error(added.problem);
      const [start, end] = changedRange(text, added.text);
      if (start !== end) throw new Error(`${end - start} characters are gone:\n${added.text}`);
      const names = /^\uFEFF?gateway: /.test(text)
        ? Object.keys(parseConfig(added.text, "/").config?.tools ?? {})
        : [];
      if (names.length > 0 && names.length !== tools + 1) throw new Error(names.join());
    }),
    { numRuns: runs(30) },
  );
  t.end();
});

t.test("names that yaml would take for something else are quoted", (t) => {
  for (const name of ["no", "1.0", "on"]) {
    const added = addTool(`${GATEWAY}\ntools: { a: {} }\n`, name, SETTINGS);
    const { config } = parseConfig(added.ok ? added.text : "", "/home/me");
    t.match(config?.tools[name]?.key, { kind: "file", path: "/home/me/keys/new, one" });
    t.equal(config?.tools[name]?.expires !== null, true);
  }
  t.end();
});

t.test("a tool that is there, and a file that cannot be followed, stay as they are", (t) => {
  const cases: [string, RegExp][] = [
    [`${GATEWAY}\ntools: { new: {} }\n`, /config\.yaml already has a tool new.*keybearer tools rotate new/],
    ["tools: { a: [", /keybearer check/],
    ["", /keybearer check/],
    [`${GATEWAY}\ntools: {}\ntools: {}\n`, /tools twice/],
    [`${GATEWAY}\ntools: nonsense\n`, /by hand: tools\.new: \{/],
  ];
  for (const [text, problem] of cases) t.match(failureText(addTool(text, "new", SETTINGS)), problem, text);
  t.end();
});

t.test("a group is written below its gateway, and the short way to write one is spelled out for it", (t) => {
  const cases: [string, string][] = [
    [
      `# mine\n${GATEWAY}\ntools: { a: {} }\n`,
      "# mine\ngateways: # here\n  main:\n    base_url: https://gateway.example.com/v1\n    groups: { coding: {} }\ntools: { a: {} }\n",
    ],
    [
      "gateways:\n  main:\n    base_url: https://g.example/v1\n    # more\ntools: { a: {} }\n",
      "gateways:\n  main:\n    base_url: https://g.example/v1\n    groups: { coding: {} }\n    # more\ntools: { a: {} }\n",
    ],
    [
      "gateways: { main: { base_url: https://g.example/v1, groups: { x: {} } } }\ntools: { a: {} }\n",
      "gateways: { main: { base_url: https://g.example/v1, groups: { x: {}, coding: {} } } }\ntools: { a: {} }\n",
    ],
    [
      "gateways:\n  main:\n    groups: # none\n    base_url: https://g.example/v1\ntools: { a: {} }\n",
      "gateways:\n  main:\n    groups: { coding: {} } # none\n    base_url: https://g.example/v1\ntools: { a: {} }\n",
    ],
  ];
  for (const [before, after] of cases) {
    const added = addGroup(before, "main", "coding");
    t.equal(added.ok ? added.text : added.problem, after);
    t.match(parseConfig(after, "/").config?.gateways.main?.groups.coding, { multiplier: 1, models: ["*"] });
  }
  t.match(addGroup("gateways: { other: {} }\n", "main", "coding"), { ok: false, problem: /no gateway main/ });
  t.end();
});
