import fc from "fast-check";
import t from "tap";
import { formatFor, type Path } from "../../src/clients/format.ts";
import { changedVariables, checkEdits, done, isWithin } from "../doubles/checked-edits.ts";
import { runs } from "../doubles/effort.ts";
import { fishFile, shFile } from "../doubles/written-shell.ts";

const SH = formatFor("sh");
const FISH = formatFor("fish");

function set(text: string, path: Path, value: string | undefined, near?: Path): string {
  return done(SH.set(text, path, value, near));
}

for (const [name, format, file] of [
  ["sh", SH, shFile],
  ["fish", FISH, fishFile],
] as const) {
  t.test(`${name}: the assignments are those of commands, and not of texts that look like them`, (t) => {
    fc.assert(
      fc.property(file, ({ text, assigned }) => {
        const read = format.read(text);
        if (!read.ok) throw new Error(`line ${read.line}: ${read.problem}`);
        const found = read.settings.map(({ path, value }) => [path[0], value]);
        const wanted = assigned.map(([variable, value]) => [variable, value]);
        if (JSON.stringify(found) !== JSON.stringify(wanted))
          throw new Error(`found ${JSON.stringify(found)}`);
      }),
      { numRuns: runs(500) },
    );
    t.end();
  });

  t.test(`${name}: one setting is changed or goes, and no other byte is`, (t) => {
    const counts = { made: 0, left: 0 };
    fc.assert(
      fc.property(file, fc.constantFrom("kb_x", "http://127.0.0.1:8787", "a 'b'"), ({ text }, value) => {
        const isUsual = (line: string) => !/a#b/.test(line);
        const meaning = (each: string) => format.at(each, []);
        const { made, left } = checkEdits(
          { format, meaning, changed: changedVariables, isUsual },
          text,
          value,
        );
        counts.made += made;
        counts.left += left;
      }),
      { numRuns: runs(300) },
    );
    t.comment(`${counts.made} edits, and ${counts.left} left to a person`);
    t.ok(counts.made > counts.left);
    t.end();
  });

  t.test(`${name}: a new variable comes in, at the end or beside another one`, (t) => {
    fc.assert(
      fc.property(file, fc.constantFrom("kb_x", "a 'b'", ""), fc.nat(9), ({ text, assigned }, value, at) => {
        const near: Path | undefined = assigned[at] && [assigned[at][0], 0];
        const edited =
          near === undefined ? format.set(text, ["N", 0], value) : format.set(text, ["N", 0], value, near);
        if (!edited.ok && near !== undefined && edited.next === "change it by hand") return;
        const after = done(edited);
        if (format.at(after, ["N", 0]) !== value) throw new Error("not set");
        if (!isWithin(text, after)) throw new Error("something was lost");
      }),
      { numRuns: runs(200) },
    );
    t.end();
  });
}

t.test("a value with quotes around parts of it is known, and left to a person", (t) => {
  const text = "export A=\"sk-\"ab'c'\n";
  t.equal(SH.at(text, ["A", 0]), "sk-abc");
  t.equal(FISH.at("set -gx A sk-'ab'\n", ["A", 0]), "sk-ab");
  for (const value of ["kb_x", undefined])
    t.match(SH.set(text, ["A", 0], value), { ok: false, next: "change it by hand" });
  for (const other of ["'a'\\''b'", "'a'$B", "a'b", '"a"$(b)', "'a'=ls"])
    t.notOk(SH.at(`A=${other}\n`, ["A", 0]), other);
  t.end();
});

t.test("a new variable is written like the one beside it", (t) => {
  const add = (text: string, near: Path = ["A", 0]) => set(text, ["N", 0], "z", near);
  t.equal(add("export A=x # c\nB=y\n"), "export A=x # c\nexport N=z\nB=y\n");
  t.equal(add("A='x'"), "A='x'\nN='z'");
  t.equal(
    add("if true; then\n\tdeclare -x A=x B=y\nfi\n"),
    "if true; then\n\tdeclare -x A=x B=y\n\tdeclare -x N=z\nfi\n",
  );
  t.equal(add("[ x ] && export A=x && true\n"), "[ x ] && export A=x N=z && true\n");
  t.equal(add("if true; then export A=x; fi"), "if true; then export A=x N=z; fi");
  t.equal(add("A=x B=y claude\n"), "A=x N=z B=y claude\n");
  t.equal(add("export A=x\r\n"), "export A=x\r\nexport N=z\r\n");
  t.equal(add("export \\\n A=x\n"), "export \\\n A=x N=z\n");
  t.equal(set("a() {\n  :\n}", ["N", 0], "z"), "a() {\n  :\n}\nexport N=z");
  t.equal(set("", ["N", 0], "z"), "export N=z\n");
  const fish = (text: string) => done(FISH.set(text, ["N", 0], "z", ["A", 0]));
  t.equal(fish("  set -Ux A 'x' # c\n"), "  set -Ux A 'x' # c\n  set -Ux N 'z'\n");
  t.equal(fish("true; set -gx A x; true\n"), "true; set -gx A x; set -gx N z; true\n");
  t.equal(done(FISH.set("", ["N", 0], "z")), "set -gx N z\n");
  t.end();
});

