import { Command } from "commander";
import { commandName, typeable } from "../../core/command-name.ts";
import { nearest } from "../../core/nearest.ts";
import { version } from "../../core/version.ts";
import { stdio } from "../ui/stdio.ts";
import { readScreen } from "../ui/terminal.ts";
import { printableLines, wrap } from "../ui/text.ts";
import { EXAMPLES } from "./examples.ts";

/** Commander wraps everything but this text. The first page fits a terminal of 24 lines and 80 columns. */
const FOOTER = `
exit codes: 0 fine, 1 failed, 2 usage, 69 port taken, 75 runs already, 78 config
more: keybearer help <command>. config: $KEYBEARER_HOME or ~/.config/keybearer`;

/** The program with these commands, their help, and advice for mistyped ones. */
export function programWith(commands: readonly Command[], hidden: readonly Command[] = []): Command {
  const program = new Command("keybearer")
    .description("keeps your model gateway keys in one place; tools call localhost instead")
    .version(version(), "-V, --version", "print the version")
    .addHelpText("after", FOOTER)
    // Options after a command belong to it: `usage` and `usage export` have options of the same names.
    .enablePositionalOptions()
    .helpCommand(false);
  for (const command of commands) program.addCommand(command);
  for (const command of hidden) program.addCommand(command, { hidden: true });
  program.addCommand(helpCommand(program), { hidden: true });
  addHelp(program, []);
  return program;
}

function addHelp(command: Command, path: readonly string[]): void {
  const { summary, examples } = EXAMPLES[path.join(" ")] ?? { examples: [] };
  if (summary !== undefined) command.summary(summary);
  if (examples.length > 0)
    command.addHelpText("after", `\n${examples.map((example) => `  ${example}`).join("\n")}`);
  command
    .exitOverride()
    .helpOption("-h, --help", "print this help")
    .configureHelp({
      ...(path.length === 0 ? { formatHelp: firstPage } : {}),
      showGlobalOptions: false,
      // A list is read for its names; the arguments are in each command's own help.
      subcommandTerm: (inner) => inner.name(),
      visibleCommands: (outer) => outer.commands.filter((inner) => !isHidden(inner)),
      // --help itself is left out: it was just typed.
      visibleOptions: (outer) => outer.options.filter(({ hidden }) => !hidden),
    })
    .showSuggestionAfterError(true)
    .configureOutput({
      writeOut: (text) => void stdio().stdout.write(text),
      writeErr: (text) => void stdio().stderr.write(text),
      outputError: (text, write) => write(typeable(usageError(text, command))),
    });
  for (const inner of command.commands) if (!isHidden(inner)) addHelp(inner, [...path, inner.name()]);
}

/** The list of commands. Commander's own page has three lines more and would not fit a terminal of 24. */
function firstPage(program: Command): string {
  const commands = program.commands.filter((command) => !isHidden(command));
  const width = Math.max(...commands.map((command) => command.name().length));
  return [
    "Usage: keybearer <command>   keeps your model gateway keys in one place",
    "",
    ...commands.map((command) => {
      const text = command.summary() || command.description();
      return `  ${command.name().padEnd(width)}  ${text}`;
    }),
    "",
  ].join("\n");
}

/**
 * What is wrong, and the right form. `tools tokn` reaches the default command of `tools`, which takes no argument; commander's
 * "too many arguments for 'list'" would be about a word that was not typed.
 */
function usageError(text: string, command: Command): string {
  const { parent } = command;
  const group = command.commands.length > 0 ? command : parent?.parent ? parent : null;
  const typed = group?.args[0];
  const known = group === null ? [] : namesIn(group);
  const isUnknown =
    group !== null &&
    typed !== undefined &&
    !known.includes(typed) &&
    /too many arguments|unknown command/.test(text);
  const path = pathOf(isUnknown ? group : command);
  const lines = text.trimEnd().split("\n");
  let next = `${commandName()} help${path.slice("keybearer".length)}`;
  if (isUnknown) {
    const meant = group.parent === null ? meantCommand(group, group.args) : meantInside(group, typed);
    const others = meant === null && group.parent !== null ? `. there are: ${known.join(", ")}` : "";
    lines.splice(0, lines.length, `error: unknown command '${typed}'${others}`);
    if (meant !== null) next = `${commandName()} ${meant}`;
  } else if (path !== "keybearer")
    lines.push(`usage: ${commandName()}${path.slice("keybearer".length)} ${command.usage()}`.trimEnd());
  const { width } = readScreen(stdio().env, stdio().stderr.columns);
  const shown = lines.map((line) => wrap(line, width)).join("\n");
  return `${printableLines(shown)}\n→ ${next}\n`;
}

/** Words that other programs use, and the command here. */
const OTHER_WORDS: Readonly<Record<string, string>> = {
  serve: "run",
  up: "run",
  down: "stop",
  setup: "init",
  validate: "check",
  lint: "check",
  dashboard: "open",
  ui: "open",
  web: "open",
  cost: "usage",
  costs: "usage",
  rm: "tools remove",
  delete: "tools remove",
  ls: "tools list",
  version: "--version",
};

/** `rotate` is a command of `tools`, and `tool ad` is `tools add`. null: nothing here has a name like it. */
function meantCommand(program: Command, [typed = "", second]: readonly string[]): string | null {
  if (Object.hasOwn(OTHER_WORDS, typed)) return OTHER_WORDS[typed] ?? null;
  const holder = program.commands.find((outer) => namesIn(outer).includes(typed));
  if (holder !== undefined) return `${holder.name()} ${typed}`;
  const near = nearest(typed, namesIn(program));
  if (near !== null) {
    const inner = program.commands.find((command) => command.name() === near);
    const meant = inner === undefined || second === undefined ? null : nearest(second, namesIn(inner));
    return meant === null ? near : `${near} ${meant}`;
  }
  for (const outer of program.commands) {
    const inner = nearest(typed, namesIn(outer));
    if (inner !== null) return `${outer.name()} ${inner}`;
  }
  return null;
}

/** `tools tokn` is `tools token`, and `config check` is `check`. */
function meantInside(group: Command, typed: string): string | null {
  const near = nearest(typed, namesIn(group));
  if (near !== null) return `${group.name()} ${near}`;
  return group.parent !== null && namesIn(group.parent).includes(typed) ? typed : null;
}

function namesIn(command: Command): string[] {
  return command.commands.filter((inner) => !isHidden(inner)).map((inner) => inner.name());
}

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/** Commander's own help command goes one level deep: `help tools add` would print the help of tools. */
function helpCommand(program: Command): Command {
  return new Command("help")
    .exitOverride()
    .description("print help for a command")
    .argument("[command...]", "a command, such as: tools add")
    .action((names: string[]) => {
      let found = program;
      for (const [index, name] of names.entries()) {
        const inner = found.commands.find((each) => each.name() === name);
        if (inner === undefined) return unknownCommand(found, names.slice(0, index + 1).join(" "));
        found = inner;
      }
      found.outputHelp();
    });
}

function unknownCommand(parent: Command, path: string): void {
  const known = namesIn(parent);
  const choice = known.length === 0 ? "" : `. there are: ${known.join(", ")}`;
  parent.error(`there is no command ${path}${choice}`);
}

/** Commander has no public way to ask whether a command was added as hidden. */
export function isHidden(command: Command): boolean {
  return command.name() === "help" || command.name().startsWith("__");
}
