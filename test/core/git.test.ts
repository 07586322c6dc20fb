import { execFileSync } from "node:child_process";
import { mkdirSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { findRepository, parseGitFile, parseHead, readBranch } from "../../src/core/git.ts";

const COMMIT = "0123456789abcdef0123456789abcdef01234567";

t.test("HEAD names a branch or a commit", async (t) => {
  const cases: readonly (readonly [text: string, branch: string | null])[] = [
    ["ref: refs/heads/main\n", "main"],
    ["ref: refs/heads/main", "main"],
    ["ref: refs/heads/main\r\n", "main"],
    ["ref: refs/heads/feature/a b#1\n", "feature/a b#1"],
    ["ref: refs/heads/größe\n", "größe"],
    ["ref: refs/heads/a\u001b[31mb\n", "a\u001b[31mb"],
    [`${COMMIT}\n`, "0123456789ab"],
    [`${COMMIT}${COMMIT.slice(0, 24)}\n`, "0123456789ab"],
    [COMMIT.toUpperCase(), null],
    [COMMIT.slice(1), null],
    ["ref: refs/heads/.invalid\n", null],
    ["ref: refs/heads/\n", null],
    ["ref: refs/remotes/origin/main\n", null],
    ["ref: refs/heads/a\nref: refs/heads/b\n", null],
    ["ref: refs/heads/a\0b\n", null],
    ["", null],
    ["\0".repeat(41), null],
  ];
  for (const [text, branch] of cases) t.equal(parseHead(text), branch, JSON.stringify(text));
});

t.test("the file .git of a worktree names a folder", async (t) => {
  const cases: readonly (readonly [text: string, folder: string | null])[] = [
    ["gitdir: /code/app/.git/worktrees/fix\n", "/code/app/.git/worktrees/fix"],
    ["gitdir: ../.git/modules/library\n", "/code/app/.git/modules/library"],
    ["gitdir: ../a folder/.git\r\n", "/code/app/a folder/.git"],
    ["gitdir: ../.git", "/code/app/.git"],
    ["gitdir:\n", null],
    ["gitdir:  \n", null],
    ["gitdir: a\0b\n", null],
    ["gitdir: a\ngitdir: b\n", null],
    ["", null],
  ];
  for (const [text, folder] of cases)
    t.equal(parseGitFile(text, "/code/app/lib"), folder, JSON.stringify(text));
});

t.test("the nearest parent with .git is the repository", async (t) => {
  const top = realpathSync(
    t.testdir({ app: { ".git": { HEAD: "ref: refs/heads/main\n" }, src: { deep: {} } }, other: {} }),
  );
  const app = join(top, "app");
  t.same(await findRepository(join(app, "src/deep")), { root: app, gitFolder: join(app, ".git") });
  t.same(await findRepository(app), { root: app, gitFolder: join(app, ".git") });
  t.equal(await readBranch(join(app, ".git")), "main");
  mkdirSync(join(top, "linked"));
  symlinkSync(join(app, ".git"), join(top, "linked/.git"));
  t.equal((await findRepository(join(top, "linked")))?.root, join(top, "linked"));
  t.equal(await readBranch(join(top, "linked/.git")), "main");
  t.equal(await findRepository("/"), null);
  t.equal(await findRepository(join(app, "gone/away")).then((found) => found?.root), app);
});

t.test("whatever stands where git's files belong, it is neither waited for nor read whole", async (t) => {
  const top = realpathSync(
    t.testdir({ repository: { ".git": {} }, worktree: {}, huge: {}, loop: {}, pipe: {} }),
  );
  const git = join(top, "repository/.git");
  const head = join(git, "HEAD");
  t.equal(await readBranch(git), null, "no HEAD");
  execFileSync("mkfifo", [head]);
  t.equal(await readBranch(git), null, "a named pipe");
  execFileSync("rm", [head]);
  symlinkSync("HEAD", head);
  t.equal(await readBranch(git), null, "a link to itself");
  execFileSync("rm", [head]);
  symlinkSync("/dev/zero", head);
  t.equal(await readBranch(git), null, "a device");
  execFileSync("rm", [head]);
  mkdirSync(head);
  t.equal(await readBranch(git), null, "a folder");
  execFileSync("rmdir", [head]);
  writeFileSync(head, `ref: refs/heads/${"x".repeat(4079)}\n`);
  t.equal((await readBranch(git))?.length, 4079, "as long as it may be");
  writeFileSync(head, `ref: refs/heads/${"x".repeat(1_000_000)}\n`);
  t.equal(await readBranch(git), null, "a huge file");

  writeFileSync(join(top, "huge/.git"), `gitdir: ${"x/".repeat(100_000)}\n`);
  t.same(await findRepository(join(top, "huge")), { root: join(top, "huge"), gitFolder: null });
  // As git does, the search goes on above what is neither a file nor a folder.
  symlinkSync(".git", join(top, "loop/.git"));
  execFileSync("mkfifo", [join(top, "pipe/.git")]);
  for (const name of ["loop", "pipe"])
    t.not((await findRepository(join(top, name)))?.root, join(top, name), name);
  writeFileSync(join(top, "worktree/.git"), "gitdir: /nowhere/at/all\n");
  t.same(await findRepository(join(top, "worktree")), {
    root: join(top, "worktree"),
    gitFolder: "/nowhere/at/all",
  });
  t.equal(await readBranch("/nowhere/at/all"), null);
});
