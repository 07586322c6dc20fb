import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, chown, mkdir, mkdtemp, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { StreamSearch } from "../../src/adopt/stream-search.ts";
import { findTraces, type TraceDeps, type TraceReport } from "../../src/adopt/traces.ts";
import { systemClock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { OTHER_USER } from "../doubles/other-user.ts";
import { canary, oddCanary, wholeKeyForms } from "../doubles/secret-scan.ts";

const KEY = canary();
const OTHER = canary();
const [TAIL, OTHER_TAIL] = [KEY, OTHER].map((key) => `…${key.slice(-4)}`);

async function homeWith(t: Test, files: Readonly<Record<string, string | Buffer>>): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), "kb-traces-"));
  t.teardown(() => rm(home, { recursive: true, force: true }));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(home, path)), { recursive: true });
    await writeFile(join(home, path), text);
  }
  return home;
}

async function search(t: Test, home: string, more: Partial<TraceDeps> = {}): Promise<TraceReport> {
  const report = await findTraces([new Secret(KEY), new Secret(OTHER)], {
    env: { PATH: process.env.PATH },
    home,
    cwd: home,
    platform: "linux",
    files: [],
    clock: systemClock,
    ...more,
  });
  const text = JSON.stringify(report);
  for (const key of [KEY, OTHER]) t.notOk(new Secret(key).isIn(text), "no part of a key is reported");
  return report;
}

/** Each trace as `where: keys`. */
function lines({ traces }: TraceReport): string[] {
  return traces.map(({ where, keys }) => `${where}: ${keys.join(" ")}`);
}

function skipped({ unsearched }: TraceReport): string[] {
  return unsearched.map(({ where, problem }) => `${where}: ${problem}`);
}

t.test("a home folder without a copy has no trace, and nothing is left out", async (t) => {
  const home = await homeWith(t, { ".bash_history": "ls\n", ".claude/projects/a/b.jsonl": "{}\n" });
  t.same(await search(t, home), { traces: [], unsearched: [] });
  t.same(await findTraces([], { ...({} as TraceDeps) }), { traces: [], unsearched: [] });
});

t.test("histories of shells and of other programs are searched", async (t) => {
  const home = await homeWith(t, {
    ".bash_history": `ls\nexport ANTHROPIC_AUTH_TOKEN=${KEY}\n#1700000000\n`,
    ".zsh_history": `: 1700000000:0;curl -H "x-api-key: ${OTHER}" \\\n  https://x\n`,
    "zsh/.zsh_history": `: 1700000000:0;echo ${KEY}\n`,
    ".local/share/fish/fish_history": `- cmd: set -gx OPENAI_API_KEY ${KEY}\n  when: 1700000000\n`,
    ".local/share/fish/other_history": `- cmd: echo ${OTHER}\n`,
    ".local/share/fish/completions.fish": KEY,
    ".python_history": `client = OpenAI(api_key="${KEY}")\n`,
    ".node_repl_history": `process.env.X = '${KEY}'\n`,
    "own/history": `export X=${KEY}\n`,
    ".viminfo": `"a LINE\n|3,1,${KEY}\n`,
  });
  const env = { PATH: process.env.PATH, HISTFILE: join(home, "own/history"), ZDOTDIR: join(home, "zsh") };
  const report = await search(t, home, { env });
  t.same(lines(report).toSorted(), [
    `~/.bash_history: ${TAIL}`,
    `~/.local/share/fish/fish_history: ${TAIL}`,
    `~/.local/share/fish/other_history: ${OTHER_TAIL}`,
    `~/.node_repl_history: ${TAIL}`,
    `~/.python_history: ${TAIL}`,
    `~/.viminfo: ${TAIL}`,
    `~/.zsh_history: ${OTHER_TAIL}`,
    `~/own/history: ${TAIL}`,
    `~/zsh/.zsh_history: ${TAIL}`,
  ]);
  t.ok(report.traces.every(({ kind, count }) => kind === "history" && count === 1));
  t.same(report.unsearched, []);
});

