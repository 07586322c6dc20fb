import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { createProgram } from "../src/cli/program.ts";
import { parseConfig } from "../src/config/parse.ts";
import { formatProblems } from "../src/config/problems.ts";
import { REFUSALS } from "../src/core/refusal.ts";
import { cliReference } from "./doubles/cli-reference.ts";
import { ROOT } from "./doubles/paths.ts";

const read = (file: string) => readFileSync(join(ROOT, file), "utf8");
const example = read("config.example.yaml");
const readme = read("README.md");

/** As if the person had removed every # before a setting. Prose has a space after the #. */
const exampleSwitchedOn = example.replace(/^( *)#(?=\w)/gm, "$1");

t.test("config.example.yaml has no problem in it", (t) => {
  const { config, problems } = parseConfig(example, "/home/me");
  t.equal(formatProblems("config.example.yaml", problems), "");
  t.same(Object.keys(config?.tools ?? {}), ["claude-code", "codex", "scripts"]);
  t.end();
});

t.test("every setting that config.example.yaml switches off is a setting", (t) => {
  const { config, problems } = parseConfig(exampleSwitchedOn, "/home/me");
  t.equal(formatProblems("config.example.yaml", problems), "");
  t.equal(config?.gateways.main?.console?.kind, "sub2api");
  t.equal(config?.tools.codex?.limits.concurrent, 4);
  t.equal(config?.prices["my-model"]?.output, 4_000_000);
  t.end();
});

t.test("config.example.yaml names every setting there is", (t) => {
  // Every key of the contract's full example, wherever it stands.
  const settings =
    `listen dashboard when gateways base_url messages_url key_header websockets proxy timeouts connect first_byte
    idle groups multiplier models enabled console kind url login email schedule tools gateway group key token token_in_url
    process allow_origins model limits requests tokens spend concurrent wait quota expires ask_usage estimate
    keys_elsewhere watch_only prices input output cache_read cache_write usage keep sync log level`.split(
      /\s+/,
    );
  for (const setting of settings) t.match(example, new RegExp(`\\b${setting}:`), setting);
  t.end();
});

t.test("the README names every command, every refusal and its two commands", (t) => {
  // What begins so is asked by scripts, not typed by people.
  const typed = createProgram().commands.filter((command) => !command.name().startsWith("__"));
  for (const command of typed) t.match(readme, `keybearer ${command.name()}`, command.name());
  for (const code of Object.keys(REFUSALS)) t.match(readme, `\`${code}\``, code);
  t.match(readme, "npm ci && npm start");
  t.match(readme, "npm ci && npm test");
  t.end();
});

t.test("docs/cli.md is what the program says", (t) => {
  const reference = cliReference(createProgram());
  const file = join(ROOT, "docs/cli.md");
  if (process.env.KEYBEARER_WRITE_DOCS === "1") writeFileSync(file, reference);
  t.equal(readFileSync(file, "utf8"), reference, "npm run docs writes it");
  t.end();
});

t.test("continuous integration runs the README's own test command", (t) => {
  t.match(read(".ci/run"), "npm ci && npm test");
  t.end();
});

t.test("the lock file holds no download address", (t) => {
  t.notMatch(read("package-lock.json"), '"resolved"');
  t.end();
});
