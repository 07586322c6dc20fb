import { Command } from "commander";
import { screenOf } from "../ui/terminal.ts";
import { printableLines, wrap } from "../ui/text.ts";
import { SHOWN } from "./examples.ts";

/** Gives every command of the program its examples, and words for those who typed it wrong. */
export function withHelp(program: Command): Command {
  program.helpCommand(false).addCommand(helpCommand(program), { hidden: true });
  dress(program, []);
  return program;
}

function dress(command: Command, path: readonly string[]): void {
  const name = path.join(" ");
  const { summary, examples } = SHOWN[name] ?? { examples: [] };
  if (summary !== undefined) command.summary(summary);
  if (examples.length > 0)
    command.addHelpText("after", `\n${examples.map((each) => `  ${each}`).join("\n")}`);
  command
    .exitOverride()
    .helpOption("-h, --help", "print this help")
    .configureHelp({
      showGlobalOptions: false,
      // A list is read for its names: what each takes stands in its own help.
      subcommandTerm: (inner) => inner.name(),
      visibleCommands: (outer) => outer.commands.filter((inner) => !isHidden(inner)),
      // Whoever reads this has just typed --help; a screen has 24 lines. The version stays at the end of the first page.
      visibleOptions: (outer) => (outer.parent === null ? [] : outer.options.filter(({ hidden }) => !hidden)),
    })
    .showSuggestionAfterError(true)
    .configureOutput({ outputError: (text, write) => write(wrongUsage(text, command)) });
  for (const inner of command.commands) if (!isHidden(inner)) dress(inner, [...path, inner.name()]);
}

/**
 * What is wrong, and the right form. `tools tokn` goes to the command that `tools` alone means, which takes no argument:
 * "too many arguments for 'list'" would be about a word that nobody typed.
 */
function wrongUsage(text: string, command: Command): string {
  const { parent } = command;
  const group = command.commands.length > 0 ? command : parent?.parent ? parent : null;
  const typed = group?.args[0];
  const listed = group?.commands.map((inner) => inner.name()) ?? [];
  const unknown = text.includes("too many arguments") && typed !== undefined && !listed.includes(typed);
  const words = unknown
    ? `error: unknown command '${typed}'. there are: ${listed.join(", ")}`
    : text.trimEnd();
  const path = pathOf(unknown && group !== null ? group : command);
  const right = path === "keybearer" ? "" : `\nusage: ${path} ${command.usage()}`.trimEnd();
  const { width } = screenOf(process.env, process.stderr.columns);
  const lines = printableLines(`${words}${unknown ? "" : right}`).split("\n");
  const next = `→ ${path.replace("keybearer", "keybearer help")}`;
  return `${[...lines.map((line) => wrap(line, width)), next].join("\n")}\n`;
}

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/** Commander's own goes one step deep: `help tools add` would print the help of tools. */
function helpCommand(program: Command): Command {
  return new Command("help")
    .exitOverride()
    .description("print help for a command")
    .argument("[command...]", "its name, such as: tools add")
    .action((names: string[]) => {
      const [found, wrong] = follow(program, names);
      if (wrong === null) return found.outputHelp();
      const known = found.commands.filter((inner) => !isHidden(inner)).map((inner) => inner.name());
      const choice = known.length === 0 ? "" : `. there are: ${known.join(", ")}`;
      found.error(
        `there is no command ${[...names.slice(0, names.indexOf(wrong)), wrong].join(" ")}${choice}`,
      );
    });
}

function follow(command: Command, names: readonly string[]): [Command, wrong: string | null] {
  const [first, ...rest] = names;
  if (first === undefined) return [command, null];
  const inner = command.commands.find((each) => each.name() === first);
  return inner === undefined ? [command, first] : follow(inner, rest);
}

/** Commander keeps this to itself. */
export function isHidden(command: Command): boolean {
  return command.name() === "help" || command.name().startsWith("__");
}
