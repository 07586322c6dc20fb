import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { type Command, CommanderError } from "commander";
import t from "tap";
import { parseDocument, visit } from "yaml";
import { createProgram } from "../src/cli/program.ts";
import { parseConfig } from "../src/config/parse.ts";
import { formatProblems } from "../src/config/problems.ts";
import { EXIT } from "../src/core/errors.ts";
import { REFUSALS } from "../src/core/refusal.ts";
import { cliReference, typedName, visibleCommands } from "./doubles/cli-reference.ts";
import { ROOT } from "./doubles/paths.ts";

/* The documents against the program: commands, settings, refusals, exit codes and links. */

const read = (file: string) => readFileSync(join(ROOT, file), "utf8");
const example = read("config.example.yaml");
const readme = read("README.md");
const documents = ["", "docs", "docs/zh", "service", "test/real"].flatMap((folder) =>
  readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name)),
);

interface Block {
  /** The word after the fence, such as sh. */
  readonly language: string;
  readonly text: string;
}

const FENCE = /^ *```(\w*)\n(.*?)^ *```$/gms;

function codeBlocks(markdown: string): Block[] {
  return [...markdown.matchAll(FENCE)].map(([, language = "", text = ""]) => ({ language, text }));
}

function inlineCode(markdown: string): string[] {
  const prose = markdown.replace(FENCE, "");
  return [...prose.matchAll(/`([^`]+)`/g)].map(([, text = ""]) => text.replace(/\s+/g, " "));
}

interface Row {
  /** The codes in the first cell, such as token-missing. */
  readonly codes: readonly string[];
  readonly cells: readonly string[];
}

/** The rows of every table whose first column has this title. */
function tableRows(markdown: string, title: string): Row[] {
  const tables = markdown.replace(FENCE, "").match(/^\|.*\n\|[-|: ]+\n(?:\|.*\n)+/gm) ?? [];
  const rows = tables
    .filter((table) => table.startsWith(`| ${title} |`))
    .flatMap((table) => table.trimEnd().split("\n").slice(2));
  return rows.map((row) => {
    const cells = row.split("|").slice(1, -1);
    return { codes: inlineCode(cells[0] ?? ""), cells };
  });
}

t.test("config.example.yaml has no problem in it", (t) => {
  const { config, problems } = parseConfig(example, "/home/me");
  t.equal(formatProblems("config.example.yaml", problems), "");
  t.same(Object.keys(config?.tools ?? {}), ["claude-code", "codex", "scripts"]);
  t.end();
});

/** As if the person had removed every # before a setting. Prose has a space after the #. */
const exampleSwitchedOn = example.replace(/^( *)#(?=\w)/gm, "$1");

t.test("every setting that config.example.yaml switches off is a setting", (t) => {
  const { config, problems } = parseConfig(exampleSwitchedOn, "/home/me");
  t.equal(formatProblems("config.example.yaml", problems), "");
  t.equal(config?.gateways.main?.console?.kind, "sub2api");
  t.equal(config?.tools.codex?.limits.concurrent, 4);
  t.equal(config?.prices["my-model"]?.output, 4_000_000);
  t.end();
});

/** Every setting of config.yaml, by asking the parser what it knows in each map of the example. */
function knownSettings(): Set<string> {
  const everyMap = parseDocument(exampleSwitchedOn);
  visit(everyMap, {
    Map(_, map) {
      map.set("qqqqqqqq", "unknown");
    },
  });
  // An account has a name only in a list.
  const list = "console: { login: [{ name: work, qqqqqqqq: unknown }] }";
  const texts = [String(everyMap), `gateways: { main: { ${list} } }`];
  const problems = texts.flatMap((text) => parseConfig(text, "/home/me").problems);
  const hints = problems.map(({ hint }) => /^known here: (.*)$/.exec(hint ?? "")?.[1] ?? "");
  return new Set(hints.flatMap((names) => names.split(", ")).filter((name) => name !== ""));
}

t.test("config.example.yaml and docs/configuration.md name every setting", (t) => {
  const settings = knownSettings();
  t.ok(settings.has("first_byte") && settings.has("refresh_token"), "the parser names nested settings");
  const reference = read("docs/configuration.md");
  for (const name of settings) {
    t.match(example, new RegExp(`\\b${name}:`), `${name} in config.example.yaml`);
    t.match(reference, new RegExp(`\`[^\`\n]*\\b${name}\\b`), `${name} in docs/configuration.md`);
  }
  t.end();
});

