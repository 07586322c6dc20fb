import type { Command } from "commander";
import { isHidden } from "../../src/cli/help/help.ts";
import { REACH, type Reach } from "../../src/control/reach.ts";
import { EXIT } from "../../src/core/errors.ts";

/* Writes docs/cli.md from the program itself, so that the page and `keybearer help` agree. */

/** As wide as the other pages. */
const WIDTH = 118;

const INTRO = `# Commands

After reading this page you know every command, its options and its exit codes. \`keybearer help <command>\` prints the same
texts. This page is generated from the program: \`npm run docs\` writes it.

Results go to stdout, errors and questions to stderr. \`--json\` prints JSON for programs. No command takes a secret as an
argument, because every user of a machine can read the arguments of a program.
`;

const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  ok: "success",
  failed: "the command failed; `doctor` found a problem; `mirror` has an alarm that is not acknowledged",
  usage: "wrong command line",
  portTaken: "the port is taken by another program",
  alreadyRunning:
    "keybearer runs already with the same state folder, or `run` ended because its lock was deleted or replaced",
  badConfig:
    "config.yaml has problems, `run` was started with an unsafe Node option or variable, or there are too few file descriptors",
};

const ENVIRONMENT = `## Environment variables

| variable | effect |
|---|---|
| \`KEYBEARER_HOME\` | config.yaml, keys, state and control socket are below this folder |
| \`XDG_CONFIG_HOME\` | config.yaml is in \`keybearer/\` below it, instead of \`~/.config\` |
| \`XDG_STATE_HOME\` | the state is in \`keybearer/\` below it, instead of \`~/.local/state\` |
| \`XDG_RUNTIME_DIR\` | the control socket is in \`keybearer/\` below it, instead of the state folder |
| \`VISUAL\`, \`EDITOR\` | the editor that \`config edit\` starts |
| \`NO_COLOR\` | no colors |

\`run\` does not start (exit code 78) with variables or options that make Node print, store or redirect keys, or load other
code: \`NODE_DEBUG\`, \`--inspect\` and the like, and, if there is a config.yaml, \`NODE_EXTRA_CA_CERTS\`. The message names the
variable. For your own certificate authority use \`ca_file:\` of the gateway.
`;

export function cliReference(program: Command): string {
  const commands = visibleCommands(program);
  const exitCodes = Object.entries(EXIT_MEANINGS).map(
    ([name, meaning]) => `| ${EXIT[name as keyof typeof EXIT]} | ${meaning} |`,
  );
  return [
    INTRO,
    table("| command | what it does |", commands.map(overviewRow)),
    `## What a command may change\n\n${table("| what | commands |", reachRows(commands))}`,
    `## Exit codes\n\n${table("| code | meaning |", exitCodes)}`,
    ENVIRONMENT,
    ...commands.map(chapter),
  ].join("\n");
}

const REACH_MEANINGS: Readonly<Record<Reach, string>> = {
  reads: "nothing",
  keeps: "something, but not what tools and keys may do",
  narrows: "tools and keys may do less",
  widens: "tools or keys may do more, or a key or a secret goes somewhere else",
  depends: "its values decide",
};

function reachRows(commands: readonly Command[]): string[] {
  return Object.entries(REACH_MEANINGS).map(([reach, meaning]) => {
    const names = commands.map(tableName).filter((name) => REACH[name] === reach);
    return `| ${meaning} | ${names.map((name) => `\`${name}\``).join(", ")} |`;
  });
}

/** Whether it does something itself, and is not only the name in front of others. */
export function isRunnable(command: Command): boolean {
  return command.commands.every(isHidden) || tableName(command) in REACH;
}

/** Its name in the table of what commands may change: without the program's. */
export function tableName(command: Command): string {
  return typedName(command).replace(/^keybearer /, "");
}

export function visibleCommands(parent: Command): Command[] {
  const inner = parent.commands.filter((command) => !isHidden(command));
  return inner.flatMap((command) => [command, ...visibleCommands(command)]);
}

/** What is typed, such as `keybearer tools add`. */
export function typedName(command: Command): string {
  return command.parent === null ? command.name() : `${typedName(command.parent)} ${command.name()}`;
}

function overviewRow(command: Command): string {
  const name = typedName(command);
  const anchor = name.replaceAll(" ", "-");
  return `| [\`${name}\`](#${anchor}) | ${command.summary() || command.description()} |`;
}

function chapter(command: Command): string {
  return `## ${typedName(command)}\n\n\`\`\`text\n${helpText(command)}\n\`\`\`\n`;
}

/** As `keybearer help` prints it, with the examples. */
function helpText(command: Command): string {
  let text = "";
  command.configureOutput({
    writeOut: (part) => {
      text += part;
    },
    getOutHelpWidth: () => WIDTH,
    getOutHasColors: () => false,
  });
  command.outputHelp();
  return text.trim();
}

function table(head: string, rows: readonly string[]): string {
  return `${[head, "|---|---|", ...rows].join("\n")}\n`;
}
