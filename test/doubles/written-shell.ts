import fc from "fast-check";

/* Start files of shells in many hands' writing, and what they assign. */

/** What some lines assign, in their order. "idle": the variable of the shell that reads them is not changed. */
export type Assigned = readonly [name: string, value: string | null, effect?: "idle"];
type Part = readonly [lines: string, ...assigned: Assigned[]];

/** For bash and zsh. */
const shPart = fc.constantFrom<Part>(
  ["export A=sk-abc", ["A", "sk-abc"]],
  ["A=plain # A=comment", ["A", "plain"]],
  ["export A='single ; $x' B=\"double it's\"", ["A", "single ; $x"], ["B", "double it's"]],
  ["  declare -x B=declared", ["B", "declared"]],
  ["typeset -x B=typeset; A=second", ["B", "typeset"], ["A", "second"]],
  ["export A=1;export B=2", ["A", "1"], ["B", "2"]],
  ["if true; then\n  export A=inside\nfi", ["A", "inside"]],
  ["if true; then export A=one; fi", ["A", "one"]],
  ["[ -n x ] && export A=and", ["A", "and"]],
  ["[ -n x ] &&\n  export B=next-line", ["B", "next-line"]],
  ["f() {\n  export A=never\n  B=never\n}", ["A", "never", "idle"], ["B", "never", "idle"]],
  ["function g { A=never; }", ["A", "never", "idle"]],
  ["A=once B='for one' true", ["A", "once", "idle"], ["B", "for one", "idle"]],
  ["case x in\n  x) export A=case ;;\n  y|z) B=other;;\nesac", ["A", "case"], ["B", "other", "idle"]],
  ["for C in A=no; do B=loop; done", ["B", "loop"]],
  ["{ B=braces; }", ["B", "braces"]],
  ["export \\\n  A=continued \\\n  B=too", ["A", "continued"], ["B", "too"]],
  ["export NAME A=with-name", ["A", "with-name"]],
  ["A=a#b", ["A", "a#b"]],
  ["A=", ["A", ""]],
);
const notLiteral = fc.constantFrom<Part>(
  ['export A="$HOME/x"', ["A", null]],
  ["A=$B", ["A", null]],
  ['B="quoted"more', ["B", "quotedmore"]],
  ["A=sk-'ab'\"c\"d", ["A", "sk-abcd"]],
  ["A=x:'y'=ls", ["A", null]],
  ["B='a'\\''b'", ["B", null]],
  ["A+=more", ["A", null]],
  ["B=$(echo A=no)", ["B", null]],
  ["B=`echo A=no`", ["B", null]],
  ["B=$'ansi \\' A=no'", ["B", null]],
  ["A=~/x", ["A", null]],
  ["B='two\nA=no\nlines'", ["B", null]],
  ['B="two $(echo "A=no")\nexport A=no\nlines"', ["B", null]],
  ["D=$(cat <<EOF\nit's (odd\nA=no\nEOF\n)", ["D", null]],
  ["D=$(case x in x) echo A=no;; esac)", ["D", null]],
  ["D=(A=no 'B' # it's\n  C\n)", ["D", null]],
);
const noise = fc.constantFrom<Part>(
  ["# export A='comment"],
  [""],
  ["cat <<EOF >/dev/null\nexport A=no\n'\"\nEOF"],
  ["cat <<-'E O' >/dev/null; : B=no\n\tA=no\n\tE O"],
  ["cat <<ONE <<\\TWO >/dev/null\nA=no\nONE\nB=no\nTWO"],
  ["cat <<<A=no >/dev/null"],
  ["echo $(( 1 << 2 )) $((1<<2)) >/dev/null"],
  ["(( 1 << 1 ))"],
  ["for ((i = 1; i < 1 << 1; i++)); do :; done"],
  [`: "$\{A:-'its'}" $\{B#"'"} "$\{B%'}'}" $\{#A} $#`],
  ["alias k='A=no cmd'"],
  ['[[ x == "A=no" && A=no == y || ( -n x ) ]]'],
  ["printf '%s' 'several\nexport A=no\nlines' >/dev/null # it's"],
  ["echo A=no B='no' >/dev/null 2>&1"],
  ["true | false || true & wait"],
  ['h() { echo "$1"; }'],
);

export interface WrittenShell {
  readonly text: string;
  readonly assigned: readonly Assigned[];
}

function fileOf(part: fc.Arbitrary<Part>): fc.Arbitrary<WrittenShell> {
  return fc
    .record({ parts: fc.array(part, { maxLength: 8 }), end: fc.constantFrom("", "\n", "\n\n") })
    .map(({ parts, end }) => ({
      text: parts.map(([lines]) => lines).join("\n") + end,
      assigned: parts.flatMap(([, ...assigned]) => assigned),
    }));
}
export const shFile = fileOf(fc.oneof(shPart, shPart, notLiteral, noise));

const fishPart = fc.constantFrom<Part>(
  ["set -gx A sk-abc", ["A", "sk-abc"]],
  ["set --export --global A 'single ; $x' # set -gx A no", ["A", "single ; $x"]],
  ['  set -x B "double it\'s"', ["B", "double it's"]],
  ["set -gx A one; set -gx B two", ["A", "one"], ["B", "two"]],
  ["if true\n  set -gx A inside\nend", ["A", "inside"]],
  ["true; and set -gx A and", ["A", "and"]],
  ["begin; set -gx B begun; end", ["B", "begun"]],
  ["function f\n  set -gx A never\nend", ["A", "never", "idle"]],
  ["A=once true", ["A", "once", "idle"]],
  ["set -gx \\\n  A continued", ["A", "continued"]],
  ["set -gx A a#b", ["A", "a#b"]],
  ["set -gx A $HOME", ["A", null]],
  ["set -gx A (echo set -gx A no)", ["A", null]],
  ['set -gx A "$HOME"', ["A", null]],
  ["set -gx A a'b'", ["A", "ab"]],
  ["set -gx A 'it\\'s'", ["A", null]],
  ["set -gx B one two", ["B", null]],
  ["set -gx B 'two\nset -gx A no\nlines'", ["B", null]],
  ["set -gx B \"two $(echo ')')\nset -gx A no\"", ["B", null]],
  ["set -e NO"],
  ["set -q A; or true"],
  ["set -l"],
  ["# set -gx A 'comment"],
  ["echo set -gx A no >/dev/null"],
  ["switch x\n  case x\n    set -gx A case\nend", ["A", "case"]],
);
export const fishFile = fileOf(fishPart);
