import { readFileSync, statSync, writeFileSync } from "node:fs";
import { symlink } from "node:fs/promises";
import { join } from "node:path";
import t from "tap";
import { command, newHome, saveConfig } from "../doubles/command.ts";

const BLOCK = `# my tools
listen:   localhost:0     # any port
gateway: http://127.0.0.1:9/v1

tools:
  zed:   # the editor
    key: env:ZED_KEY

  codex:
    key: env:CODEX_KEY   # from the vault
    expires: 2020-01-01
  # not now
  old: { key: env:OLD_KEY, enabled: false } # old
  bare:
  empty: {}
`;

t.test("disabling and enabling change one setting, and every other byte stays", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, BLOCK);
  for (const tool of ["zed", "bare", "empty"]) {
    const off = await command(t, home, ["tools", "disable", tool]);
    t.strictSame(off, { code: 0, signal: null, stdout: `${tool} is disabled\n`, stderr: "" });
    const disabled = readFileSync(file, "utf8");
    const without = disabled.replace(/\n {4}enabled: false|(?<={) enabled: false (?=})/, "");
    t.equal(without, BLOCK, "comments, order and spaces are kept to the byte");
    t.equal(statSync(file).mode & 0o777, 0o600);

    const on = await command(t, home, ["tools", "enable", tool]);
    t.strictSame({ code: on.code, stdout: on.stdout }, { code: 0, stdout: `${tool} is enabled\n` });
    t.equal(readFileSync(file, "utf8"), disabled.replace(/(?<!OLD_KEY, )enabled: false/, "enabled: true"));
    await saveConfig(home, BLOCK);
  }
  t.equal((await command(t, home, ["tools", "enable", "old"])).stdout, "old is enabled\n");
  t.equal(readFileSync(file, "utf8"), BLOCK.replace("enabled: false", "enabled: true"));
});

t.test("a state that is already set is reported, and the file is not changed", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, BLOCK);
  const before = statSync(file);
  const again: [string, string, string][] = [
    ["disable", "old", "old is disabled already\n"],
    ["enable", "zed", "zed is enabled already\n"],
  ];
  for (const [verb, tool, words] of again) {
    const { code, stdout } = await command(t, home, ["tools", verb, tool]);
    t.strictSame({ code, stdout }, { code: 0, stdout: words });
  }
  t.equal(readFileSync(file, "utf8"), BLOCK);
  t.equal(statSync(file).ino, before.ino, "it is the same file");
});

t.test("without a daemon --now says that nothing runs", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, BLOCK);
  const words = /\nkeybearer is not running, so no request is in flight\n$/;
  for (let round = 0; round < 2; round += 1) {
    const { code, stdout } = await command(t, home, ["tools", "disable", "zed", "--now"]);
    t.equal(code, 0);
    t.match(stdout, words, "the second time too");
  }
});

t.test("a file that cannot be edited is left alone, and an unknown tool gets the known ones", async (t) => {
  const home = await newHome(t);
  t.match(await command(t, home, ["tools", "disable", "codex"]), {
    code: 1,
    stdout: "",
    stderr: /there is no .*config\.yaml → keybearer init/,
  });
  const bad: [string | Buffer, RegExp][] = [
    [
      BLOCK.replaceAll("codex", "other"),
      /there is no tool codex in config\.yaml; its tools are zed, other, old, bare, empty/,
    ],
    ["tools: { codex: { key: [", /keybearer check/],
    ["tools: { codex: {}, codex: {} }\n", /twice/],
    [Buffer.from([...Buffer.from("tools: { codex: {} } # "), 0xff, 0xfe, 0x0a]), /not UTF-8/],
  ];
  for (const [at, [text, words]] of bad.entries()) {
    const verb = at % 2 === 0 ? "disable" : "enable";
    const file = await saveConfig(home, "");
    writeFileSync(file, text);
    const { code, stdout, stderr } = await command(t, home, ["tools", verb, "codex"]);
    t.strictSame({ code, stdout }, { code: 1, stdout: "" }, String(text).slice(0, 30));
    t.match(stderr, words);
    t.notMatch(stderr, /^\s+at /m, "no stack trace");
    t.ok(readFileSync(file).equals(Buffer.from(text)), "not a byte is changed");
  }
  t.match(await command(t, home, ["tools", "disable"]), { code: 2, stderr: /missing required argument/ });
});

t.test("--config names another file, and a link to it stays a link", async (t) => {
  const [home, other] = [await newHome(t), await newHome(t)];
  const own = await saveConfig(home, BLOCK);
  const file = await saveConfig(other, BLOCK);
  const link = join(home, "link.yaml");
  await symlink(file, link);
  t.equal((await command(t, home, ["tools", "disable", "zed", "--config", link])).code, 0);
  t.match(readFileSync(file, "utf8"), "ZED_KEY\n    enabled: false\n");
  t.equal((await command(t, home, ["tools", "enable", "zed", "-c", link])).code, 0);
  t.match(readFileSync(link, "utf8"), "ZED_KEY\n    enabled: true\n");
  t.equal(readFileSync(own, "utf8"), BLOCK, "your own is not touched");
});
