import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
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
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { FileWatch } from "../../src/config/watch.ts";
import { createTicker, type Ticker } from "../../src/core/ticker.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

const run = promisify(execFile);
/** Without it only the system's notifications can be what a test sees. */
const NO_POLL: Ticker = { every: () => () => {} };

interface Seen {
  readonly watch: FileWatch;
  /** What the file held at each onChange; null when it was not there. */
  readonly contents: (string | null)[];
  readonly paths: string[];
  readonly errors: string[];
}

/** On a slow machine a change may be reported more than once: who hears of it compares the content. */
function distinct<T>(reported: readonly T[]): T[] {
  return [...new Set(reported)];
}

async function watching(
  t: Test,
  files: readonly string[],
  ticker: Ticker = createTicker(500),
): Promise<Seen> {
  const contents: (string | null)[] = [];
  const paths: string[] = [];
  const errors: string[] = [];
  const watch = new FileWatch({
    ticker,
    log: {
      warn: (message: string) => errors.push(message),
      error: (problem: object) => t.fail(String(problem)),
    },
    onChange: (path) => {
      paths.push(path);
      contents.push(existsSync(path) ? readFileSync(path, "utf8") : null);
    },
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

const VIM = ["/usr/bin/vim", "/usr/local/bin/vim"].find((path) => existsSync(path));

function vim(backupcopy: string): (file: string, text: string) => Promise<void> {
  return async (file, text) => {
    const script = `set backupcopy=${backupcopy} | %d | call setline(1, '${text.trim()}') | wq`;
    await run(VIM ?? "vim", ["-u", "NONE", "-i", "NONE", "-n", "-es", "-c", script, file]);
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
    name: "by deleting it and writing it again",
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
  { name: "by vim with backupcopy=yes", skip: VIM === undefined, save: vim("yes") },
  { name: "by vim with backupcopy=no", skip: VIM === undefined, save: vim("no") },
  { name: "by vim with backupcopy=auto", skip: VIM === undefined, save: vim("auto") },
];

t.test("every save of an editor is reported", async (t) => {
  // Each waits most of the time.
  t.jobs = 2 * editors.length;
  for (const editor of editors) {
    const skip = editor.skip ? "vim is not installed" : false;
    for (const ticker of [NO_POLL, createTicker(500)]) {
      const how = ticker === NO_POLL ? "by notifications alone" : "with the poll beside them";
      t.test(`${editor.name} is noticed ${how}`, { skip, buffered: true }, async (t) => {
        const file = join(t.testdir({ "config.yaml": "start\n" }), "config.yaml");
        const seen = await watching(t, [file], ticker);
        for (const text of ["first\n", "second\n"]) {
          await editor.save(file, text);
          await until(`${text.trim()} is reported`, () => seen.contents.at(-1) === text);
        }
        t.same(seen.errors, []);
      });
    }
  }
});

t.test("a burst of writes is reported after it, never in the middle", async (t) => {
  const file = join(t.testdir({ "config.yaml": "" }), "config.yaml");
  const seen = await watching(t, [file]);
  // Without a turn of the event loop in between, for the watch lives in the same one.
  for (let line = 0; line < 10; line += 1) appendFileSync(file, `${line}\n`);
  await until("the burst is reported", () => seen.contents.length > 0);
  await replaceAtomically(file, "next");
  await until("so is what comes after it", () => seen.contents.at(-1) === "next");
  t.same(distinct(seen.contents), ["0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", "next"]);
});

t.test("a file that is written without an end is still reported again and again", async (t) => {
  const file = join(t.testdir({ "config.yaml": "" }), "config.yaml");
  const seen = await watching(t, [file]);
  let text = "";
  // Every 10 ms, so that it hardly ever rests for long enough.
  await until("it is reported while it is written", async () => {
    text += "x";
    await writeFile(file, text);
    return seen.contents.length >= 3;
  });
  await until("its last state is reported at the end", () => seen.contents.at(-1) === text);
});

t.test("a deleted file is reported, and again when it is back", async (t) => {
  const file = join(t.testdir({ "config.yaml": "one" }), "config.yaml");
  const seen = await watching(t, [file]);
  await unlink(file);
  await until("the change is reported", () => seen.contents.at(-1) === null);
  await writeFile(file, "two");
  await until("the change is reported", () => seen.contents.at(-1) === "two");
});

t.test("a file is found again after its folders were missing for a while", async (t) => {
  const home = t.testdir({ config: { keybearer: { "config.yaml": "one" } } });
  const file = join(home, "config", "keybearer", "config.yaml");
  const seen = await watching(t, [file]);
  await rm(join(home, "config"), { recursive: true });
  await until("gone", () => seen.contents.at(-1) === null);
  await mkdir(join(home, "config"));
  await mkdir(dirname(file));
  await writeFile(file, "two");
  await until("back", () => seen.contents.at(-1) === "two");
  await replaceAtomically(file, "three");
  await until("and followed as before", () => seen.contents.at(-1) === "three");
});

t.test("a file whose folder does not exist yet is reported when it appears", async (t) => {
  const file = join(t.testdir({}), "a", "b", "config.yaml");
  const seen = await watching(t, [file]);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, "one");
  await until("the change is reported", () => seen.contents.at(-1) === "one");
});

t.test("a folder that is swapped for another one is followed under its name", async (t) => {
  const home = t.testdir({ keybearer: { "config.yaml": "old" }, next: { "config.yaml": "new" } });
  const file = join(home, "keybearer", "config.yaml");
  const seen = await watching(t, [file]);
  await rename(join(home, "keybearer"), join(home, "away"));
  await rename(join(home, "next"), join(home, "keybearer"));
  await until("the swap", () => seen.contents.at(-1) === "new");
  await writeFile(file, "newer");
  await until("a save in the new folder", () => seen.contents.at(-1) === "newer");
});

t.test("a symlink that is pointed elsewhere is reported", async (t) => {
  const dir = t.testdir({ one: "one", two: "two", "config.yaml": t.fixture("symlink", "one") });
  const file = join(dir, "config.yaml");
  const seen = await watching(t, [file]);
  await unlink(file);
  await symlink("two", file);
  await until("deleted and created again", () => seen.contents.at(-1) === "two");
  await symlink("one", join(dir, "fresh"));
  await rename(join(dir, "fresh"), file);
  await until("replaced", () => seen.contents.at(-1) === "one");
});

t.test("a link that becomes a file, and a file that becomes a link, is followed", async (t) => {
  const dir = t.testdir({ target: "one", "config.yaml": t.fixture("symlink", "target") });
  const file = join(dir, "config.yaml");
  const seen = await watching(t, [file]);
  await replaceAtomically(file, "two");
  await until("the file in the link's place", () => seen.contents.at(-1) === "two");
  await writeFile(file, "three");
  await until("a save of that file", () => seen.contents.at(-1) === "three");
  await symlink("target", join(dir, "fresh"));
  await rename(join(dir, "fresh"), file);
  await until("the link in the file's place", () => seen.contents.at(-1) === "one");
});

for (const ticker of [NO_POLL, createTicker(500)]) {
  const how = ticker === NO_POLL ? "by notifications alone" : "with the poll beside them";
  t.test(`a symlink's target may be saved in its own folder, ${how}`, async (t) => {
    const dir = t.testdir({
      dotfiles: { "keybearer.yaml": "zero" },
      home: { "config.yaml": t.fixture("symlink", "../dotfiles/keybearer.yaml") },
    });
    const target = join(dir, "dotfiles", "keybearer.yaml");
    const seen = await watching(t, [join(dir, "home", "config.yaml")], ticker);
    await replaceAtomically(target, "one");
    await until("atomically", () => seen.contents.at(-1) === "one");
    await replaceAtomically(target, "two");
    await until("atomically once more", () => seen.contents.at(-1) === "two");
    await writeFile(target, "three");
    await until("in place", () => seen.contents.at(-1) === "three");
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
  await until("the folder's link", () => seen.contents.at(-1) === "two");
  await replaceAtomically(join(dir, "release-2", "config.yaml"), "three");
  await until("the file at the end", () => seen.contents.at(-1) === "three");
  await writeFile(join(dir, "own.yaml"), "four");
  await rm(join(dir, "middle", "link"));
  await symlink(join(dir, "own.yaml"), join(dir, "middle", "link"));
  await until("the link between", () => seen.contents.at(-1) === "four");
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
  await until("the change is reported", () => seen.contents.at(-1) === "here");
  await replaceAtomically(join(dir, "about"), "straight");
  await until("the change is reported", () => seen.contents.at(-1) === "straight");
  t.same(distinct(seen.paths), files);
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
  await until("the followed one is reported", () => seen.paths.length > 0);
  t.same(distinct(seen.paths), [last], "and none else");
});

t.test("a file that is no longer followed is not reported, and the others are as before", async (t) => {
  const dir = t.testdir({ "a.key": "1", "b.key": "1", "c.key": "1" });
  const [a, b, c] = [join(dir, "a.key"), join(dir, "b.key"), join(dir, "c.key")];
  const seen = await watching(t, [a, b]);
  seen.watch.follow([b, c]);
  seen.watch.follow([c, b]);
  await seen.watch.ready();
  for (const file of [a, b, c]) await writeFile(file, "22");
  await until("the change is reported", () => [b, c].every((path) => seen.paths.includes(path)));
  t.same(distinct(seen.paths).sort(), [b, c]);
});

t.test("a change that comes while another set is being followed is not lost", async (t) => {
  const dir = t.testdir({ "a.key": "1", "b.key": "1" });
  const [a, b] = [join(dir, "a.key"), join(dir, "b.key")];
  const seen = await watching(t, [a]);
  await writeFile(a, "22");
  seen.watch.follow([a, b]);
  await until("the change is reported", () => seen.paths.includes(a));
});

t.test("nothing is reported after close, and ready ends", async (t) => {
  const file = join(t.testdir({ "config.yaml": "one" }), "config.yaml");
  const closed = await watching(t, [file]);
  const witness = await watching(t, [file]);
  await writeFile(file, "two!");
  await closed.watch.close();
  await until("the change is reported", () => witness.paths.length === 1);
  t.same(closed.paths, []);
  await closed.watch.close();
  closed.watch.follow([file]);
  await closed.watch.ready();
  const early = new FileWatch({ ticker: NO_POLL, log: console, onChange: () => {} });
  early.follow([file]);
  const ready = early.ready();
  await early.close();
  await ready;
});

/** A process of its own, because what is tested is what it does to a process. */
function child(t: Test, script: string, ...args: string[]): ChildProcess {
  const source = new URL("../../src/config/watch.js", import.meta.url).href;
  const code = `import { FileWatch } from ${JSON.stringify(source)};\n${script}`;
  const flags = ["--input-type=module", "-e", code, ...args];
  const started = spawn(process.execPath, flags, { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => started.kill("SIGKILL"));
  return started;
}

t.test("a closed watch lets the process end", async (t) => {
  const file = join(t.testdir({ "config.yaml": "one" }), "config.yaml");
  const script = `
    const watch = new FileWatch({ ticker: { every: () => () => {} }, log: console, onChange: () => {} });
    watch.follow([process.argv[1]]);
    await watch.ready();
    await watch.close();`;
  const [code] = await once(child(t, script, file), "exit");
  t.equal(code, 0);
});

t.test(
  "without descriptors for notifications only the poll continues, and one warning is logged",
  async (t) => {
    const dir = t.testdir({ a: { "config.yaml": "one" }, b: { "tool.key": "one" } });
    const files = [join(dir, "a", "config.yaml"), join(dir, "b", "tool.key")];
    const script = `
    import { openSync } from "node:fs";
    const say = (line) => process.stdout.write(line + "\\n");
    say("started");
    try { for (;;) openSync("/dev/null", "r"); } catch (error) { if (error.code !== "EMFILE") throw error; }
    const ticker = { every: (_, work) => { const timer = setInterval(work, 200); return () => clearInterval(timer); } };
    const watch = new FileWatch({ ticker, log: { warn: say, error: say }, onChange: say });
    watch.follow(process.argv.slice(1));
    await watch.ready();
    say("ready");`;
    const lines: string[] = [];
    const started = child(t, script, ...files);
    if (started.stdout) createInterface(started.stdout).on("line", (line) => lines.push(line));
    await until("it is ready", () => lines.includes("ready"));
    t.match(lines[1], /^the system refuses file notifications \(EMFILE\)/);
    for (const [round, file] of [...files, ...files].entries()) {
      await replaceAtomically(file, `round ${round}`);
      await until(`save ${round} is reported`, () => lines.length === 4 + round);
      t.equal(lines.at(-1), file);
    }
    t.equal(started.exitCode, null, "and the process lives");
  },
);