t.test("session logs are counted for each client, with the keys of all of them", async (t) => {
  const line = (key: string) => `${JSON.stringify({ type: "user", text: `my key is "${key}"` })}\n`;
  const home = await homeWith(t, {
    ".claude/projects/-work-app/1.jsonl": line(KEY),
    ".claude/projects/-work-app/2.jsonl": line("nothing"),
    ".claude/projects/-work-app/3/tool-results/a.txt": line(OTHER),
    ".claude/history.jsonl": line(KEY),
    ".claude/settings.json": line(KEY),
    ".codex/sessions/2026/11/18/rollout.jsonl": line(OTHER),
    ".codex/history.jsonl": line(OTHER),
    ".codex/auth.json": line(KEY),
    ".local/share/opencode/storage/part/x/y.json": line(KEY),
    ".local/share/opencode/opencode.db": Buffer.concat([randomBytes(5000), Buffer.from(line(KEY))]),
    ".local/share/opencode/auth.json": line(KEY),
    ".pi/agent/sessions/x.jsonl": line(KEY),
  });
  const report = await search(t, home);
  t.same(lines(report), [
    `~/.claude/history.jsonl: ${TAIL}`,
    `~/.codex/history.jsonl: ${OTHER_TAIL}`,
    `2 session logs of Claude Code: ${TAIL} ${OTHER_TAIL}`,
    `1 session log of Codex: ${OTHER_TAIL}`,
    `1 session log of opencode: ${TAIL}`,
    `~/.local/share/opencode/opencode.db: ${TAIL}`,
    `1 session log of pi: ${TAIL}`,
  ]);
  t.equal(report.traces.find(({ where }) => where.includes("Claude Code"))?.count, 2);
});

t.test("the folders that variables name are searched instead of the usual ones", async (t) => {
  const home = await homeWith(t, {
    "c/projects/a.jsonl": KEY,
    "x/sessions/a.jsonl": KEY,
    "d/opencode/storage/a.json": KEY,
    ".claude/projects/a.jsonl": OTHER,
  });
  const env = {
    PATH: process.env.PATH,
    CLAUDE_CONFIG_DIR: join(home, "c"),
    CODEX_HOME: join(home, "x"),
    XDG_DATA_HOME: join(home, "d"),
  };
  t.same(lines(await search(t, home, { env })), [
    `1 session log of Claude Code: ${TAIL}`,
    `1 session log of Codex: ${TAIL}`,
    `1 session log of opencode: ${TAIL}`,
  ]);
});

t.test(
  "cc-switch's database and backups are searched byte by byte, also where a page cuts a key",
  async (t) => {
    const page = (text: string) => Buffer.concat([randomBytes(4096 - text.length), Buffer.from(text)]);
    const cut = Buffer.concat([
      page(`{"token":"${KEY.slice(0, 22)}`),
      randomBytes(4),
      Buffer.from(KEY.slice(22)),
    ]);
    const home = await homeWith(t, {
      ".cc-switch/cc-switch.db": cut,
      ".cc-switch/cc-switch.db-wal": randomBytes(9000),
      ".cc-switch/backups/env-backup-1.json": `[{"value":"${OTHER}"}]`,
    });
    const report = await search(t, home);
    t.same(lines(report).toSorted(), [
      `~/.cc-switch/backups/env-backup-1.json: ${OTHER_TAIL}`,
      `~/.cc-switch/cc-switch.db: ${TAIL}`,
    ]);
    t.same(
      report.traces.map(({ kind }) => kind),
      ["switcher", "switcher"],
    );
  },
);

t.test(
  "copies that editors and people leave beside a settings file are found, and no other file",
  async (t) => {
    const copies = [
      ".zshrc~",
      ".zshrc.bak",
      ".zshrc.swp",
      ".config/app/settings.json.orig",
      ".config/app/settings.json.save",
      ".config/app/.settings.json.swp",
      ".config/app/#settings.json#",
      ".config/app/settings.json.~3~",
      ".config/app/settings.json.backup-2026-11-18",
      ".config/app/settings.json.20261118",
      ".config/app/SETTINGS.JSON.BAK",
    ];
    const others = [
      ".zshrc",
      ".zshrc-work",
      ".config/app/settings.json",
      ".config/app/mysettings.json.bak",
      ".config/app/settingsXjson.bak",
      ".config/app/deeper/settings.json.bak",
    ];
    const home = await homeWith(t, Object.fromEntries([...copies, ...others].map((path) => [path, KEY])));
    await mkdir(join(home, ".zshrc.old"));
    const files = [".zshrc", ".config/app/settings.json"].map((path) => join(home, path));
    const report = await search(t, home, { files });
    t.same(lines(report).toSorted(), copies.map((path) => `~/${path}: ${TAIL}`).toSorted());
    t.ok(report.traces.every(({ kind }) => kind === "backup"));
  },
);

