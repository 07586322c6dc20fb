import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";
import t from "tap";
import { editFile, editFileIfConfirmed, writeConfig } from "../../src/config/edit-file.ts";
import { repeats } from "../doubles/effort.ts";
import { asOrdinaryUser } from "../doubles/ordinary-user.ts";

function modeOf(file: string): number {
  return statSync(file).mode & 0o777;
}

function temporaries(dir: string): string[] {
  return readdirSync(dir).filter((name) => name.endsWith(".tmp"));
}

t.test("a file is replaced whole, and is its owner's alone afterwards", async (t) => {
  const dir = t.testdir({ "config.yaml": "old\n" });
  const file = join(dir, "config.yaml");
  chmodSync(file, 0o644);
  const before = statSync(file).ino;
  t.same(await writeConfig(file, "old\n", "\uFEFFnew: ä\r\n"), { ok: true });
  t.equal(readFileSync(file, "utf8"), "\uFEFFnew: ä\r\n");
  t.equal(modeOf(file), 0o600);
  t.not(statSync(file).ino, before, "by a new file, not in place");
  t.same(readdirSync(dir), ["config.yaml"]);
});

t.test("the mode does not depend on the umask", async (t) => {
  const file = join(t.testdir({ "config.yaml": "old" }), "config.yaml");
  const umask = process.umask(0o377);
  t.teardown(() => process.umask(umask));
  t.same(await writeConfig(file, "old", "new"), { ok: true });
  t.equal(modeOf(file), 0o600);
});

t.test("a file that changed underneath is left alone", async (t) => {
  const dir = t.testdir({ "config.yaml": "somebody's edit\n" });
  const file = join(dir, "config.yaml");
  const result = await writeConfig(file, "old\n", "new\n");
  t.match(result, { ok: false, problem: /changed by something else/, next: "run the command again" });
  t.equal(readFileSync(file, "utf8"), "somebody's edit\n");
  t.same(readdirSync(dir), ["config.yaml"]);
});

t.test("a file that is not UTF-8 is not replaced", async (t) => {
  const file = join(t.testdir({ "config.yaml": "" }), "config.yaml");
  writeFileSync(file, Buffer.from([0x61, 0xff]));
  t.match(await writeConfig(file, readFileSync(file, "utf8"), "new"), { ok: false });
  t.same(readFileSync(file), Buffer.from([0x61, 0xff]));
});

t.test("of many writes at once that expect the same, exactly one is made", async (t) => {
  const dir = t.testdir({ "config.yaml": "old" });
  const file = join(dir, "config.yaml");
  const texts = Array.from({ length: 12 }, (_, at) => `new ${at}`);
  const outcomes = await Promise.all(texts.map((text) => writeConfig(file, "old", text)));
  const made = texts.filter((_, at) => outcomes[at]?.ok);
  t.same(made, [readFileSync(file, "utf8")]);
  t.same(readdirSync(dir), ["config.yaml"]);
});

t.test("a file that vanished is not made again", async (t) => {
  const dir = t.testdir({});
  const result = await writeConfig(join(dir, "config.yaml"), "old", "new");
  t.match(result, { ok: false, problem: /no longer exists/ });
  t.same(readdirSync(dir), []);
});

t.test("a folder in the place of the file is reported, and nothing is left", async (t) => {
  const dir = t.testdir({ "config.yaml": { inside: "x" } });
  t.match(await writeConfig(join(dir, "config.yaml"), "old", "new"), { ok: false, problem: /EISDIR/ });
  t.same(readdirSync(dir), ["config.yaml"]);
});

t.test("a symlink stays, and its target is replaced in the target's folder", async (t) => {
  const dir = t.testdir({
    dotfiles: { "keybearer.yaml": "old" },
    middle: t.fixture("symlink", "dotfiles/keybearer.yaml"),
    home: { "config.yaml": t.fixture("symlink", "../middle") },
  });
  const file = join(dir, "home", "config.yaml");
  const target = join(dir, "dotfiles", "keybearer.yaml");
  chmodSync(target, 0o644);
  t.same(await writeConfig(file, "old", "new"), { ok: true });
  t.equal(readlinkSync(file), "../middle");
  t.ok(lstatSync(join(dir, "middle")).isSymbolicLink());
  t.ok(lstatSync(target).isFile());
  t.equal(readFileSync(target, "utf8"), "new");
  t.equal(modeOf(target), 0o600);
  t.same(
    [readdirSync(join(dir, "home")), readdirSync(join(dir, "dotfiles"))],
    [["config.yaml"], ["keybearer.yaml"]],
  );
});

const isRoot = process.getuid?.() === 0;

t.test("the owner stays when root writes", { skip: isRoot ? false : "needs root" }, async (t) => {
  const file = join(t.testdir({ "config.yaml": "old" }), "config.yaml");
  chownSync(file, 12345, 12345);
  t.same(await writeConfig(file, "old", "new"), { ok: true });
  t.equal(statSync(file).uid, 12345);
});

t.test("a folder that cannot be written is reported", async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "kb-"));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, "config.yaml"), "old");
  chmodSync(dir, 0o500);
  asOrdinaryUser(t, dir, join(dir, "config.yaml"));
  t.teardown(() => chmodSync(dir, 0o700));
  t.match(await writeConfig(join(dir, "config.yaml"), "old", "new"), { ok: false, problem: /no permission/ });
  t.equal(readFileSync(join(dir, "config.yaml"), "utf8"), "old");
});

