import {
  lstatSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import t from "tap";
import {
  createEmptyPrivateFile,
  createPrivateFile,
  fileVersion,
  stageFile,
  writePrivateFile,
} from "../../src/core/private-file.ts";

t.test(
  "a private file is written whole, with mode 0600 under any umask, in folders that it makes",
  async (t) => {
    const dir = t.testdir({});
    const file = join(dir, "deep", "er", "trust.json");
    const umask = process.umask(0);
    t.teardown(() => process.umask(umask));
    const identity = await writePrivateFile(file, "one");
    t.equal(identity, fileVersion(statSync(file, { bigint: true })));
    t.not(await writePrivateFile(file, "two"), identity);
    t.equal(readFileSync(file, "utf8"), "two");
    t.equal(statSync(file).mode & 0o777, 0o600);
    t.equal(statSync(join(dir, "deep")).mode & 0o777, 0o700);
    t.same(readdirSync(join(dir, "deep", "er")), ["trust.json"], "nothing is left beside it");
  },
);

t.test("a link is replaced; with followLinks it stays, and a link to nowhere is an error", async (t) => {
  const dir = t.testdir({ real: { file: "old" } });
  const file = join(dir, "link");
  symlinkSync("real/file", file);
  await writePrivateFile(file, "new", { followLinks: true });
  t.ok(lstatSync(file).isSymbolicLink());
  t.equal(readFileSync(join(dir, "real", "file"), "utf8"), "new");
  await writePrivateFile(file, "key");
  t.ok(lstatSync(file).isFile());
  t.equal(readFileSync(join(dir, "real", "file"), "utf8"), "new");
  symlinkSync("nowhere/file", join(dir, "dangling"));
  await t.rejects(writePrivateFile(join(dir, "dangling"), "new", { followLinks: true }), { code: "ENOENT" });
  t.same(readdirSync(dir).toSorted(), ["dangling", "link", "real"]);
});

t.test("a new private file never replaces what has its name", async (t) => {
  const dir = t.testdir({});
  const file = join(dir, "key");
  t.equal(await createPrivateFile(file, "one"), true);
  t.equal(await createPrivateFile(file, "two"), false);
  t.equal(readFileSync(file, "utf8"), "one");
  const race = await Promise.all(["a", "b", "c"].map((text) => createPrivateFile(join(dir, "race"), text)));
  t.equal(race.filter(Boolean).length, 1, "of several at once, one");
  t.same(readdirSync(dir), ["key", "race"]);
});

t.test("a new empty file has mode 0600 under any umask, and replaces nothing", async (t) => {
  const dir = t.testdir({ old: "text" });
  const umask = process.umask(0o277);
  t.teardown(() => process.umask(umask));
  t.equal(createEmptyPrivateFile(join(dir, "new")), true);
  t.equal(statSync(join(dir, "new")).mode & 0o777, 0o600);
  t.equal(createEmptyPrivateFile(join(dir, "old")), false);
  t.equal(readFileSync(join(dir, "old"), "utf8"), "text");
  t.throws(() => createEmptyPrivateFile(join(dir, "none", "new")), { code: "ENOENT" });
});

t.test("a staged file changes nothing until it is committed", async (t) => {
  const dir = t.testdir({ settings: "old" });
  const file = join(dir, "settings");
  const dropped = await stageFile(file, "dropped");
  await dropped.discard();
  const staged = await stageFile(file, "new", { mode: 0o640 });
  t.equal(readFileSync(file, "utf8"), "old");
  staged.commit();
  t.equal(readFileSync(file, "utf8"), "new");
  t.equal(statSync(file).mode & 0o777, 0o640);
  t.same(readdirSync(dir), ["settings"]);
});

t.test("a temporary file of a killed process is removed after a minute, one at work is not", async (t) => {
  const id = "0123456789abcdef01234567";
  const dir = t.testdir({ [`.key.${id}.tmp`]: "", [`.key.f${id.slice(1)}.tmp`]: "", ".key.mine.tmp": "" });
  const old = Date.now() / 1000 - 61;
  for (const name of [`.key.${id}.tmp`, ".key.mine.tmp"]) utimesSync(join(dir, name), old, old);
  await writePrivateFile(join(dir, "key"), "new");
  t.same(readdirSync(dir), [`.key.f${id.slice(1)}.tmp`, ".key.mine.tmp", "key"]);
});

t.test("a write that fails leaves the old file and nothing beside it", async (t) => {
  const dir = t.testdir({ folder: { inside: "x" } });
  writeFileSync(join(dir, "file"), "");
  await t.rejects(writePrivateFile(join(dir, "folder"), "new"));
  await t.rejects(writePrivateFile(join(dir, "file", "key"), "new"));
  t.same(readdirSync(dir), ["file", "folder"]);
});
