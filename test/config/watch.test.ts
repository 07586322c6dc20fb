import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import {
  appendFile,
  mkdir,
  readFile,
  rename,
  rm,
  symlink,
  truncate,
  unlink,
  writeFile,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { createFileWatch, type FileWatch, type FileWatchOptions } from "../../src/config/watch/watch.ts";

const run = promisify(execFile);
/** So long that only the system's notifications can be what a test sees. */
/** A change is told within a second; a busy machine may need a little longer to run the test itself. */
const IN_TIME = 2500;
const NO_POLL = 3_600_000;

async function until(done: () => boolean, withinMs: number): Promise<boolean> {
  const end = performance.now() + withinMs;
  while (!done()) {
    if (performance.now() > end) return false;
    await wait(5);
  }
  return true;
}

interface Seen {
  readonly watch: FileWatch;
  /** What the file held at each onChange; null when it was not there. */
  readonly contents: (string | null)[];
  readonly paths: string[];
  readonly errors: string[];
}

async function watching(
  t: Test,
  files: readonly string[],
  options: Partial<FileWatchOptions> = {},
): Promise<Seen> {
  const contents: (string | null)[] = [];
  const paths: string[] = [];
  const errors: string[] = [];
  const watch = createFileWatch({
    onChange: (path) => {
      paths.push(path);
      contents.push(existsSync(path) ? readFileSync(path, "utf8") : null);
    },
    onError: (reason) => errors.push(reason),
    ...options,
  });
  t.teardown(() => watch.close());
  watch.follow(files);
  await watch.ready();
  return { watch, contents, paths, errors };
}

async function replaceAtomically(file: string, text: string): Promise<void> {
  const fresh = join(dirname(file), ".fresh");
  await writeFile(fresh, text);
  await rename(fresh, file);
}

const vimIsHere = existsSync("/usr/bin/vim") || existsSync("/usr/local/bin/vim");

function vim(backupcopy: string): (file: string, text: string) => Promise<void> {
  return async (file, text) => {
    const script = `set backupcopy=${backupcopy} | %d | call setline(1, '${text.trim()}') | wq`;
    await run("vim", ["-u", "NONE", "-i", "NONE", "-n", "-es", "-c", script, file]);
  };
}

interface Editor {
  readonly name: string;
  readonly skip?: boolean;
  save(file: string, text: string): Promise<void>;
}

const editors: readonly Editor[] = [
  { name: "in place", save: (file, text) => writeFile(file, text) },
  {
    name: "in place, in two writes",
    async save(file, text) {
      await truncate(file);
      await appendFile(file, text.slice(0, 3));
      await appendFile(file, text.slice(3));
    },
  },
  { name: "by renaming a new file over it", save: replaceAtomically },
  {
    name: "by sed -i",
    async save(file, text) {
      await run("sed", ["-i.bak", `s/.*/${text.trim()}/`, file]);
    },
  },
  {
    name: "by deleting it and writing it anew",
    async save(file, text) {
      await unlink(file);
      await writeFile(file, text);
    },
  },
  {
    name: "by moving the old one to a backup first",
    async save(file, text) {
      await rename(file, `${file}~`);
      await writeFile(file, text);
    },
  },
  { name: "by vim with backupcopy=yes", skip: !vimIsHere, save: vim("yes") },
  { name: "by vim with backupcopy=no", skip: !vimIsHere, save: vim("no") },
  { name: "by vim with backupcopy=auto", skip: !vimIsHere, save: vim("auto") },
];

for (const editor of editors) {
  for (const pollMs of [NO_POLL, 500]) {
    const how = pollMs === NO_POLL ? "by notifications alone" : "with the poll beside them";
    const skip = editor.skip ? "vim is not installed" : false;

    t.test(`every save ${editor.name} is told within a second, ${how}`, { skip }, async (t) => {
      const file = join(t.testdir({ "config.yaml": "start\n" }), "config.yaml");
      const seen = await watching(t, [file], { pollMs });
      for (const text of ["first\n", "second\n"]) {
        await editor.save(file, text);
        t.ok(await until(() => seen.contents.at(-1) === text, IN_TIME), text.trim());
      }
      t.same(seen.errors, []);
    });
  }
}

t.test("a burst of writes is told once, after it", async (t) => {
  const file = join(t.testdir({ "config.yaml": "" }), "config.yaml");
  const seen = await watching(t, [file], { settleMs: 400 });
  for (let line = 0; line < 10; line += 1) await appendFile(file, `${line}\n`);
  t.ok(await until(() => seen.contents.length > 0, 3000));
  t.same(seen.contents, ["0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"]);
});

t.test("a file that is written without an end is still told again and again", async (t) => {
  const file = join(t.testdir({ "config.yaml": "" }), "config.yaml");
  const seen = await watching(t, [file]);
  const end = performance.now() + 2500;
  let text = "";
  while (performance.now() < end) {
    text += "x";
    await writeFile(file, text);
    await wait(20);
  }
  const during = seen.contents.length;
  t.ok(during >= 3 && during <= 8, `told ${during} times in 2.5 s`);
  t.ok(await until(() => seen.contents.at(-1) === text, IN_TIME), "and its last state at the end");
});

t.test("a deleted file is told, and again when it is back", async (t) => {
  const file = join(t.testdir({ "config.yaml": "one" }), "config.yaml");
  const seen = await watching(t, [file], { pollMs: NO_POLL });
  await unlink(file);
  t.ok(await until(() => seen.contents.at(-1) === null, IN_TIME));
  await writeFile(file, "two");
  t.ok(await until(() => seen.contents.at(-1) === "two", IN_TIME));
});

t.test("a file is found again after its folders were missing for a while", async (t) => {
  const home = t.testdir({ config: { keybearer: { "config.yaml": "one" } } });
  const file = join(home, "config", "keybearer", "config.yaml");
  const seen = await watching(t, [file]);
  await rm(join(home, "config"), { recursive: true });
  t.ok(await until(() => seen.contents.at(-1) === null, IN_TIME), "gone");
  await mkdir(join(home, "config"));
  await mkdir(dirname(file));
  await writeFile(file, "two");
  t.ok(await until(() => seen.contents.at(-1) === "two", IN_TIME), "back");
  await replaceAtomically(file, "three");
  t.ok(await until(() => seen.contents.at(-1) === "three", IN_TIME), "and followed as before");
});

t.test("a file whose folder does not exist yet is told when it appears", async (t) => {
  const file = join(t.testdir({}), "a", "b", "config.yaml");
  const seen = await watching(t, [file], { pollMs: NO_POLL });
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, "one");
  t.ok(await until(() => seen.contents.at(-1) === "one", IN_TIME));
});

