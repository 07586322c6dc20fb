import type { Command, Option } from "commander";
import { isHidden } from "../help/help.ts";

/** What can be typed at a place: names that `keybearer __complete` lists, files, or fixed choices. */
export type Values =
  | { readonly kind: "tools" | "gateways" | "clients" | "held" | "files" | "anything" }
  | { readonly kind: "words"; readonly words: readonly string[] };

export interface OptionGrammar {
  readonly long: string | null;
  readonly short: string | null;
  readonly description: string;
  /** null: the option takes no value. */
  readonly values: Values | null;
}

/** What may follow one command. */
export interface Rule {
  /** "" for keybearer itself, "tools add" */
  readonly path: string;
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly OptionGrammar[];
  /** null: no argument. */
  readonly argument: Values | null;
}

/** Read from the program itself, so that no command can be missing. */
export function grammarOf(program: Command): Rule[] {
  return rulesOf(program, []);
}

function rulesOf(command: Command, path: readonly string[]): Rule[] {
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
        argument === undefined ? null : named(fixedChoices(argument.argChoices) ?? valuesOf(argument.name())),
    },
    ...inner.flatMap((each) => rulesOf(each, [...path, each.name()])),
  ];
}

const HELP: OptionGrammar = { long: "--help", short: "-h", description: "print this help", values: null };

function optionGrammar(option: Option): OptionGrammar {
  const { long = null, short = null, description, required, optional, argChoices } = option;
  const takesValue = required || optional;
  const named = /<([^>]+)>|\[([^\]]+)\]/.exec(option.flags);
  const values = fixedChoices(argChoices) ?? valuesOf(option.attributeName(), named?.[1] ?? named?.[2] ?? "");
  return { long, short, description, values: takesValue ? values : null };
}

function fixedChoices(choices: readonly string[] | undefined): Values | null {
  return choices === undefined ? null : { kind: "words", words: choices };
}

/** By the name of the argument, which is the same in every command. */
function valuesOf(...names: readonly string[]): Values {
  const is = (...wanted: readonly string[]) => names.some((name) => wanted.includes(name));
  if (is("file", "config", "output")) return { kind: "files" };
  if (is("url")) return { kind: "anything" };
  if (is("tool|gateway")) return { kind: "held" };
  if (is("tool")) return { kind: "tools" };
  if (is("gateway")) return { kind: "gateways" };
  if (is("client", "for")) return { kind: "clients" };
  if (is("store")) return { kind: "words", words: ["keychain", "file"] };
  if (is("by")) return { kind: "words", words: ["tool", "model", "day", "hour", "key", "group", "gateway"] };
  return { kind: "anything" };
}