/** The settings in a block of YAML that do not exist. A fragment is indented as in config.yaml. */
function unknownSettings(yaml: string): string {
  const contexts = yaml.startsWith(" ") ? ["gateways:\n  main:\n", "tools:\n  codex:\n"] : [""];
  const unknown = contexts.map((context) =>
    parseConfig(context + yaml, "/home/me").problems.filter(({ message }) =>
      message.includes("is not a setting here"),
    ),
  );
  return unknown.some((problems) => problems.length === 0) ? "" : formatProblems("", unknown.flat());
}

/** The numbers in each row of the table of clients, beginning with the client's version. */
function clientFigures(markdown: string): (string[] | null)[] {
  const rows = markdown.match(/^\| [a-z-]+ \d[\d.]* \|.*$/gm) ?? [];
  return rows.map((row) => row.match(/\d[\d.]*/g));
}

t.test("the Chinese table of clients has the same figures", (t) => {
  const english = clientFigures(read("docs/clients.md"));
  t.ok(english.length > 0);
  t.same(clientFigures(read("docs/zh/clients.md")), english);
  t.end();
});

t.test("every setting in the documents exists", (t) => {
  for (const file of documents) {
    for (const { language, text } of codeBlocks(read(file)))
      if (language === "yaml") t.equal(unknownSettings(text), "", file);
  }
  const settings = knownSettings();
  for (const { codes } of tableRows(read("docs/configuration.md"), "setting")) {
    for (const code of codes) t.ok(settings.has(code.split(".").at(-1) ?? ""), `${code} is a setting`);
  }
  t.end();
});

t.test("docs/cli.md is what the program prints", (t) => {
  const reference = cliReference(createProgram());
  const file = join(ROOT, "docs/cli.md");
  if (process.env.KEYBEARER_WRITE_DOCS === "1") writeFileSync(file, reference);
  t.equal(readFileSync(file, "utf8"), reference, "npm run docs writes it");
  for (const command of visibleCommands(createProgram())) {
    t.match(reference, `\n## ${typedName(command)}\n`);
    for (const { long, hidden } of command.options) if (!hidden) t.match(reference, long ?? "");
  }
  for (const code of Object.values(EXIT)) t.match(reference, `\n| ${code} |`);
  t.end();
});

/** The program, except that no command does anything. */
function inertProgram(): Command {
  const program = createProgram();
  const makeInert = (command: Command) => {
    command.exitOverride().configureOutput({ writeOut: () => {}, writeErr: () => {}, outputError: () => {} });
    for (const inner of command.commands) makeInert(inner.action(() => {}));
  };
  makeInert(program);
  return program;
}