t.test("a folder that is swapped for another one is followed under its name", async (t) => {
  const home = t.testdir({ keybearer: { "config.yaml": "old" }, next: { "config.yaml": "new" } });
  const file = join(home, "keybearer", "config.yaml");
  const seen = await watching(t, [file]);
  await rename(join(home, "keybearer"), join(home, "away"));
  await rename(join(home, "next"), join(home, "keybearer"));
  t.ok(await until(() => seen.contents.at(-1) === "new", IN_TIME), "the swap");
  await writeFile(file, "newer");
  t.ok(await until(() => seen.contents.at(-1) === "newer", IN_TIME), "a save in the new folder");
});

t.test("a symlink that is pointed elsewhere is told", async (t) => {
  const dir = t.testdir({ one: "one", two: "two", "config.yaml": t.fixture("symlink", "one") });
  const file = join(dir, "config.yaml");
  const seen = await watching(t, [file]);
  await unlink(file);
  await symlink("two", file);
  t.ok(await until(() => seen.contents.at(-1) === "two", 3000), "deleted and made anew");
  await symlink("one", join(dir, "fresh"));
  await rename(join(dir, "fresh"), file);
  t.ok(await until(() => seen.contents.at(-1) === "one", 3000), "replaced");
});

for (const pollMs of [NO_POLL, 500]) {
  const how = pollMs === NO_POLL ? "by notifications alone" : "with the poll beside them";
  t.test(`a symlink's target may be saved in its own folder, ${how}`, async (t) => {
    const dir = t.testdir({
      dotfiles: { "keybearer.yaml": "zero" },
      home: { "config.yaml": t.fixture("symlink", "../dotfiles/keybearer.yaml") },
    });
    const target = join(dir, "dotfiles", "keybearer.yaml");
    const seen = await watching(t, [join(dir, "home", "config.yaml")], { pollMs });
    await replaceAtomically(target, "one");
    t.ok(await until(() => seen.contents.at(-1) === "one", 3000), "atomically");
    await replaceAtomically(target, "two");
    t.ok(await until(() => seen.contents.at(-1) === "two", 3000), "atomically once more");
    await writeFile(target, "three");
    t.ok(await until(() => seen.contents.at(-1) === "three", 3000), "in place");
  });
}