t.test("what a killed write left is removed by a later one, and nothing else is", async (t) => {
  const id = "0123456789abcdef01234567";
  const dir = t.testdir({
    "config.yaml": "old",
    [`.config.yaml.${id}.tmp`]: "left over",
    [`.config.yaml.f${id.slice(1)}.tmp`]: "being written",
    [`.other.yaml.${id}.tmp`]: "another file's",
    ".config.yaml.swp": "an editor's",
    ".config.yaml.notes.tmp": "a person's",
  });
  mkdirSync(join(dir, `.config.yaml.e${id.slice(1)}.tmp`));
  const now = Date.now() / 1000;
  for (const name of readdirSync(dir)) utimesSync(join(dir, name), now - 61, now - 61);
  utimesSync(join(dir, `.config.yaml.f${id.slice(1)}.tmp`), now, now);
  const names = readdirSync(dir);
  t.same(await writeConfig(join(dir, "config.yaml"), "old", "new"), { ok: true });
  const gone = names.filter((name) => !readdirSync(dir).includes(name));
  t.same(gone, [`.config.yaml.${id}.tmp`]);
});

/** Large enough that a kill often meets the write itself. */
function textOf(version: number): string {
  return `# version ${version}\n`.repeat(20_000);
}

/**
 * Makes a program that writes one version after the other until it is killed, and says each that it is about to
 * write.
 */
function writerProgram(dir: string): string {
  const source = new URL("../../src/config/edit-file.js", import.meta.url).href;
  const program = join(dir, "writer.js");
  writeFileSync(
    program,
    `import { readFileSync } from "node:fs";
    import { writeConfig } from ${JSON.stringify(source)};
    const textOf = ${textOf.toString()};
    const file = process.argv[2];
    for (;;) {
      const text = readFileSync(file, "utf8");
      const next = Number(/\\d+/.exec(text)[0]) + 1;
      process.stdout.write(next + "\\n");
      const result = await writeConfig(file, text, textOf(next));
      if (!result.ok) throw new Error(result.problem);
    }`,
  );
  return program;
}

/** More of it: KEYBEARER_KILL_ROUNDS=200 npm run tap -- test/config/edit-file.test.ts */
const ROUNDS = repeats("KEYBEARER_KILL_ROUNDS", 3, 40);

t.test("after kill -9 at any moment the file is the old one or the new one", async (t) => {
  const base = t.testdir({
    home: { "config.yaml": textOf(1) },
    program: { "package.json": '{ "type": "module" }' },
  });
  const program = writerProgram(join(base, "program"));
  const dir = join(base, "home");
  const file = join(dir, "config.yaml");
  chmodSync(file, 0o600);
  // Some kills have to meet a write.
  let leftovers = 0;
  let writes = 0;
  for (let round = 0; round < ROUNDS || leftovers === 0; round += 1) {
    const child = spawn(process.execPath, [program, file], { stdio: ["ignore", "pipe", "inherit"], env: {} });
    t.teardown(() => child.kill("SIGKILL"));
    let announced = 0;
    const lines = child.stdout ? createInterface(child.stdout) : null;
    lines?.on("line", (line) => {
      announced = Number(line);
      writes += 1;
    });
    if (lines) await once(lines, "line");
    await wait(Math.random() * 30);
    child.kill("SIGKILL");
    await once(child, "close");
    const text = readFileSync(file, "utf8");
    const version = Number(/\d+/.exec(text)?.[0]);
    t.equal(text === textOf(version), true, "whole");
    t.ok(version === announced || version === announced - 1, `${version} of ${announced}`);
    t.equal(modeOf(file), 0o600);
    for (const name of temporaries(dir)) {
      leftovers += 1;
      // A lock that was just taken from a dead one is a symlink with a pid for its target, and has no mode of its own.
      const isLock = lstatSync(join(dir, name)).isSymbolicLink();
      if (!isLock)
        t.equal(modeOf(join(dir, name)), 0o600, "what is left behind is readable by its owner only");
      unlinkSync(join(dir, name));
    }
  }
  t.comment(`${writes} writes, ${leftovers} of the kills left a temporary file`);
});

t.test("an edit is repeated on what another program saved meanwhile, and no save is lost", async (t) => {
  const dir = t.testdir({ "config.yaml": "" });
  const file = join(dir, "config.yaml");
  const add = (line: string) =>
    editFile(file, (text) => ({ ok: true, text: text.includes(line) ? text : `${text}${line}\n` }));
  const lines = Array.from({ length: 8 }, (_, number) => `line-${number}`);
  const edits = await Promise.all(lines.map(add));
  t.ok(edits.every((edited) => edited.ok && edited.changed));
  t.same(readFileSync(file, "utf8").trim().split("\n").sort(), lines);
  t.match(await add("line-0"), { ok: true, changed: false });
  const more = (text: string) => ({ ok: true, text: `${text}more\n` }) as const;
  const no = await editFileIfConfirmed(file, more, async () => false);
  t.equal(no, null);
  const meddled = await editFileIfConfirmed(file, more, async () => {
    writeFileSync(file, "theirs\n");
    return true;
  });
  t.match(meddled, { ok: false, problem: /changed by something else meanwhile/ });
  t.equal(readFileSync(file, "utf8"), "theirs\n", "what was agreed to was another text");
  t.match(await editFile(join(dir, "none.yaml"), (text) => ({ ok: true, text })), {
    ok: false,
    problem: /there is no .*none\.yaml/,
    next: "keybearer init",
  });
});