/** The words of a command line. Text in brackets is optional, so it must parse as well. */
function wordsOf(line: string): string[] {
  const words = line.replace(/[[\]]/g, "").match(/"[^"]*"|'[^']*'|\S+/g) ?? [];
  return words.map((word) => word.replace(/^["']|["']$/g, "")).filter((word) => word !== "…");
}

/** Why the program does not accept the command line; null: it does. */
async function faultOf(line: string, isComplete: boolean): Promise<string | null> {
  try {
    await inertProgram().parseAsync(wordsOf(line).slice(1), { from: "user" });
    return null;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0 || error.code === "commander.help") return null;
    // Running text may name a command without its arguments.
    if (!isComplete && error.code === "commander.missingArgument") return null;
    return error.message;
  }
}

/** The calls of keybearer in lines of shell: without comments, pipes, redirections and variables. */
function callsIn(shell: string): string[] {
  const joined = shell.replace(/\\\n/g, " ").replace(/<[^<>\n]+>/g, "placeholder");
  const lines = joined.split("\n").map((line) => line.replace(/^\$ /, "").replace(/(?:^|\s)#\s.*$/, ""));
  const parts = lines.flatMap((line) => line.split(/&&|\|\||[;|]|\$\(|\)/));
  const calls = parts.map((part) => part.replace(/\s[<>]\s.*$/, "").replace(/^\s*(?:[A-Z_]+=\S*\s+)*/, ""));
  return calls.map((call) => call.trim()).filter((call) => call.startsWith("keybearer "));
}

t.test("every command line in the documents is one that the program accepts", async (t) => {
  const texts = documents
    .filter((file) => file !== "CHANGELOG.md")
    .map((file) => [file, read(file)] as const);
  for (const [file, text] of [...texts, ["config.example.yaml", example] as const]) {
    const named = inlineCode(text)
      .filter((code) => code.startsWith("keybearer "))
      .flatMap(callsIn);
    for (const line of new Set(named)) t.equal(await faultOf(line, false), null, `${file}: ${line}`);
    for (const { language, text: block } of codeBlocks(text)) {
      // Other blocks show output; only their prompts are command lines.
      const isShell = language === "sh" || language === "bash";
      const shell = isShell ? block : (block.match(/^\$ .*$/gm) ?? []).join("\n");
      for (const call of callsIn(shell)) t.equal(await faultOf(call, true), null, `${file}: ${call}`);
    }
  }
});

t.test("docs/refusals.md has every refusal with its status, and no other", (t) => {
  const rows = tableRows(read("docs/refusals.md"), "code");
  for (const [code, { status }] of Object.entries(REFUSALS)) {
    const row = rows.find(({ codes }) => codes.includes(code));
    t.match(row?.cells[1] ?? "", String(status), code);
  }
  for (const code of rows.flatMap(({ codes }) => codes)) t.ok(code in REFUSALS, `${code} is a refusal`);
  t.end();
});

/** As GitHub makes them. */
function anchorsOf(markdown: string): Set<string> {
  const anchors = new Set<string>();
  for (const [, title = ""] of markdown.replace(FENCE, "").matchAll(/^#{1,6} (.+)$/gm)) {
    const plain = title.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase();
    const slug = plain
      .replace(/[^\p{L}\p{N}\p{M} _-]/gu, "")
      .trim()
      .replaceAll(" ", "-");
    let anchor = slug;
    for (let n = 1; anchors.has(anchor); n += 1) anchor = `${slug}-${n}`;
    anchors.add(anchor);
  }
  return anchors;
}

t.test("every relative link and anchor in the documents resolves", (t) => {
  for (const file of documents) {
    const prose = read(file).replace(FENCE, "");
    for (const [, target = ""] of prose.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      const [path = "", anchor] = target.split("#");
      const found = path === "" ? join(ROOT, file) : resolve(ROOT, dirname(file), path);
      const isThere = statSync(found, { throwIfNoEntry: false }) !== undefined;
      t.ok(isThere, `${file}: ${target}`);
      if (!isThere || anchor === undefined) continue;
      const anchors = anchorsOf(read(relative(ROOT, found)));
      t.ok(anchors.has(decodeURIComponent(anchor)), `${file}: ${target}`);
    }
  }
  t.end();
});

t.test("the tests that CONTRIBUTING.md names for its invariants exist", (t) => {
  const rows = tableRows(read("CONTRIBUTING.md"), "invariant");
  for (const name of rows.flatMap(({ cells }) => inlineCode(cells[2] ?? "")))
    t.ok(statSync(join(ROOT, "test", `${name}.test.ts`), { throwIfNoEntry: false }), name);
  t.end();
});

t.test("CONTRIBUTING.md names exactly the variables that make tests longer", (t) => {
  const files = readdirSync(join(ROOT, "test"), { recursive: true, encoding: "utf8" });
  const sources = files.filter(
    (name) => name.endsWith(".ts") && !/node_modules|^(?:bench|real)\//.test(name),
  );
  const used = sources.flatMap((name) =>
    [...read(join("test", name)).matchAll(/(?:repeats\(\s*"|process\.env\.)(KEYBEARER_\w+)/g)].map(
      ([, found]) => found,
    ),
  );
  const longer = used.filter((name) => !/^KEYBEARER_(?:LONG|WRITE_\w+)$/.test(name ?? ""));
  const named = tableRows(read("CONTRIBUTING.md"), "variable").flatMap(({ codes }) => codes);
  t.strictSame(new Set(named.map((code) => code.split("=")[0])), new Set(longer));
  t.end();
});

t.test("README.md is short, and has the two commands for a first try and the tests", (t) => {
  t.ok(readme.trimEnd().split("\n").length <= 150, "at most 150 lines");
  t.match(readme, "npm ci && npm start");
  t.match(readme, "npm ci && npm test");
  t.end();
});

t.test("continuous integration runs the README's own test command", (t) => {
  t.match(read(".ci/run"), "npm ci\nnpm test\nnpm run test:long\n");
  t.end();
});

t.test("the lock file holds no download address", (t) => {
  t.notMatch(read("package-lock.json"), '"resolved"');
  t.end();
});
