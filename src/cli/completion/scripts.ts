import { quoteForShell } from "../../core/display.ts";
/** What can be typed at a place: names that `keybearer __complete` lists, files, or fixed choices. */
export type Values =
  | { readonly kind: "tools" | "gateways" | "clients" | "channels" | "held" | "files" | "anything" }
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

/** What completes the value of an option, as branches of a `case` on the path and the word before. */
function optionCases(
  { path, options }: Rule,
  quote: (text: string) => string,
  reply: (values: Values) => string,
): string[] {
  return options.flatMap(({ long, short, values }) => {
    if (values === null) return [];
    const flags = [long, short].filter((flag) => flag !== null).map((flag) => quote(`${path} ${flag}`));
    return [`    ${flags.join(" | ")}) ${reply(values)}; return ;;`];
  });
}

function doubleQuoted(text: string): string {
  return `"${text}"`;
}

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
${rules.flatMap((rule) => optionCases(rule, doubleQuoted, bashReply)).join("\n")}
  esac
  case "$path" in
${rules.map(bashCase).join("\n")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _keybearer keybearer
`;
}

function bashReply(values: Values): string {
  if (values.kind === "anything") return ":";
  if (values.kind === "files") return '_keybearer_files "$cur"';
  return `COMPREPLY=($(compgen -W "${bashWords(values)}" -- "$cur"))`;
}

function bashWords(values: Values): string {
  if (values.kind === "words") return values.words.join(" ");
  return `$(keybearer __complete ${values.kind} 2>/dev/null)`;
}

function bashCase({ path, commands, options, argument }: Rule): string {
  const flags = options.flatMap(({ long, short }) => long ?? short ?? []).join(" ");
  const names = commands.map(({ name }) => name).join(" ");
  const lines = [`if [[ $cur == -* ]]; then words="${flags}"`];
  if (argument?.kind === "files") lines.push(`else ${bashReply(argument)}; return`);
  else if (argument !== null && argument.kind !== "anything")
    lines.push(`else words="${bashWords(argument)}"`);
  else if (names !== "") lines.push(`else words="${names}"`);
  return `    "${path}") ${lines.join("; ")}; fi ;;`;
}

/** Works sourced after compinit, and as a file _keybearer in fpath. */
export function zshScript(rules: readonly Rule[]): string {
  const paths = rules.filter(({ path }) => path !== "").map(({ path }) => quoteForShell(path));
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
${rules.flatMap((rule) => optionCases(rule, quoteForShell, zshReply)).join("\n")}
  esac
  case "$place" in
${rules.map(zshCase).join("\n")}
  esac
}
if [[ "\${funcstack[1]}" == _keybearer ]]; then _keybearer "$@"; else compdef _keybearer keybearer; fi
`;
}

function zshReply(values: Values): string {
  if (values.kind === "anything") return ":";
  if (values.kind === "files") return "_files";
  if (values.kind === "words") return `compadd -- ${values.words.map(quoteForShell).join(" ")}`;
  return `compadd -- \${(f)"$(keybearer __complete ${values.kind} 2>/dev/null)"}`;
}

function zshCase({ path, commands, options, argument }: Rule): string {
  const flags = options.map(({ long, short, description }) => zshEntry(long ?? short ?? "", description));
  const names = commands.map(({ name, description }) => zshEntry(name, description));
  let rest = ":";
  if (argument !== null && argument.kind !== "anything") rest = zshReply(argument);
  else if (names.length > 0) rest = `entries=(${names.join(" ")}); _describe command entries`;
  return `    ${quoteForShell(path)}) if [[ $cur == -* ]]; then entries=(${flags.join(" ")}); _describe option entries; else ${rest}; fi ;;`;
}

/** _describe takes the first colon as the end of the name. */
function zshEntry(name: string, description: string): string {
  return quoteForShell(`${name.replaceAll(":", "\\:")}:${description}`);
}

export function fishScript(rules: readonly Rule[]): string {
  const paths = rules.filter(({ path }) => path !== "").map(({ path }) => fishQuoted(path));
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
${rules.flatMap(fishLines).join("\n")}
`;
}

function fishLines({ path, commands, options, argument }: Rule): string[] {
  const line = `complete -c keybearer -n ${fishQuoted(`__keybearer_at ${doubleQuoted(path)}`)}`;
  return [
    ...commands.map(({ name, description }) => `${line} -a ${name} -d ${fishQuoted(description)}`),
    ...options.map(({ long, short, description, values }) => {
      const flags = [
        short === null ? "" : ` -s ${short.slice(1)}`,
        long === null ? "" : ` -l ${long.slice(2)}`,
      ];
      return `${line}${flags.join("")} -d ${fishQuoted(description)}${values === null ? "" : fishValues(values)}`;
    }),
    ...(argument === null || argument.kind === "anything" ? [] : [`${line}${fishValues(argument, false)}`]),
  ];
}

/** -x: needs a value that is not a file. -r -F: needs a file. */
function fishValues(values: Values, ofOption = true): string {
  if (values.kind === "files") return ofOption ? " -r -F" : " -F";
  const needed = ofOption ? " -x" : "";
  if (values.kind === "anything") return needed;
  if (values.kind === "words") return `${needed} -a ${fishQuoted(values.words.join(" "))}`;
  return `${needed} -a ${fishQuoted(`(keybearer __complete ${values.kind} 2>/dev/null)`)}`;
}

function fishQuoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
