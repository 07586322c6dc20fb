import type { Rule, Values } from "./grammar.ts";

/**
 * Works without the bash-completion package and in macOS's bash 3.2: no associative arrays, no mapfile. `__complete` prints
 * plain names only, because compgen -W expands its argument.
 */
export function bashScript(rules: readonly Rule[]): string {
  const paths = rules.filter(({ path }) => path !== "").map(({ path }) => `"${path}"`);
  return `# completion of keybearer for bash: eval "$(keybearer completion bash)"
_keybearer_files() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -f -- "$1"))
  compopt -o filenames 2>/dev/null
}
_keybearer() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} path="" words="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "\${path:+$path }\${COMP_WORDS[i]}" in
      ${paths.join(" | ")}) path="\${path:+$path }\${COMP_WORDS[i]}" ;;
    esac
  done
  case "$path $prev" in
${rules.flatMap(valueCases).join("\n")}
  esac
  case "$path" in
${rules.map(ruleCase).join("\n")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _keybearer keybearer
`;
}

function valueCases({ path, options }: Rule): string[] {
  return options.flatMap(({ long, short, values }) => {
    if (values === null) return [];
    const flags = [long, short].filter((flag) => flag !== null).map((flag) => `"${path} ${flag}"`);
    return [`    ${flags.join(" | ")}) ${reply(values)}; return ;;`];
  });
}

function reply(values: Values): string {
  if (values.kind === "anything") return ":";
  if (values.kind === "files") return '_keybearer_files "$cur"';
  return `COMPREPLY=($(compgen -W "${wordsOf(values)}" -- "$cur"))`;
}

function wordsOf(values: Values): string {
  if (values.kind === "words") return values.words.join(" ");
  return `$(keybearer __complete ${values.kind} 2>/dev/null)`;
}

function ruleCase({ path, commands, options, argument }: Rule): string {
  const flags = options.flatMap(({ long, short }) => long ?? short ?? []).join(" ");
  const names = commands.map(({ name }) => name).join(" ");
  const lines = [`if [[ $cur == -* ]]; then words="${flags}"`];
  if (argument?.kind === "files") lines.push(`else ${reply(argument)}; return`);
  else if (argument !== null && argument.kind !== "anything") lines.push(`else words="${wordsOf(argument)}"`);
  else if (names !== "") lines.push(`else words="${names}"`);
  return `    "${path}") ${lines.join("; ")}; fi ;;`;
}
