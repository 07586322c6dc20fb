import type { Command, Option } from "commander";
import { isHidden } from "../help/help.ts";

/** What can stand at a place: names that `keybearer __complete` lists, files, or words that are known. */
export type Values =
  | { readonly kind: "tools" | "gateways" | "clients" | "held" | "files" | "anything" }
  | { readonly kind: "words"; readonly words: readonly string[] };

export interface OptionWords {
  readonly long: string | null;
  readonly short: string | null;
  readonly description: string;
  /** null: it takes no value. */
  readonly values: Values | null;
}

/** One command: what may come after it. */
export interface Rule {
  /** "" for keybearer itself, "tools add" */
  readonly path: string;
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly OptionWords[];
  /** null: no argument. */
  readonly argument: Values | null;
}

/** What the program takes, read from the program itself, so that no command can be forgotten. */
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
  // A new tool is best called as its client is: then `use` needs no --for.
  const isNew = ["init", "tools add"].includes(path.join(" "));
  const named = (values: Values): Values => (isNew && values.kind === "tools" ? { kind: "clients" } : values);
  const options = command.options.filter(({ hidden }) => !hidden).map(optionWords);
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
        argument === undefined ? null : named(given(argument.argChoices) ?? valuesOf(argument.name())),
    },
    ...inner.flatMap((each) => rulesOf(each, [...path, each.name()])),
  ];
}

const HELP: OptionWords = { long: "--help", short: "-h", description: "print this help", values: null };

function optionWords(option: Option): OptionWords {
  const { long = null, short = null, description, required, optional, argChoices } = option;
  const takes = required || optional;
  const named = /<([^>]+)>|\[([^\]]+)\]/.exec(option.flags);
  const values = given(argChoices) ?? valuesOf(option.attributeName(), named?.[1] ?? named?.[2] ?? "");
  return { long, short, description, values: takes ? values : null };
}

function given(choices: readonly string[] | undefined): Values | null {
  return choices === undefined ? null : { kind: "words", words: choices };
}

/** By what it is called: the names in the help are the same everywhere. */
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
