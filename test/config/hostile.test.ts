import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import t from "tap";
import { loadConfig } from "../../src/config/load.ts";
import { parseConfig } from "../../src/config/parse.ts";
import { LONG, repeats, runs } from "../doubles/effort.ts";
import type { Outcome } from "./parse-hostile.ts";

const GATEWAY = "gateway: https://gateway.example.com/v1\n";
const times = (count: number, make: (index: number) => string) =>
  Array.from({ length: count }, (_, i) => make(i));

/** Of the files that are slow to read. */
const SCALE = repeats("KEYBEARER_HOSTILE_SCALE", 0.3, 3);

const HOSTILE: Readonly<Record<string, string>> = {
  "an alias bomb": `a: &a [x]\n${times(9, (i) => `b${i}: &b${i} [${times(10, () => (i === 0 ? "*a" : `*b${i - 1}`)).join(",")}]`).join("\n")}\n`,
  "2,000 duplicate keys": times(2000, () => "listen: localhost:1\n").join(""),
  "2,000 duplicate tools": `${GATEWAY}tools:\n${times(2000, () => "  codex: {}\n").join("")}`,
  "1,000 deep in brackets": "[".repeat(1000),
  "1,000 deep in brackets below a setting": `${GATEWAY}tools: ${"[".repeat(1000)}`,
  "1,000 deep in braces": "{a: ".repeat(1000),
  "1,000 deep by indentation": times(1000, (i) => `${" ".repeat(i)}a:\n`).join(""),
  "1,000 dashes on a line": "- ".repeat(1000),
  "1,000 dashes below a setting": `a:\n  ${"- ".repeat(1000)}x`,
  "1,000 dashes after a colon": `? a\n: ${"- ".repeat(1000)}x`,
  "1,000 dashes after a marker": `--- ${"- ".repeat(1000)}x`,
  "1,000 dashes after an anchor": `&a ${"- ".repeat(1000)}x`,
  "1,000 dashes with tags": "- !a ".repeat(1000),
  "1,000 question marks": "? ".repeat(1000),
  "1,000 of both": "- ? ".repeat(1000),
  "1,000 names on a line": "a: ".repeat(1000),
  "500,000 deep in brackets": "[".repeat(500_000),
  "500,000 dashes": "- ".repeat(499_999),
  "500,000 question marks": "? ".repeat(499_999),
  "100,000 deep in braces": "{a: ".repeat(100_000),
  "double quotes": '"'.repeat(100_000 * SCALE),
  "single quotes": "'".repeat(100_000 * SCALE),
  "300 KB of tabs": "\t".repeat(300_000),
  "300 KB of tabs after a key": `key:${"\t".repeat(300_000)}x: y`,
  "300 KB of spaces after a key": `key${" ".repeat(300_000)}`,
  "quotes on lines": '"\n'.repeat(50_000 * SCALE),
  "pairs of brackets": "[]{}".repeat(7000 * SCALE),
  "commas in a list": `[${",".repeat(30_000 * SCALE)}`,
  "wrong escapes": `a: "${"\\q".repeat(30_000 * SCALE)}"`,
  "anchors in a row": "&a ".repeat(10_000 * SCALE),
  "many documents": "---\n".repeat(10_000 * SCALE),
  "many directives": "%a\n".repeat(5000 * SCALE),
  "many keys on a line": `tools: { ${"key: x, ".repeat(5000)}`,
  "many unknown settings on one line": `tools: { ${times(1500, (i) => `t${i}: { kez: A9aaaaaaaaaaaaaaaaaaaaaaa }`).join(", ")} }`,
  "addresses with many at signs": `${GATEWAY}tools: { a: { model: "${"://@".repeat(70_000)}" } }`,
  "a name of 900 KB": `${"a".repeat(900_000)}: b`,
  "a byte too many": `# ${" ".repeat(1_000_000)}`,
  "custom tags": `${GATEWAY}tools:\n  a: !!js/function "function () {}"\n  b: !<tag:x> {}\n`,
  "__proto__ and constructor": `${GATEWAY}__proto__: { polluted: yes }\nconstructor: { prototype: { polluted: yes } }\ntools: { __proto__: { enabled: false }, codex: { __proto__: x, limits: { "__proto__": 1 } } }\nprices: { "__proto__": { input: 1, output: 1 } }\n`,
};

/** V8 ends the process rather than give it more. */
const HEAP_MB = 200;

