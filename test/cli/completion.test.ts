import { execFileSync, spawnSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import t, { type Test } from "tap";
import { describeGrammar } from "../../src/cli/completion/completion.ts";
import { bashScript, fishScript, zshScript } from "../../src/cli/completion/scripts.ts";
import { createProgram } from "../../src/cli/program.ts";
import { bareEnv, command, newHome, saveConfig } from "../doubles/command.ts";

const CONFIG = `gateways: { main: { base_url: "https://gateway.example.com/v1" }, other: { base_url: "https://other.example.com/v1" } }
tools:
  codex: { gateway: main, key: env:NOT_SET_ANYWHERE }
  claude-code: { gateway: other, key: { command: [/bin/sh, -c, "echo run > ran"] } }
`;

function isThere(program: string): boolean {
  return spawnSync(program, ["-c", "exit 0"]).status === 0;
}

/** What bash would offer for the last word of each line, with the names that the program lists. */
async function offered(t: Test, home: string, script: string, lines: readonly string[]): Promise<string[]> {
  for (const kind of ["tools", "clients", "gateways", "held"])
    await writeFile(join(home, `names-${kind}`), (await command(t, home, ["__complete", kind])).stdout);
  const calls = lines.map((line) => {
    const words = line.split(" ").map((word) => `'${word}'`);
    return `COMP_WORDS=(${words.join(" ")}); COMP_CWORD=${words.length - 1}; _keybearer; echo "\${COMPREPLY[*]}"`;
  });
  const bash = `keybearer() { [ "$1" = __complete ] && cat "$HOME/names-$2"; }\n${script}\n${calls.join("\n")}\n`;
  const out = execFileSync("bash", ["--norc", "-c", bash], {
    env: bareEnv(home),
    cwd: home,
    encoding: "utf8",
  });
  return out.trimEnd().split("\n");
}

t.test("bash completes commands, options and the names in config.yaml", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, CONFIG);
  await writeFile(join(home, "my file.yaml"), "");
  const script = bashScript(describeGrammar(createProgram()));
  const expected: [string, string | RegExp][] = [
    ["keybearer to", "tools"],
    ["keybearer mirror s", "sync show"],
    ["keybearer tools add --re", "--requests"],
    ["keybearer use c", "codex claude-code"],
    ["keybearer use codex --for crus", "crush"],
    ["keybearer tools --json rotate cod", "codex"],
    ["keybearer mirror sync ", "main other"],
    ["keybearer trust ", "codex claude-code main other"],
    ["keybearer run --config my", "my file.yaml"],
    ["keybearer help tools li", "list lift"],
    ["keybearer tools add copilot", "copilot-cli"],
    ["keybearer usage --by d", "day"],
    ["keybearer __", ""],
  ];
  const answers = await offered(
    t,
    home,
    script,
    expected.map(([line]) => line),
  );
  for (const [at, [line, words]] of expected.entries()) t.equal(answers[at] ?? "", words, line);
});

t.test("trust also completes shared where machines share a store", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, CONFIG);
  t.notMatch((await command(t, home, ["__complete", "held"])).stdout, "shared");
  await saveConfig(home, `${CONFIG}\nshared: { store: rediss://valkey.example.net }\n`);
  t.match((await command(t, home, ["__complete", "held"])).stdout, /^shared$/m);
});

t.test("names are listed without a daemon or a key, and none if config.yaml is broken", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, CONFIG);
  const tools = await command(t, home, ["__complete", "tools"]);
  t.same([tools.code, tools.stdout, tools.stderr], [0, "codex\nclaude-code\n", ""]);
  t.throws(() => execFileSync("test", ["-e", join(home, "ran")]), "no command of a key was run");
  await saveConfig(home, "tools: [");
  const broken = await command(t, home, ["__complete", "tools"]);
  t.same([broken.code, broken.stdout, broken.stderr], [0, "", ""]);
});

t.test("the program prints the script of each shell, which names every command", async (t) => {
  const grammar = describeGrammar(createProgram());
  const names = grammar.flatMap(({ commands }) => commands.map(({ name }) => name));
  for (const script of [bashScript, zshScript, fishScript].map((write) => write(grammar)))
    for (const name of names) t.ok(script.includes(name), name);
  const printed = await command(t, await newHome(t), ["completion", "bash"]);
  t.equal(printed.code, 0);
  t.match(printed.stdout, /complete -F _keybearer keybearer/);
});

for (const [shell, script, check] of [
  ["bash", bashScript, ["-n"]],
  ["zsh", zshScript, ["-n"]],
  ["fish", fishScript, ["--no-execute"]],
] as const) {
  const skip = isThere(shell) ? false : `there is no ${shell} here: its script was NOT checked`;
  t.test(`${shell} can read its script`, { skip }, async (t) => {
    const file = join(await newHome(t), "script");
    await writeFile(file, script(describeGrammar(createProgram())));
    const { status, stderr } = spawnSync(shell, [...check, file], { encoding: "utf8" });
    t.same([status, stderr], [0, ""]);
  });
}
