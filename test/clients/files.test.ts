import { execFileSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { readSettings, replaceSettings } from "../../src/clients/files.ts";

function prepare(t: Test) {
  const folder = mkdtempSync(join(tmpdir(), "kb-files-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const home = join(folder, "home");
  mkdirSync(home, { mode: 0o700 });
  const put = (name: string, text: string | Buffer, mode = 0o600) => {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
    chmodSync(join(folder, name), mode);
    return join(folder, name);
  };
  return { folder, home, put };
}

async function problemOf(path: string, within: string): Promise<string> {
  const read = await readSettings(path, within);
  return read.ok ? "" : read.problem;
}

t.test("a file is read with its mode, and one that is not there yet, too", async (t) => {
  const { home, put } = prepare(t);
  const path = put("home/.claude/settings.json", "{}", 0o640);
  t.match(await readSettings(path, home), {
    ok: true,
    file: { target: path, found: { text: "{}", mode: 0o640 } },
  });
  t.match(await readSettings(join(home, ".codex/config.toml"), home), { ok: true, file: { found: null } });
});

t.test("a link is followed inside the home folder, and not out of it", async (t) => {
  const { folder, home, put } = prepare(t);
  const own = put("home/dotfiles/a.json", "{}");
  const other = put("elsewhere/b.json", "{}");
  symlinkSync(own, join(home, "a.json"));
  symlinkSync(other, join(home, "b.json"));
  symlinkSync(dirname(own), join(home, "inner"));
  symlinkSync(dirname(other), join(home, "outer"));
  t.match(await readSettings(join(home, "a.json"), home), { ok: true, file: { target: own } });
  t.match(await readSettings(join(home, "inner/a.json"), home), { ok: true, file: { target: own } });
  t.match(await problemOf(join(home, "b.json"), home), /leads out of/);
  t.match(await problemOf(join(home, "outer/b.json"), home), /leads out of/);
  t.match(await problemOf(join(home, "outer/new.json"), home), /leads out of/, "nor for a new file");
  t.equal(await problemOf(other, home), "", "a variable may name a file elsewhere");
  symlinkSync(other, join(folder, "link.json"));
  t.match(await problemOf(join(folder, "link.json"), home), /leads out of/, "but no link there");
});

t.test("a home folder that is reached by a link is one all the same", async (t) => {
  const { folder, home, put } = prepare(t);
  put("home/a.json", "{}");
  symlinkSync(home, join(folder, "me"));
  t.equal(await problemOf(join(folder, "me/a.json"), join(folder, "me")), "");
  t.equal(await problemOf(join(folder, "me/new/a.json"), join(folder, "me")), "");
});

t.test("what another user can write is left alone", async (t) => {
  const { home, put } = prepare(t);
  t.match(await problemOf(put("home/a.json", "{}", 0o666), home), /can be written by other users/);
  const open = put("home/open/b.json", "{}");
  chmodSync(dirname(open), 0o777);
  t.match(await problemOf(open, home), /is in .*open, which another user can write to/);
  t.match(await problemOf(join(dirname(open), "new.json"), home), /another user can write/);
  chmodSync(dirname(open), 0o1777);
  t.equal(await problemOf(open, home), "", "in a folder like /tmp others cannot replace it");
});

const notRoot = process.getuid?.() === 0 ? false : "only root can give a file away";

t.test("a group's own right to write counts if it has other members", { skip: notRoot }, async (t) => {
  const { home, put } = prepare(t);
  const path = put("home/a.json", "{}", 0o664);
  t.equal(await problemOf(path, home), "", "a user's own group");
  chownSync(path, 0, 12_345);
  t.match(await problemOf(path, home), /can be written by other users/);
  chmodSync(path, 0o644);
  chownSync(path, 12_345, 12_345);
  t.match(await problemOf(path, home), /belongs to another user/);
});

t.test("what is no text in a regular file is left alone", async (t) => {
  const { home, put } = prepare(t);
  t.match(await problemOf(put("home/a", Buffer.from([0x7b, 0xff, 0x7d])), home), /is not UTF-8 text/);
  t.match(await problemOf(put("home/b", "x".repeat(1_000_001)), home), /larger than 1 MB/);
  mkdirSync(join(home, "folder"));
  t.match(await problemOf(join(home, "folder"), home), /is not a file/);
  execFileSync("mkfifo", [join(home, "pipe")]);
  t.match(await problemOf(join(home, "pipe"), home), /is not a file/);
  symlinkSync(join(home, "gone"), join(home, "dangling"));
  t.match(await problemOf(join(home, "dangling"), home), /does not exist/);
});

t.test("a file is replaced as a whole, and keeps its mode, its link and its byte order mark", async (t) => {
  const { home, put } = prepare(t);
  const own = put("home/dotfiles/a.json", "\uFEFF{}", 0o640);
  symlinkSync(own, join(home, "a.json"));
  const read = await readSettings(join(home, "a.json"), home);
  if (!read.ok) throw new Error(read.problem);
  t.equal(read.file.found?.text, "\uFEFF{}");
  t.same(await replaceSettings(read.file, "\uFEFF{ }", 0o640), { ok: true });
  t.equal(readFileSync(own, "utf8"), "\uFEFF{ }");
  t.equal(statSync(own).mode & 0o777, 0o640);
  t.ok(lstatSync(join(home, "a.json")).isSymbolicLink());
  t.same(readdirSync(dirname(own)), ["a.json"]);
});

t.test("a file that changed since it was read is left as it is", async (t) => {
  const { home, put } = prepare(t);
  const path = put("home/a.json", "{}");
  const read = await readSettings(path, home);
  const missing = await readSettings(join(home, "b.json"), home);
  if (!read.ok || !missing.ok) throw new Error("not read");
  put("home/a.json", "{ }");
  put("home/b.json", "mine");
  t.match(await replaceSettings(read.file, "new", 0o600), {
    ok: false,
    problem: /changed by another program/,
  });
  t.match(await replaceSettings(read.file, null, 0o600), { ok: false });
  t.match(await replaceSettings(missing.file, "new", 0o600), { ok: false });
  t.equal(readFileSync(path, "utf8"), "{ }");
  t.equal(readFileSync(join(home, "b.json"), "utf8"), "mine");
  t.same(readdirSync(home).toSorted(), ["a.json", "b.json"]);
});