t.test("every link of a chain counts, in the names of folders too", async (t) => {
  const dir = t.testdir({
    "release-1": { "config.yaml": "one" },
    "release-2": { "config.yaml": "two" },
    current: t.fixture("symlink", "release-1"),
    middle: { link: t.fixture("symlink", "../current/config.yaml") },
    home: { "config.yaml": t.fixture("symlink", "../middle/link") },
  });
  const seen = await watching(t, [join(dir, "home", "config.yaml")]);
  await symlink("release-2", join(dir, "fresh"));
  await rename(join(dir, "fresh"), join(dir, "current"));
  t.ok(await until(() => seen.contents.at(-1) === "two", 3000), "the folder's link");
  await replaceAtomically(join(dir, "release-2", "config.yaml"), "three");
  t.ok(await until(() => seen.contents.at(-1) === "three", 3000), "the file at the end");
  await writeFile(join(dir, "own.yaml"), "four");
  await rm(join(dir, "middle", "link"));
  await symlink(join(dir, "own.yaml"), join(dir, "middle", "link"));
  t.ok(await until(() => seen.contents.at(-1) === "four", 3000), "the link between");
});

t.test("a link that leads nowhere, or round in a circle, is followed until it leads somewhere", async (t) => {
  const dir = t.testdir({
    "config.yaml": t.fixture("symlink", "not-yet"),
    round: t.fixture("symlink", "about"),
    about: t.fixture("symlink", "round"),
  });
  const files = [join(dir, "config.yaml"), join(dir, "round")];
  const seen = await watching(t, files);
  await writeFile(join(dir, "not-yet"), "here");
  t.ok(await until(() => seen.contents.at(-1) === "here", 3000));
  await replaceAtomically(join(dir, "about"), "straight");
  t.ok(await until(() => seen.contents.at(-1) === "straight", 3000));
  t.same(seen.paths, files);
});

t.test("other files of the folder, a thousand of them, do not matter", async (t) => {
  const others = Object.fromEntries(Array.from({ length: 1000 }, (_, at) => [`other-${at}`, "x"]));
  const dir = t.testdir({ ...others, "config.yaml": "one", "last.key": "one", sub: { "config.yaml": "x" } });
  const [file, last] = [join(dir, "config.yaml"), join(dir, "last.key")];
  const seen = await watching(t, [file, last]);
  for (let at = 0; at < 1000; at += 1) await writeFile(join(dir, `other-${at}`), "y");
  await writeFile(join(dir, "sub", "config.yaml"), "y");
  await readFile(file);
  await replaceAtomically(last, "two");
  t.ok(await until(() => seen.paths.length > 0, IN_TIME), "the followed one is told in time");
  t.same(seen.paths, [last], "and none else");
});