t.test(
  "what was not written for keybearer is rejected in little memory, and the process survives",
  async (t) => {
    const child = fork(join(import.meta.dirname, "parse-hostile.js"), {
      execArgv: [`--max-old-space-size=${HEAP_MB}`],
      stdio: ["ignore", "inherit", "ignore", "ipc"],
    });
    t.teardown(() => child.kill("SIGKILL"));
    const answer = answers(child);
    await answer();
    const all = Object.entries(HOSTILE);
    for (const [name, text] of LONG ? all : all.filter((_, at) => at % 4 === 0)) {
      child.send(text);
      const result = await answer();
      if (typeof result !== "object") return t.fail(`${name}: the process ended with ${result}`);
      t.notOk(result.taken, `${name} is rejected: ${result.first}`);
      t.ok(result.problems > 0 && result.problems <= 400, `${name}: ${result.problems} problems`);
      t.notMatch(result.first, /call stack/, `${name} does not get near the end of the stack`);
    }
    t.equal(child.exitCode, null);
  },
);

/** The next message, or how the process ended. */
function answers(child: ChildProcess): () => Promise<Outcome | string> {
  const ended = once(child, "exit").then(([code, signal]) => String(signal ?? code));
  return () => Promise.race([once(child, "message").then(([message]) => message as Outcome), ended]);
}

t.test("a file of 1,000 tools loads", async (t) => {
  const tool = (i: number) =>
    `  tool-${i}:\n    key: env:KEY_${i}\n    token: sha256:${i.toString(16).padStart(64, "0")}\n    limits: { requests: 60/minute, spend: [$5/day, $60/month] }\n    expires: 2027-03-31\n    enabled: true\n`;
  const text = `${GATEWAY}tools:\n${times(1000, tool).join("")}`;
  const { config, problems } = parseConfig(text, "/home/me");
  t.same(problems, []);
  t.equal(Object.keys(config?.tools ?? {}).length, 1000);
});

t.test("a file that is too large is refused unread", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "kb-"));
  t.teardown(() => rm(folder, { recursive: true }));
  const file = join(folder, "config.yaml");
  await writeFile(file, `${GATEWAY}tools: { codex: {} }\n`);
  // Nearly all of it is a hole, which takes no space on the disk, and which no process could read into its memory.
  await truncate(file, 100 * 1024 ** 3);
  const loaded = await loadConfig(file, { home: folder, strict: true });
  t.equal(loaded.text, null);
  t.match(loaded.problems, [{ severity: "error", message: /larger than 1 MB: not read/ }]);
});

t.test("nothing in a file reaches Object.prototype", async (t) => {
  const { config } = parseConfig(HOSTILE["__proto__ and constructor"] ?? "", "/home/me");
  t.equal(config, null);
  t.equal(Reflect.get({}, "polluted"), undefined);
  const good = parseConfig(`${GATEWAY}tools: { codex: {} }\n`, "/home/me").config;
  for (const named of [good?.tools, good?.gateways, good?.prices, good?.gateways.main?.groups]) {
    t.equal(Object.getPrototypeOf(named), null, "names from the file live in objects without a prototype");
  }
  t.equal(good?.tools.toString, undefined);
  t.match(parseConfig(`${GATEWAY}tools: { codex: { gateway: toString, group: valueOf } }\n`, "/").problems, [
    { path: "tools.codex.gateway", message: 'there is no gateway "toString"' },
  ]);
});

/** Pieces of YAML, so that chance makes something like a configuration now and then. */
const SOUP = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        ..."gateway|gateways|tools|codex|key|token|limits|https://a.example.com/v1|main".split("|"),
      ),
      fc.constantFrom(
        ...": |:|\n|\n  |\n    |- |? |{|}|[|]|, |\"|'|#| #|&a|*a|!t|---\n|...|\t|\\r\n|>|\\||%|@|`|\\|~|\u{FEFF}|\0|\ud800".split(
          "|",
        ),
      ),
      fc.string({ maxLength: 5, unit: "binary" }),
    ),
    { maxLength: 60 },
  )
  .map((parts) => parts.join(""));

t.test("no text makes the parser throw, hang or change the prototype", async () => {
  const keys = Object.getOwnPropertyNames(Object.prototype).length;
  fc.assert(
    fc.property(fc.oneof(SOUP, fc.string({ unit: "binary", maxLength: 200 })), (text) => {
      const { config, problems } = parseConfig(text, "/home/me");
      const failed = problems.some((problem) => problem.severity === "error");
      return (config === null) === failed && Object.getOwnPropertyNames(Object.prototype).length === keys;
    }),
    { numRuns: runs(150) },
  );
});