t.test("the local history of VS Code is searched, on a Mac in its own folder", async (t) => {
  const home = await homeWith(t, {
    ".config/Code/User/History/-1a2b/x.json": KEY,
    ".config/Code/User/History/-1a2b/y.json": KEY,
    "Library/Application Support/Cursor/User/History/1/z": OTHER,
  });
  t.same(lines(await search(t, home)), [`2 files in the local history of VS Code: ${TAIL}`]);
  t.same(lines(await search(t, home, { platform: "darwin" })), [
    `1 file in the local history of Cursor: ${OTHER_TAIL}`,
  ]);
});

t.test("a file that has two names counts once, and a settings file never", async (t) => {
  const home = await homeWith(t, { "dot/history": KEY, "dot/settings": KEY });
  await symlink("dot/history", join(home, ".bash_history"));
  await symlink("dot/history", join(home, ".zsh_history"));
  await symlink("dot/settings", join(home, ".histfile"));
  const report = await search(t, home, { files: [join(home, ".histfile")] });
  t.same(lines(report), [`~/.bash_history: ${TAIL}`]);
});

t.test("links out of home, pipes, other users' and unreadable files are named and not opened", async (t) => {
  const away = await homeWith(t, { secret: KEY, "logs/a.jsonl": KEY });
  const home = await homeWith(t, { ".claude/projects/ok.jsonl": KEY, ".zsh_history": KEY });
  await symlink(join(away, "secret"), join(home, ".bash_history"));
  await symlink(join(away, "logs"), join(home, ".claude/projects/far"));
  await mkdir(join(home, ".codex"));
  await symlink(join(away, "logs"), join(home, ".codex/sessions"));
  await symlink("loop", join(home, "loop"));
  await symlink("loop", join(home, ".histfile"));
  execFileSync("mkfifo", [join(home, ".python_history")]);
  const isRoot = process.getuid?.() === 0;
  if (isRoot) await chown(join(home, ".zsh_history"), OTHER_USER, OTHER_USER);
  else await chmod(join(home, ".zsh_history"), 0);
  const report = await search(t, home);
  t.same(lines(report), [`1 session log of Claude Code: ${TAIL}`]);
  t.same(skipped(report), [
    "~/.bash_history: a link out of the home folder",
    isRoot ? "~/.zsh_history: another user's" : "~/.zsh_history: not readable",
    "~/.histfile: not readable (ELOOP)",
    "~/.python_history: not a regular file",
    "1 session log of Claude Code: a link out of the home folder",
    "~/.codex/sessions: a link out of the home folder",
  ]);
});

t.test("a link inside the home folder is followed, and one that leads in a circle ends", async (t) => {
  const home = await homeWith(t, { "dot/claude/projects/a/b.jsonl": KEY });
  await symlink("dot/claude", join(home, ".claude"));
  await symlink("..", join(home, "dot/claude/projects/a/up"));
  t.same(await search(t, home), {
    traces: [{ where: "1 session log of Claude Code", kind: "session", keys: [TAIL], count: 1 }],
    unsearched: [],
  });
});

t.test("a project outside the home folder is searched, but for links", async (t) => {
  const project = await homeWith(t, { ".env": KEY, ".env.bak": KEY, elsewhere: KEY });
  await symlink("elsewhere", join(project, ".env.old"));
  const home = await homeWith(t, {});
  const report = await search(t, home, { cwd: project, files: [join(project, ".env")] });
  t.same(lines(report), [`${project}/.env.bak: ${TAIL}`]);
  t.same(skipped(report), [`${project}/.env.old: a link out of the home folder`]);
});

t.test("a key in the name of a file is not shown", async (t) => {
  const home = await homeWith(t, { "settings.json": KEY });
  await writeFile(join(home, `settings.json.bak-${KEY}-\u001b[2J`), KEY);
  const report = await search(t, home, { files: [join(home, "settings.json")] });
  t.same(lines(report), [`~/settings.json.bak-[redacted]-\\u{1b}[2J: ${TAIL}`]);
});

