import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import t from "tap";
import { formatFor, type SettingsFormat } from "../../src/clients/format.ts";
import { runs } from "../doubles/effort.ts";
import { type Assigned, fishFile, shFile, type WrittenShell } from "../doubles/written-shell.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

/* Edited start files, as the shells themselves read them. */

interface Shell {
  readonly command: string;
  readonly args: readonly string[];
  readonly format: SettingsFormat;
  readonly file: fc.Arbitrary<WrittenShell>;
  /** Reads each file of the folder in a shell of its own, and prints two variables with a NUL behind each. */
  readonly print: string;
}

const PRINT = `for f in ./*; do
  ( . "$f" >/dev/null 2>&1; printf '%s\\0%s\\0' "\${A-unset}" "\${B-unset}" )
done`;
const PRINT_IN_FISH = `for f in ./*
  fish --no-config -c 'source $argv[1] >/dev/null 2>&1
    for n in A B; set -q $n; and printf "%s\\0" "$$n"; or printf "unset\\0"; end' $f
end`;
const SH = formatFor("sh");
const SHELLS: readonly Shell[] = [
  { command: "bash", args: ["--norc", "--noprofile", "-c"], format: SH, file: shFile, print: PRINT },
  { command: "zsh", args: ["-f", "-c"], format: SH, file: shFile, print: PRINT },
  {
    command: "fish",
    args: ["--no-config", "-c"],
    format: formatFor("fish"),
    file: fishFile,
    print: PRINT_IN_FISH,
  },
];

function whyNot(shell: Shell): string | false {
  const { status } = spawnSync(shell.command, ["-c", "true"], { env: { PATH: process.env.PATH } });
  return status === 0 ? false : `${shell.command} is not installed`;
}