/** Ways in which a secret stands, or is meant to stand, in its place. Indented as below a tool. */
const SHAPES = [
  "key: §",
  'key: "§"',
  "key: '§'",
  'key: "§',
  "key: '§",
  'key: §"',
  "key:§",
  "key : §",
  "key:\t§",
  "Key: §",
  "key: § # mine",
  "key: § extra",
  "key: x §",
  "key: §: x",
  "key: a: §",
  "key: *§",
  "key: &§ x",
  "key: !§ x",
  "key: @§",
  "key: %§",
  "key: `§",
  "key: [§]",
  "key: [§",
  "key: {§}",
  "key: { §: x }",
  "key: { §",
  "key: { comand: § }",
  "key: |\n      §",
  "key: >-\n\n      §\n      §",
  "key: |§",
  "key:\n      §",
  "key:\n      - §",
  "key: &a\n      §",
  "key: !!str\n      §",
  "key: # see\n      §",
  'key: "\n      §"',
  "key: 'a\n      §",
  "? key\n    : §",
  '"key": §',
  '"key": "§"',
  "'key': [\n      §]",
  "key: env:§-",
  "key: §\n    key: §",
  "token: §",
  "token: kb_§",
  "token: [§, §]",
  "token: [sha256:ab, §]",
  "token:\n      - §\n      - sha256:§",
  "token: sha256:§",
  "api_key: §",
  "key: §\n   enabled: true",
  "key: §\n     enabled: true",
  "key: §\n    : x",
  "key: '§''§'",
  'key: "§\\q"',
];
const FLOW = [
  "{ key: § }",
  "{ key: §, enabled: true }",
  '{"key":"§"}',
  "{key: §",
  "{ token: §, key: §",
  "{ enabled: treu, key: § }",
];

t.test("no problem shows a secret that stands in its place, however broken the file is", async (t) => {
  // No digits beside capitals and no known prefix: nothing but its place tells that it is a secret.
  const secret = fc.stringMatching(/^[b-hj-np-z]{3}[-b-hj-np-z]{9,24}[b-hj-np-z]$/);
  const block = fc
    .constantFrom(...SHAPES)
    .map((shape) => `${GATEWAY}tools:\n  codex:\n    ${shape}\n    enabeld: yes\n  other: {}\n`);
  const flow = fc
    .constantFrom(...FLOW)
    .map((shape) => `${GATEWAY}tools:\n  codex: ${shape}\n  other: { kay: x }\n`);
  const junk = fc.constantFrom(
    "",
    "\t",
    '"',
    "'",
    "[",
    "{",
    "}",
    "]",
    ": ",
    ", ",
    "- ",
    "&",
    "*",
    "!",
    "|",
    "#",
    " #",
    "\n",
    "\r\n",
    "\r",
    "\0",
    "%",
    "@",
  );
  let seen = 0;
  fc.assert(
    fc.property(
      fc.oneof(block, flow),
      secret,
      junk,
      fc.nat(),
      fc.nat(),
      fc.boolean(),
      (shape, text, extra, at, end, cut) => {
        // Junk never comes into the name of a setting: otherwise it is unknown what stands there.
        const first = shape.indexOf("§");
        let place = first + (at % (shape.length - first + 1));
        while (/[a-z_]/i.test(shape[place - 1] ?? "") && place < shape.length) place += 1;
        const broken = `${shape.slice(0, place)}${extra}${shape.slice(place)}`.replaceAll("§", text);
        const whole = cut ? broken.slice(0, end % (broken.length + 1)) : broken;
        // On a line of its own and with a colon after it, it has become the name of a setting.
        fc.pre(!new RegExp(`^[^\\w]*${text}["']?\\s*:`, "m").test(whole));
        const shown = JSON.stringify(parseConfig(whole, "/home/me").problems);
        if (whole.includes(text)) seen += 1;
        return (
          !shown.includes(text) && !(whole.includes(text.slice(0, 12)) && shown.includes(text.slice(0, 12)))
        );
      },
    ),
    { numRuns: runs(250) },
  );
  t.ok(seen > runs(250) / 4, `${seen} files had a whole secret in them`);
});
