import type { Rule, Values } from "./grammar.ts";

export function fishScript(rules: readonly Rule[]): string {
  const paths = rules.filter(({ path }) => path !== "").map(({ path }) => quoted(path));
  return `# completion of keybearer for fish: keybearer completion fish | source
function __keybearer_at
    set -l place ""
    set -l typed (commandline -opc)
    set -e typed[1]
    for word in $typed
        set -l longer (string trim -- "$place $word")
        if contains -- $longer ${paths.join(" ")}
            set place $longer
        end
    end
    test "$place" = "$argv[1]"
end
complete -c keybearer -e
complete -c keybearer -f
${rules.flatMap(linesOf).join("\n")}
`;
}

function linesOf({ path, commands, options, argument }: Rule): string[] {
  const line = `complete -c keybearer -n ${quoted(`__keybearer_at ${doubleQuoted(path)}`)}`;
  return [
    ...commands.map(({ name, description }) => `${line} -a ${name} -d ${quoted(description)}`),
    ...options.map(({ long, short, description, values }) => {
      const flags = [
        short === null ? "" : ` -s ${short.slice(1)}`,
        long === null ? "" : ` -l ${long.slice(2)}`,
      ];
      return `${line}${flags.join("")} -d ${quoted(description)}${values === null ? "" : valuesIn(values)}`;
    }),
    ...(argument === null || argument.kind === "anything" ? [] : [`${line}${valuesIn(argument, false)}`]),
  ];
}

/** -x: needs a value that is not a file. -r -F: needs a file. */
function valuesIn(values: Values, ofOption = true): string {
  if (values.kind === "files") return ofOption ? " -r -F" : " -F";
  const needed = ofOption ? " -x" : "";
  if (values.kind === "anything") return needed;
  if (values.kind === "words") return `${needed} -a ${quoted(values.words.join(" "))}`;
  return `${needed} -a ${quoted(`(keybearer __complete ${values.kind} 2>/dev/null)`)}`;
}

function doubleQuoted(text: string): string {
  return `"${text}"`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