/** Starts the shell once for all texts. For each it prints two texts. */
function printedFor(
  { command, args }: Shell,
  script: string,
  texts: readonly string[],
): (readonly string[])[] {
  const folder = mkdtempSync(join(tmpdir(), "kb-shell-"));
  try {
    for (const [at, text] of texts.entries()) writeFileSync(join(folder, String(at).padStart(6, "0")), text);
    const { stdout, error } = spawnSync(command, [...args, script], {
      env: { PATH: process.env.PATH, HOME: folder, SHELL: command },
      cwd: folder,
      encoding: "utf8",
      input: "",
      maxBuffer: 100_000_000,
    });
    if (error !== undefined) throw error;
    const printed = stdout.split("\0");
    if (printed.length !== texts.length * 2 + 1)
      throw new Error(`${command} printed ${printed.length} texts`);
    return texts.map((_, at) => printed.slice(at * 2, at * 2 + 2));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What the variable is at the end; null: only the shell can say. */
function finalValue(assigned: readonly Assigned[], variable: string): string | null {
  const last = assigned.findLast(([name, , effect]) => name === variable && effect !== "idle");
  return last === undefined ? "unset" : last[1];
}

/** The file, and what it becomes by each edit. */
function editsOf(format: SettingsFormat, file: WrittenShell): readonly WrittenShell[] {
  const { text, assigned } = file;
  const edits = [file];
  for (const [at, [name, , effect]] of assigned.entries()) {
    const index = assigned.slice(0, at).filter(([other]) => other === name).length;
    for (const value of ["kb_new", "it's; $new"]) {
      const edited = format.set(text, [name, index], value);
      const changed: Assigned = effect === undefined ? [name, value] : [name, value, effect];
      if (edited.ok) edits.push({ text: edited.text, assigned: assigned.with(at, changed) });
    }
    const removed = format.set(text, [name, index], undefined);
    if (removed.ok) edits.push({ text: removed.text, assigned: assigned.toSpliced(at, 1) });
  }
  const added = format.set(text, ["B", assigned.filter(([name]) => name === "B").length], "added");
  if (added.ok) edits.push({ text: added.text, assigned: [...assigned, ["B", "added"]] });
  return edits;
}

for (const shell of SHELLS) {
  const { command, format, file, print } = shell;
  t.test(`${command} reads the changed values from edited files`, { skip: whyNot(shell) }, (t) => {
    const files = fc.sample(file, { numRuns: runs(120), seed: 50 }).flatMap((each) => editsOf(format, each));
    const found = printedFor(
      shell,
      print,
      files.map(({ text }) => text),
    );
    let compared = 0;
    for (const [at, { text, assigned }] of files.entries()) {
      for (const [which, variable] of ["A", "B"].entries()) {
        const wanted = finalValue(assigned, variable);
        if (wanted === null) continue;
        compared += 1;
        const value = found[at]?.[which];
        if (value !== wanted) t.equal(value, wanted, `${variable} in ${JSON.stringify(text)}`);
      }
    }
    t.comment(`${files.length} files, ${compared} values`);
    t.ok(compared > files.length / 2);
    t.end();
  });
}

/** Pieces of shell text in any order. Each assignment has a value of its own. */
const soup = fc
  .array(
    fc.constantFrom(
      "A=#",
      "export A=#",
      "'",
      '"',
      "`",
      "\\",
      "$(",
      ")",
      "(",
      "${B:-",
      "${B#",
      "}",
      "{ ",
      "<<E",
      "<<'E'",
      "\nE\n",
      "\n",
      ";",
      " ",
      " ",
      "#",
      "echo ",
      "cat ",
      "&&",
      "|",
      "if true; then ",
      "; fi",
      "$((1<<1))",
      "$'",
      "x",
    ),
    { minLength: 2, maxLength: 14 },
  )
  .map((pieces) => pieces.map((piece, at) => piece.replace("=#", `=v${at}_`)).join(""));

/** Prints what a file prints, and what A is then. A file that the shell cannot parse is not run. */
const RUN = `cat() { while IFS= read -r line || [ -n "$line" ]; do printf '%s\\n' "$line"; done; }
command_not_found_handle() { printf 'no command %s\\n' "$*"; }
command_not_found_handler() { command_not_found_handle "$@"; }
for f in ./*; do
  if "$SHELL" -n "$f" 2>/dev/null; then
    ( trap 'wait; printf "\\0%s\\0" "\${A-}"' EXIT; . "$f" 2>/dev/null </dev/null )
  else
    printf 'unreadable\\0\\0'
  fi
done`;

/** What runs in the background prints at any time. */
function sorted(output: string | undefined): string {
  return (output ?? "").split("\n").sort().join("\n");
}

for (const shell of SHELLS.filter(({ format }) => format === SH)) {
  t.test(`${shell.command} agrees on what an assignment is in any text`, { skip: whyNot(shell) }, (t) => {
    // A changed value is seen in A, and nowhere else: not in a text, a here-document or a comment.
    const cases = fc.sample(soup, { numRuns: runs(900), seed: 50 }).flatMap((text) => {
      const read = SH.read(text);
      // What a command expands to may be an assignment, too, as in ${B:-export A=1}.
      if (!read.ok || !text.includes("A=") || /[`'"}\\-]export/.test(text)) return [];
      const literals = read.settings.filter(({ value }) => value !== null);
      const edited = literals.flatMap(({ path }) => {
        const result = SH.set(text, path, "marked");
        return result.ok ? [result.text] : [];
      });
      return [{ text, hasAssignment: read.settings.length > 0, edited }];
    });
    const texts = cases.flatMap(({ text, edited }) => [text, ...edited]);
    const printed = printedFor(shell, RUN, texts).values();
    let compared = 0;
    for (const { text, hasAssignment, edited } of cases) {
      const [output, a] = printed.next().value ?? [];
      if (output !== "unreadable" && a !== "" && !hasAssignment) t.fail(`not seen: ${JSON.stringify(text)}`);
      for (const after of edited) {
        const [outputAfter] = printed.next().value ?? [];
        if (output === "unreadable") continue;
        compared += 1;
        if (sorted(output) !== sorted(outputAfter))
          t.equal(outputAfter, output, `${JSON.stringify(text)} became ${JSON.stringify(after)}`);
      }
    }
    t.comment(`${texts.length} files, ${compared} edits`);
    t.ok(compared > 0);
    t.end();
  });
}