t.test("a key is found wherever the border of two chunks falls, in every form", async (t) => {
  const other = new Secret(OTHER);
  for (const value of [KEY, oddCanary(), "Hq2WcYt6"]) {
    const key = new Secret(value);
    for (const [name, form] of [["plain", value] as const, ...wholeKeyForms(value)]) {
      const bytes = Buffer.from(`${"x, ".repeat(20)}${form}${" .".repeat(20)}`);
      const missed = [];
      for (let at = 1; at < bytes.length; at += 1) {
        const search = new StreamSearch([key, other]);
        // The memory of a chunk is used again.
        const chunk = Buffer.alloc(bytes.length);
        search.add(chunk.subarray(0, bytes.copy(chunk, 0, 0, at)));
        search.add(chunk.subarray(0, bytes.copy(chunk, 0, at)));
        if (search.found.length !== 1 || search.isComplete) missed.push(at);
      }
      t.same(missed, [], name);
    }
  }
});

t.test("a key is found in chunks of every size, and in a file of several megabytes", async (t) => {
  const bytes = Buffer.concat([Buffer.alloc(20_000, "ab "), Buffer.from(KEY), Buffer.alloc(20_000, "cd ")]);
  for (const size of [1, 7, 1000, 8191, 8192, 8193]) {
    const search = new StreamSearch([new Secret(KEY)]);
    for (let at = 0; at < bytes.length; at += size) search.add(bytes.subarray(at, at + size));
    t.equal(search.isComplete, true, `${size} bytes`);
  }
  const megabyte = 1024 * 1024;
  const home = await homeWith(t, {
    ".bash_history": Buffer.concat([Buffer.alloc(megabyte - 20, "ls\n"), Buffer.from(KEY)]),
    ".zsh_history": Buffer.concat([Buffer.alloc(3 * megabyte + 5, "ls\n"), Buffer.from(OTHER)]),
  });
  t.same(lines(await search(t, home)), [`~/.bash_history: ${TAIL}`, `~/.zsh_history: ${OTHER_TAIL}`]);
});

t.test("limits end the search, and what is left is said", async (t) => {
  const home = await homeWith(t, {
    ".bash_history": KEY,
    ".claude/projects/a.jsonl": KEY,
    ".claude/projects/b.jsonl": KEY,
    ".codex/sessions/large.jsonl": "",
    ".codex/sessions/small.jsonl": OTHER,
  });
  await truncate(join(home, ".codex/sessions/large.jsonl"), 1024 ** 4);
  const report = await search(t, home);
  t.same(lines(report), [
    `~/.bash_history: ${TAIL}`,
    `2 session logs of Claude Code: ${TAIL}`,
    `1 session log of Codex: ${OTHER_TAIL}`,
  ]);
  t.same(skipped(report), ["1 session log of Codex: too large"]);

  const few = await search(t, home, { limits: { bytes: KEY.length } });
  t.same(lines(few), [`~/.bash_history: ${TAIL}`]);
  t.same(skipped(few), ["2 session logs of Claude Code: too large", "2 session logs of Codex: too large"]);

  const many = await search(t, home, { limits: { files: 0 } });
  t.same(lines(many), [`~/.bash_history: ${TAIL}`]);
  t.same(skipped(many), [
    "copies of ~/.claude.json: too many files",
    "~/.claude/projects: too many files",
    "~/.codex/sessions: too many files",
  ]);

  const clock = movableClock();
  const late = await search(t, home, { clock, limits: { ms: -1 } });
  t.same(lines(late), []);
  t.same(
    skipped(late),
    ["~/.bash_history", "copies of ~/.claude.json", "~/.claude/projects", "~/.codex/sessions"].map(
      (where) => `${where}: the search took too long`,
    ),
  );
});

// Git.

function git(cwd: string, ...args: readonly string[]): void {
  execFileSync("git", ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "gc.auto=0", ...args], {
    cwd,
    stdio: "ignore",
    env: { PATH: process.env.PATH, HOME: cwd, GIT_CONFIG_NOSYSTEM: "1" },
  });
}

function gitOutput(cwd: string, ...args: readonly string[]): string {
  return execFileSync("git", args, { cwd, encoding: "utf8" }).trim();
}

/** A repository whose `.env` was committed and removed again. */
async function repository(t: Test, key = KEY): Promise<{ readonly home: string; readonly root: string }> {
  const home = await homeWith(t, { "app/.env": `OPENAI_API_KEY=${key}\n`, "app/src/main.js": "x\n" });
  const root = join(home, "app");
  git(root, "init", "-q", "-b", "main");
  git(root, "add", ".");
  git(root, "commit", "-q", "-m", "first");
  git(root, "rm", "-q", "--cached", ".env");
  git(root, "commit", "-q", "-m", "second");
  await rm(join(root, ".env"));
  return { home, root };
}

