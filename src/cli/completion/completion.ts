import { Argument, Command, type Option } from "commander";
import { isHidden } from "../help/help.ts";
import { commandPaths, stdio } from "../ui/stdio.ts";
import { bashScript, fishScript, type OptionGrammar, type Rule, type Values, zshScript } from "./scripts.ts";

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;

export function completionCommand(): Command {
  const command = new Command("completion")
    .summary("print the script for tab completion in your shell")
    .description("print a script that makes your shell complete commands, options and names")
    .addArgument(new Argument("<shell>", "bash, zsh or fish").choices(Object.keys(SCRIPTS)));
  return command.action((shell: keyof typeof SCRIPTS) => {
    if (command.parent !== null) stdio().stdout.write(SCRIPTS[shell](describeGrammar(command.parent)));
  });
}

const LISTS = ["tools", "gateways", "clients", "channels", "held"] as const;

/** The scripts run it at every press of Tab: it reads config.yaml, but no key, and does not ask the daemon. */
export function completeCommand(): Command {
  return new Command("__complete")
    .addArgument(new Argument("<what>").choices(LISTS))
    .action(async (what: (typeof LISTS)[number]) => {
      const names = await findNames(what);
      stdio().stdout.write(
        names
          .filter(isPlain)
          .map((name) => `${name}\n`)
          .join(""),
      );
    });
}

async function findNames(what: (typeof LISTS)[number]): Promise<readonly string[]> {
  if (what === "clients") {
    const { CLIENTS } = await import("../../clients/table.ts");
    return CLIENTS.map(({ id }) => id);
  }
  const { loadHere } = await import("../config-here.ts");
  const paths = commandPaths();
  const { config } = await loadHere(paths, { strict: false });
  const tools = Object.keys(config?.tools ?? {});
  const gateways = Object.keys(config?.gateways ?? {});
  if (what === "tools") return tools;
  if (what === "gateways") return gateways;
  const { desktop = true, command = null, webhooks = {} } = config?.notify ?? {};
  const programs = [...(desktop ? ["desktop"] : []), ...(command === null ? [] : ["command"])];
  if (what === "channels") return [...programs, ...Object.keys(webhooks)];
  const isShared = (config?.shared ?? null) !== null;
  const isNotify = command !== null || Object.keys(webhooks).length > 0;
  const others = [...(isShared ? ["shared"] : []), ...(isNotify ? ["notify"] : [])];
  return [...new Set([...tools, ...gateways, ...others])];
}

/** Shells expand these names, so one that a shell would treat as code is left out. */
function isPlain(name: string): boolean {
  return /^[\p{L}\p{N}][\p{L}\p{N}_.@-]*$/u.test(name);
}

/** Read from the program itself, so that no command can be missing. */
export function describeGrammar(program: Command): Rule[] {
  return describeRules(program, []);
}

function describeRules(command: Command, path: readonly string[]): Rule[] {
  const inner = command.commands.filter((each) => !isHidden(each));
  const names = inner.map((each) => ({
    name: each.name(),
    description: each.summary() || each.description(),
  }));
  const [argument] = command.registeredArguments;
  // A tool named after its client needs no --for in `use`.
  const isNew = ["init", "tools add"].includes(path.join(" "));
  const named = (values: Values): Values => (isNew && values.kind === "tools" ? { kind: "clients" } : values);
  const options = command.options.filter(({ hidden }) => !hidden).map(optionGrammar);
  return [
    {
      path: path.join(" "),
      commands:
        path.length === 0 ? [...names, { name: "help", description: "print help for a command" }] : names,
      options: [
        ...options.map((each) => ({ ...each, values: each.values === null ? null : named(each.values) })),
        HELP,
      ],
      argument:
        argument === undefined
          ? null
          : named(fixedChoices(argument.argChoices) ?? findValues(argument.name())),
    },
    ...inner.flatMap((each) => describeRules(each, [...path, each.name()])),
  ];
}

const HELP: OptionGrammar = { long: "--help", short: "-h", description: "print this help", values: null };

function optionGrammar(option: Option): OptionGrammar {
  const { long = null, short = null, description, required, optional, argChoices } = option;
  const takesValue = required || optional;
  const named = /<([^>]+)>|\[([^\]]+)\]/.exec(option.flags);
  const values =
    fixedChoices(argChoices) ?? findValues(option.attributeName(), named?.[1] ?? named?.[2] ?? "");
  return { long, short, description, values: takesValue ? values : null };
}

function fixedChoices(choices: readonly string[] | undefined): Values | null {
  return choices === undefined ? null : { kind: "words", words: choices };
}

/** Those of reports/report.ts, which loads the database. */
const DIMENSIONS = [
  ...["tool", "model", "day", "hour", "key", "group", "gateway", "machine"],
  ...["project", "branch", "session", "token"],
];

/** By the name of the argument, which is the same in every command. */
function findValues(...names: readonly string[]): Values {
  const is = (...wanted: readonly string[]) => names.some((name) => wanted.includes(name));
  if (is("file", "config", "output")) return { kind: "files" };
  if (is("url")) return { kind: "anything" };
  if (is("tool|gateway")) return { kind: "held" };
  if (is("tool")) return { kind: "tools" };
  if (is("gateway")) return { kind: "gateways" };
  if (is("channel")) return { kind: "channels" };
  if (is("client", "for")) return { kind: "clients" };
  if (is("store")) return { kind: "words", words: ["keychain", "file"] };
  if (is("by")) return { kind: "words", words: DIMENSIONS };
  return { kind: "anything" };
}