t.test("a removed variable leaves a file that the shell can read", (t) => {
  const gone = (text: string) => set(text, ["A", 0], undefined);
  t.equal(gone("# c\nexport A=x # c\nB=y\n"), "# c\nB=y\n");
  t.equal(gone("B=y\nA=x"), "B=y");
  t.equal(gone("export A=x B=y\n"), "export B=y\n");
  t.equal(gone("export B=y A=x\n"), "export B=y\n");
  t.equal(gone("declare -gx A=x\n"), "");
  t.equal(gone("A=x claude\n"), "claude\n");
  t.equal(gone("if true; then export A=x; B=y; fi\n"), "if true; then B=y; fi\n");
  t.equal(gone("true; export A=x\n"), "true\n");
  t.equal(gone("export \\\n  A=x\nB=y\n"), "B=y\n");
  t.equal(gone("export A=$(cmd)\n"), "", "also one without a literal value");
  for (const text of [
    "if true; then\n  export A=x\nfi\n",
    "f() {\n  A=x # c\n}\n",
    "case x in x) A=x;; esac",
    "true && A=x\n",
    "true &&\nA=x\n",
    "A=x || true\n",
    "if A=x; then true; fi",
    "export A='x\ny'\n",
    "export B=y \\\n  A=x\n",
  ]) {
    t.match(SH.set(text, ["A", 0], undefined), { ok: false, problem: /A cannot be changed safely/ }, text);
  }
  t.equal(done(FISH.set("if true\n  set -gx A x\nend\n", ["A", 0], undefined)), "if true\nend\n");
  t.match(FISH.set("true; and set -gx A x\n", ["A", 0], undefined), { ok: false });
  t.end();
});

t.test("a value is quoted if it needs quotes, and refused if no quotes can hold it", (t) => {
  t.equal(set("A=x\n", ["A", 0], "a b"), "A='a b'\n");
  t.equal(set("A=$B\n", ["A", 0], "x"), "A=x\n");
  t.equal(set('A="$B"\n', ["A", 0], "x"), 'A="x"\n');
  t.equal(set("A=x\n", ["A", 0], "it's"), 'A="it\'s"\n');
  t.equal(set("A=x\n", ["A", 0], "~/x"), "A='~/x'\n");
  t.equal(set("A=x\n", ["A", 0], "=x"), "A='=x'\n");
  t.equal(done(FISH.set("set -gx A x\n", ["A", 0], "")), "set -gx A ''\n");
  for (const value of ["a\nb", "'$", "\0"])
    t.match(SH.set("A=x\n", ["A", 0], value), { ok: false, next: "change it by hand" });
  t.match(FISH.set("set A x\n", ["A", 0], "\\"), { ok: false });
  t.match(
    SH.set("A='a\nb'\n", ["A", 0], "x"),
    { ok: false, next: "change it by hand" },
    "a value of two lines",
  );
  t.match(SH.set("A+=x\n", ["A", 0], "x"), { ok: false, next: "change it by hand" });
  t.match(SH.set("A=x\n", ["A", 2], "x"), { ok: false, next: "change it by hand" }, "there is no second one");
  t.match(SH.set("A=x\n", ["A-B", 0], "x"), { ok: false });
  t.end();
});

t.test("a file that no shell reads is refused with its line", (t) => {
  const bad: [string, number, RegExp][] = [
    ["A=x\nB='y\n", 2, /quote is not closed/],
    ['A="x\n$(\n', 2, /not closed/],
    ["A=x\nB=`y\n", 2, /quote is not closed/],
    ["A=$(\n", 1, /\( is not closed/],
    ["A=(\n", 1, /\( is not closed/],
    ["A=${x\n", 1, /\{ is not closed/],
    ["A=$((1\n", 1, /\( is not closed/],
    ["$(".repeat(1000), 1, /nested/],
  ];
  for (const [text, line, problem] of bad) {
    t.match(SH.read(text), { ok: false, line, problem }, text.slice(0, 20));
    t.same(SH.set(text, ["A", 0], "x"), SH.read(text));
    t.equal(SH.at(text, ["A", 0]), undefined);
  }
  t.match(FISH.read("set A 'x\\'\n"), { ok: false, line: 1 });
  t.match(FISH.read("(".repeat(1000)), { ok: false, problem: /nested/ });
  t.end();
});

t.test("a setting has its line, and two assignments of one name are two settings", (t) => {
  t.same(SH.read("# c\nexport \\\n  A=1 B=2\nA=$B\n"), {
    ok: true,
    settings: [
      { path: ["A", 0], value: "1", line: 3 },
      { path: ["B", 0], value: "2", line: 3 },
      { path: ["A", 1], value: null, line: 4 },
    ],
  });
  t.same(SH.at("A=1\nA=2", []), { A: ["1", "2"] });
  t.equal(set("A=1\nA=2\n", ["A", 1], "3"), "A=1\nA=3\n");
  t.end();
});

t.test("lines end as they did, and what only some shells read hides nothing", (t) => {
  t.equal(set("\uFEFFexport A=x\r\nB=y\r\n", ["A", 0], "z"), "\uFEFFexport A=z\r\nB=y\r\n");
  t.equal(set("\uFEFFA=x\nB=y", ["A", 0], undefined), "\uFEFFB=y");
  t.equal(set("cat <<E\r\nA=no\r\nE\r\nA=x", ["A", 0], "z"), "cat <<E\r\nA=no\r\nE\r\nA=z");
  for (const line of [
    // dash and zsh read a single ' here, bash wants two.
    `: "$\{B:-it's}"`,
    "[[ $x = (#i)foo* ]]",
    "(( x << 1 ))",
    "path=(/bin(N) ~/bin $path)",
    "for f in *(.N); do :; done",
    "try { true } always { false }",
    `print $\{(f)"$(<file)"} $\{#path} $+commands[x]`,
    "cat <<NEVER-CLOSED-BEFORE\nA=no\nNEVER-CLOSED-BEFORE",
  ]) {
    t.same(SH.at(`${line}\nexport A=x\n`, ["A"]), ["x"], line);
  }
  t.same(SH.at("cat <<NEVER-CLOSED\nA=no\n", []), {});
  t.same(SH.at("A='x\0y'\nB=\0\n", []), { A: [null], B: [null] });
  t.end();
});