t.test("a file that is no longer followed is not told, and the others are as before", async (t) => {
  const dir = t.testdir({ "a.key": "1", "b.key": "1", "c.key": "1" });
  const [a, b, c] = [join(dir, "a.key"), join(dir, "b.key"), join(dir, "c.key")];
  const seen = await watching(t, [a, b]);
  seen.watch.follow([b, c]);
  seen.watch.follow([c, b]);
  await seen.watch.ready();
  for (const file of [a, b, c]) await writeFile(file, "22");
  t.ok(await until(() => seen.paths.length >= 2, IN_TIME));
  t.same([...seen.paths].sort(), [b, c]);
});

t.test("a change that comes while another set is being followed is not lost", async (t) => {
  const dir = t.testdir({ "a.key": "1", "b.key": "1" });
  const [a, b] = [join(dir, "a.key"), join(dir, "b.key")];
  const seen = await watching(t, [a]);
  await writeFile(a, "22");
  seen.watch.follow([a, b]);
  t.ok(await until(() => seen.paths.includes(a), IN_TIME));
});

t.test("nothing is told after close, and ready does not wait for ever", async (t) => {
  const file = join(t.testdir({ "config.yaml": "one" }), "config.yaml");
  const closed = await watching(t, [file]);
  const witness = await watching(t, [file]);
  await writeFile(file, "two!");
  await closed.watch.close();
  t.ok(await until(() => witness.paths.length === 1, IN_TIME));
  t.same(closed.paths, []);
  await closed.watch.close();
  closed.watch.follow([file]);
  await closed.watch.ready();
  const early = createFileWatch({ onChange: () => {} });
  early.follow([file]);
  const ready = early.ready();
  await early.close();
  await ready;
});

/** A process of its own, because what is tested is what it does to a process. */
function child(t: Test, script: string, ...args: string[]): ChildProcess {
  const source = new URL("../../src/config/watch/watch.ts", import.meta.url).href;
  const code = `import { createFileWatch } from ${JSON.stringify(source)};\n${script}`;
  const flags = [...process.execArgv, "--input-type=module", "-e", code, ...args];
  const started = spawn(process.execPath, flags, { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => started.kill("SIGKILL"));
  return started;
}

t.test("a closed watch lets the process end", async (t) => {
  const file = join(t.testdir({ "config.yaml": "one" }), "config.yaml");
  const script = `
    const watch = createFileWatch({ onChange: () => {} });
    watch.follow([process.argv[1]]);
    await watch.ready();
    await watch.close();`;
  const [code] = await once(child(t, script, file), "exit");
  t.equal(code, 0);
});

t.test("without descriptors for notifications the poll goes on alone, and it is said once", async (t) => {
  const dir = t.testdir({ a: { "config.yaml": "one" }, b: { "tool.key": "one" } });
  const files = [join(dir, "a", "config.yaml"), join(dir, "b", "tool.key")];
  const script = `
    import { openSync } from "node:fs";
    const say = (line) => process.stdout.write(line + "\\n");
    say("started");
    try { for (;;) openSync("/dev/null", "r"); } catch (error) { if (error.code !== "EMFILE") throw error; }
    const watch = createFileWatch({ pollMs: 200, onChange: (path) => say(path), onError: (reason) => say(reason) });
    watch.follow(process.argv.slice(1));
    await watch.ready();
    say("ready");`;
  const lines: string[] = [];
  const started = child(t, script, ...files);
  if (started.stdout) createInterface(started.stdout).on("line", (line) => lines.push(line));
  t.ok(await until(() => lines.includes("ready"), 20_000));
  t.match(lines[1], /^the system refuses file notifications \(EMFILE\)/);
  for (const [round, file] of [...files, ...files].entries()) {
    await replaceAtomically(file, `round ${round}`);
    t.ok(await until(() => lines.length === 4 + round, 3000), `save ${round} is told`);
    t.equal(lines.at(-1), file);
  }
  t.equal(started.exitCode, null, "and the process lives");
});