t.test("a key that was committed is found, also after the file was removed", async (t) => {
  const { home, root } = await repository(t);
  const expected = {
    traces: [{ where: "the git history of ~/app", kind: "git", keys: [TAIL], count: 1 }],
    unsearched: [],
  };
  t.same(await search(t, home, { cwd: join(root, "src") }), expected, "around the current folder");
  t.same(await search(t, home, { files: [join(root, "src/.env")] }), expected, "around a settings file");
  t.same((await search(t, home)).traces, [], "not elsewhere");
});

t.test("a key in a stash, in an amended commit, in a message or in another branch is found", async (t) => {
  const ways: Readonly<Record<string, (root: string) => Promise<void>>> = {
    async stash(root) {
      await writeFile(join(root, "src/main.js"), KEY);
      git(root, "stash");
    },
    async amended(root) {
      await writeFile(join(root, "src/main.js"), KEY);
      git(root, "commit", "-qam", "third");
      await writeFile(join(root, "src/main.js"), "x\n");
      git(root, "commit", "-qa", "--amend", "--allow-empty", "-m", "third");
    },
    async message(root) {
      git(root, "commit", "-q", "--allow-empty", "-m", `use ${KEY}`);
    },
    async branch(root) {
      git(root, "switch", "-qc", "other");
      await writeFile(join(root, "src/main.js"), KEY);
      git(root, "commit", "-qam", "third");
      git(root, "switch", "-q", "main");
    },
  };
  for (const [name, commit] of Object.entries(ways)) {
    const { home, root } = await repository(t, "none");
    await commit(root);
    t.same(lines(await search(t, home, { cwd: root })), [`the git history of ~/app: ${TAIL}`], name);
  }
});

t.test("a repository without commits, and a folder that only looks like one, are no trouble", async (t) => {
  const home = await homeWith(t, { "empty/x": "", "broken/.git": "gitdir: /nowhere\n" });
  git(join(home, "empty"), "init", "-q");
  t.same(await search(t, home, { cwd: join(home, "empty") }), { traces: [], unsearched: [] });
  t.same(skipped(await search(t, home, { cwd: join(home, "broken") })), [
    "the git history of ~/broken: git could not read it",
  ]);
});

t.test("limits end the search of a repository, and a machine without git says so", async (t) => {
  const { home, root } = await repository(t, "none");
  const history = (problem: string) => [`the git history of ~/app: ${problem}`];
  t.same(skipped(await search(t, home, { cwd: root, limits: { gitBytes: 10 } })), history("too large"));
  t.same(
    skipped(await search(t, home, { cwd: root, env: { PATH: join(home, "none") } })),
    history("git is not installed"),
  );
  // A git that says nothing and never ends, and neither do its children.
  await mkdir(join(home, "bin"));
  await writeFile(join(home, "bin/git"), "#!/bin/sh\nsleep 1000 & sleep 1000\n", { mode: 0o755 });
  const env = { PATH: `${join(home, "bin")}:${process.env.PATH}` };
  t.same(
    skipped(await search(t, home, { cwd: root, env, limits: { gitMs: 100 } })),
    history("the search took too long"),
  );
});

const notRoot = process.getuid?.() === 0 ? false : "only root can give files away";

t.test(
  "a repository of another user is safe only if git's own config says so",
  { skip: notRoot },
  async (t) => {
    const { home, root } = await repository(t);
    execFileSync("chown", ["-R", String(OTHER_USER), root]);
    t.same(await search(t, home, { cwd: root }), {
      traces: [],
      unsearched: [{ where: "the git history of ~/app", problem: "another user's" }],
    });
    await writeFile(join(home, ".gitconfig"), `[safe]\n\tdirectory = ${root}\n`);
    t.same(lines(await search(t, home, { cwd: root })), [`the git history of ~/app: ${TAIL}`]);
  },
);

