import type { Rule, Values } from "./grammar.ts";

/** Works sourced after compinit, and as a file _keybearer in fpath. */
export function zshScript(rules: readonly Rule[]): string {
  const paths = rules.filter(({ path }) => path !== "").map(({ path }) => quoted(path));
  return `#compdef keybearer
# completion of keybearer for zsh: eval "$(keybearer completion zsh)", after compinit
_keybearer() {
  local cur=\${words[CURRENT]} prev=\${words[CURRENT-1]} place="" i
  local -a known entries
  known=(${paths.join(" ")})
  for ((i = 2; i < CURRENT; i++)); do
    if (( \${known[(Ie)\${place:+$place }\${words[i]}]} )); then place="\${place:+$place }\${words[i]}"; fi
  done
  case "$place $prev" in
${rules.flatMap(valueCases).join("\n")}
  esac
  case "$place" in
${rules.map(ruleCase).join("\n")}
  esac
}
if [[ "\${funcstack[1]}" == _keybearer ]]; then _keybearer "$@"; else compdef _keybearer keybearer; fi
`;
}

function valueCases({ path, options }: Rule): string[] {
  return options.flatMap(({ long, short, values }) => {
    if (values === null) return [];
    const flags = [long, short].filter((flag) => flag !== null).map((flag) => quoted(`${path} ${flag}`));
    return [`    ${flags.join("|")}) ${reply(values)}; return ;;`];
  });
}

function reply(values: Values): string {
  if (values.kind === "anything") return ":";
  if (values.kind === "files") return "_files";
  if (values.kind === "words") return `compadd -- ${values.words.map(quoted).join(" ")}`;
  return `compadd -- \${(f)"$(keybearer __complete ${values.kind} 2>/dev/null)"}`;
}

function ruleCase({ path, commands, options, argument }: Rule): string {
  const flags = options.map(({ long, short, description }) => entry(long ?? short ?? "", description));
  const names = commands.map(({ name, description }) => entry(name, description));
  const rest =
    argument === null || argument.kind === "anything"
      ? names.length === 0
        ? ":"
        : `entries=(${names.join(" ")}); _describe command entries`
      : reply(argument);
  return `    ${quoted(path)}) if [[ $cur == -* ]]; then entries=(${flags.join(" ")}); _describe option entries; else ${rest}; fi ;;`;
}

/** _describe takes the first colon as the end of the name. */
function entry(name: string, description: string): string {
  return quoted(`${name.replaceAll(":", "\\:")}:${description}`);
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
