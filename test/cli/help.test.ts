import type { Command } from "commander";
import t from "tap";
import { EXAMPLES } from "../../src/cli/help/examples.ts";
import { createProgram } from "../../src/cli/program.ts";

/** Every command that is shown, by what is typed after keybearer. */
function commandsOf(command: Command, path: readonly string[] = []): [string, Command][] {
  const inner = command.commands.filter((each) => !/^(?:__|help$)/.test(each.name()));
  return [[path.join(" "), command], ...inner.flatMap((each) => commandsOf(each, [...path, each.name()]))];
}

interface Typed {
  readonly out: string;
  readonly err: string;
  readonly code: number | null;
}

/** As if it were typed, with what would be printed on a screen of 80 columns. */
async function typed(...args: readonly string[]): Promise<Typed> {
  const program = createProgram();
  const said = { out: "", err: "" };
  const listen = (command: Command) => {
    command.configureOutput({
      writeOut: (text) => {
        said.out += text;
      },
      writeErr: (text) => {
        said.err += text;
      },
      getOutHelpWidth: () => 80,
      getErrHelpWidth: () => 80,
    });
    for (const inner of command.commands) listen(inner);
  };
  listen(program);
  try {
    await program.parseAsync(["node", "keybearer", ...args]);
    return { ...said, code: null };
  } catch (error) {
    return { ...said, code: (error as { exitCode?: number }).exitCode ?? -1 };
  }
}

t.test("a mistake is answered with the command as it is typed here", async (t) => {
  const [, installed = ""] = process.argv;
  process.argv[1] = "/my $& keys/main.js";
  // Everything is printed before the first await.
  const answers = [typed("completion", "tcsh"), typed("completion")];
  process.argv[1] = installed;
  const [wrong, none] = await Promise.all(answers);
  const here = "node '/my $& keys/main.js'";
  t.match(
    wrong?.err.replace(/\s+/g, " "),
    `usage: ${here} completion [options] <shell> → ${here} help completion`,
  );
  t.match(none?.err.replace(/\s+/g, " "), `→ ${here} help completion`);
});

t.test("every command's help fits a screen, has an example, and is also printed by help", async (t) => {
  for (const [path] of commandsOf(createProgram())) {
    const words = path === "" ? [] : path.split(" ");
    const { out } = await typed(...words, "--help");
    t.same(
      out.split("\n").filter((line) => [...line].length > 80),
      [],
      `${path} is narrow enough`,
    );
    // One line is for the prompt. The first page names all commands; `tools add` has a flag for each setting of a tool,
    // `tools rotate` for each source of a key, `usage` for each filter.
    const longer: Readonly<Record<string, number>> = {
      "": 31,
      "tools add": 39,
      "tools rotate": 27,
      usage: 29,
    };
    const max = longer[path] ?? 23;
    t.ok(out.trimEnd().split("\n").length <= max, `${path} fits a screen`);
    t.notMatch(out, /display help/);
    if (path !== "") t.match(out, /^ {2}(?:.*\| |sudo |eval "\$\()?keybearer /m, `${path} has an example`);
    const { out: same } = await typed("help", ...words);
    t.equal(same, out, `help ${path}`);
  }
});

t.test("the first page names every command and every exit code", async (t) => {
  const { out } = await typed("--help");
  for (const [path] of commandsOf(createProgram()).filter(([name]) => /^\w+$/.test(name)))
    t.match(out, new RegExp(`^  ${path} `, "m"));
  for (const code of [0, 1, 2, 69, 75, 78]) t.match(out, new RegExp(`\\b${code} [a-z]`));
});

t.test("every example uses commands and options that exist", (t) => {
  const commands = new Map(commandsOf(createProgram()));
  for (const [name, { examples }] of Object.entries(EXAMPLES)) {
    t.ok(commands.has(name), `there is a command ${name}`);
    for (const example of examples.filter((each) => each.startsWith("keybearer "))) {
      for (const call of example.split(/ \| | && | > /).filter((part) => part.startsWith("keybearer "))) {
        const words = call.split(/\s+/).slice(1);
        const [one = "", two = ""] = words[0] === "help" ? words.slice(1) : words;
        const command = commands.get(`${one} ${two}`) ?? commands.get(one);
        t.ok(command, `${call} is a command`);
        const flags = words.filter((word) => word.startsWith("-"));
        const known = command?.options.flatMap(({ long, short }) => [long, short]) ?? [];
        t.same(
          flags.filter((flag) => !known.includes(flag)),
          [],
          `${call} has only options that there are`,
        );
      }
    }
  }
  t.end();
});

t.test("wrong usage names the right form and where to read on", async (t) => {
  const wrong: [string, RegExp[]][] = [
    ["stats", [/unknown command 'stats'/, /→ keybearer status$/m]],
    ["frobnicate", [/unknown command 'frobnicate'/, /→ keybearer help$/m]],
    ["tool ad", [/unknown command 'tool'/, /→ keybearer tools add$/m]],
    ["rotat", [/unknown command 'rotat'/, /→ keybearer tools rotate$/m]],
    ["tools ad", [/unknown command 'ad'/, /→ keybearer tools add$/m]],
    ["tools tokn codex", [/unknown command 'tokn'/, /→ keybearer tools token$/m]],
    [
      "tools frobnicate",
      [/unknown command 'frobnicate'\. there are: list, add,/, /→ keybearer help tools$/m],
    ],
    ["usage exprot", [/unknown command 'exprot'/, /→ keybearer usage export$/m]],
    ["service unistall", [/unknown command 'unistall'/, /→ keybearer service uninstall$/m]],
    ["config check", [/unknown command 'check'/, /→ keybearer check$/m]],
    ["config edti", [/unknown command 'edti'/, /→ keybearer config edit$/m]],
    ["status --josn", [/unknown option '--josn'/, /Did you mean --json\?/]],
    ["tools list --josn", [/unknown option '--josn'/, /Did you mean --json\?/]],
    ["usage foo", [/unknown command 'foo'\. there are: export, show, tail, ack-model,\s+rebuild/]],
    ["tools token", [/missing required argument 'tool'/, /usage: keybearer tools token \[options\] <tool>/]],
    ["tools token", [/→ keybearer help tools token$/m]],
    ["usage --jsn", [/unknown option '--jsn'/, /Did you mean --json\?/, /usage: keybearer usage/]],
    ["serve", [/unknown command 'serve'/, /→ keybearer run$/m]],
    ["serve", [/unknown command 'serve'/, /→ keybearer run$/m]],
    ["rotate", [/unknown command 'rotate'/, /→ keybearer tools rotate$/m]],
    ["add codex", [/unknown command 'add'/, /→ keybearer tools add$/m]],
    ["dashboard", [/unknown command 'dashboard'/, /→ keybearer open$/m]],
    ["run now", [/too many arguments/]],
    ["run --config", [/argument missing/]],
    ["run --port 65536", [/-p, --port/, /65536/]],
    ["run --port http", [/-p, --port/, /http/]],
    ["status codex", [/too many arguments/]],
    ["help tools ad", [/there is no command tools ad/]],
    ["completion tcsh", [/bash, zsh, fish/]],
  ];
  for (const [line, patterns] of wrong) {
    const { out, err, code } = await typed(...line.split(" "));
    t.equal(out, "");
    t.not(code, 0, `keybearer ${line}`);
    for (const pattern of patterns) t.match(err, pattern);
    t.same(
      err.split("\n").filter((each) => [...each].length > 80),
      [],
    );
  }
});