/** A submodule whose own config names the program, in two versions: a diff of it is made by another git, started there. */
async function commitSubmodule(root: string, program: string): Promise<void> {
  const inside = join(root, "sub");
  await mkdir(inside);
  git(inside, "init", "-q");
  for (const text of ["1", "2"]) {
    await writeFile(join(inside, "file"), text);
    git(inside, "add", ".");
    git(inside, "commit", "-q", "-m", text);
    const commit = gitOutput(inside, "rev-parse", "HEAD");
    git(root, "update-index", "--add", "--cacheinfo", `160000,${commit},sub`);
    git(root, "commit", "-q", "-m", `submodule ${text}`);
  }
  git(inside, "config", "diff.external", program);
}

/** A commit with a signature, which gpg.program verifies. */
function commitSigned(root: string): void {
  const signature = "-----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----";
  const person = "x <x@x> 1700000000 +0000";
  const [tree, parent] = ["HEAD^{tree}", "HEAD"].map((name) => gitOutput(root, "rev-parse", name));
  const text = `tree ${tree}\nparent ${parent}\nauthor ${person}\ncommitter ${person}\ngpgsig ${signature}\n\nsigned\n`;
  const commit = execFileSync("git", ["hash-object", "-t", "commit", "-w", "--stdin"], {
    cwd: root,
    input: text,
    encoding: "utf8",
  });
  git(root, "reset", "-q", "--soft", commit.trim());
}

t.test("nothing in a repository or its config makes git run a program", async (t) => {
  const { home, root } = await repository(t);
  const mark = join(home, "ran");
  const program = join(root, "evil.sh");
  await writeFile(program, `#!/bin/sh\necho "$0 $*" >>'${mark}'\ncat\n`, { mode: 0o755 });
  await writeFile(join(root, ".gitattributes"), "* diff=evil filter=evil\n");
  await writeFile(join(root, "src/main.js"), "changed\n");
  git(root, "add", ".gitattributes", "src");
  git(root, "commit", "-q", "-m", "third");
  await commitSubmodule(root, program);
  commitSigned(root);
  const config: Readonly<Record<string, string>> = {
    "diff.external": program,
    "diff.evil.command": program,
    "diff.evil.textconv": program,
    "filter.evil.clean": program,
    "filter.evil.smudge": program,
    "filter.evil.process": program,
    "core.pager": program,
    "pager.log": program,
    "core.fsmonitor": program,
    "core.sshCommand": program,
    "core.editor": program,
    "core.askPass": program,
    "core.alternateRefsCommand": program,
    "core.hooksPath": root,
    "log.showSignature": "true",
    "gpg.program": program,
    "gpg.ssh.program": program,
    "gpg.x509.program": program,
    "credential.helper": program,
    "uploadpack.packObjectsHook": program,
    "diff.submodule": "diff",
    "diff.noprefix": "true",
    "alias.log": `!${program}`,
    "interactive.diffFilter": program,
  };
  for (const [name, value] of Object.entries(config)) git(root, "config", name, value);
  t.same(await search(t, home, { cwd: root, env: { PATH: `.:${process.env.PATH}` } }), {
    traces: [{ where: "the git history of ~/app", kind: "git", keys: [TAIL], count: 1 }],
    unsearched: [],
  });
  t.notOk(existsSync(mark), "no program has run");

  spawnSync("git", ["log", "-p"], {
    cwd: root,
    stdio: "ignore",
    env: { PATH: process.env.PATH, HOME: home },
  });
  t.ok(existsSync(mark), "with plain `git log -p` one has");
});

t.test("a partial clone fetches nothing", async (t) => {
  const { home, root } = await repository(t);
  const mark = join(home, "ran");
  const program = join(root, "evil.sh");
  await writeFile(program, `#!/bin/sh\necho ran >'${mark}'\n`, { mode: 0o755 });
  const blob = gitOutput(root, "rev-parse", "HEAD:src/main.js");
  await rm(join(root, ".git/objects", blob.slice(0, 2), blob.slice(2)));
  for (const url of [`ext::${program}`, root, `ssh://x/y`, `evil::x`]) {
    git(root, "config", "core.repositoryFormatVersion", "1");
    git(root, "config", "extensions.partialClone", "origin");
    git(root, "config", "remote.origin.promisor", "true");
    git(root, "config", "remote.origin.url", url);
    git(root, "config", "remote.origin.uploadpack", program);
    git(root, "config", "protocol.ext.allow", "always");
    git(root, "config", "core.sshCommand", program);
    const report = await search(t, home, { cwd: root });
    t.notOk(existsSync(mark), url);
    t.same(skipped(report), ["the git history of ~/app: git could not read it"]);
  }
});
