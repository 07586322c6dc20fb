import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { quoteForShell, withNext } from "../../src/core/display.ts";
import { Secret } from "../../src/core/secret.ts";
import { type KeyReading, readKey } from "../../src/keys/sources.ts";

const KEY = "sk-canary-8f3a1c9d2b7e4f60";

function keyOf(reading: KeyReading): string {
  return reading.ok ? reading.key.reveal() : `no key: ${reading.problem}`;
}

function problemOf(reading: KeyReading): string {
  return reading.ok ? `a key: ${reading.key}` : withNext(reading);
}

function keyFile(t: Test, content: string | Buffer, mode = 0o600): string {
  const path = join(realpathSync(t.testdir()), "key");
  writeFileSync(path, content);
  chmodSync(path, mode);
  return path;
}

const readFile = (path: string, home: readonly string[] = []) =>
  readKey({ kind: "file", path }, { env: {}, home, limit: 5_000 });

t.test("a key written into config.yaml is the key", async (t) => {
  const secret = new Secret(KEY);
  const reading = await readKey({ kind: "literal", secret }, { env: {} });
  t.strictSame(reading, { ok: true, key: secret, warning: null });
});

t.test("a variable gives its value", async (t) => {
  t.equal(keyOf(await readKey({ kind: "env", name: "MY_KEY" }, { env: { MY_KEY: KEY } })), KEY);
});

t.test("a variable that is unset or empty is named, with a note about services", async (t) => {
  const unset = problemOf(await readKey({ kind: "env", name: "MY_KEY" }, { env: {} }));
  t.match(unset, /MY_KEY is not set.*a service does not get the variables of your shell/);
  t.match(
    problemOf(await readKey({ kind: "env", name: "MY_KEY" }, { env: { MY_KEY: "" } })),
    /MY_KEY is empty/,
  );
});

t.test("a name that every object has is not a variable", async (t) => {
  t.match(problemOf(await readKey({ kind: "env", name: "constructor" }, { env: {} })), /is not set/);
});

t.test("one final newline of a key file is not part of the key", async (t) => {
  for (const end of ["", "\n", "\r\n"]) t.equal(keyOf(await readFile(keyFile(t, KEY + end))), KEY);
});

t.test("what cannot be a key is refused with the reason and never shown", async (t) => {
  const faults: [string | Buffer, RegExp][] = [
    ["", /the key is empty/],
    ["\n", /the key is empty/],
    [`${KEY}\n\n`, /line break/],
    [`${KEY}\nsecond`, /line break/],
    [`${KEY} `, /space/],
    ["short", /fewer than 8/],
    ["sk-YOUR-KEY-HERE", /placeholder/],
    [Buffer.from([0x00, 0xff, 0xfe, ...Buffer.from(KEY)]), /not plain ASCII/],
  ];
  for (const [content, fault] of faults) {
    const problem = problemOf(await readFile(keyFile(t, content)));
    t.match(problem, /^incomplete key: /);
    t.match(problem, fault);
    t.notMatch(problem, "canary");
  }
});

t.test("a key file that others may open works, with the chmod to type", async (t) => {
  const open = keyFile(t, KEY, 0o644);
  const reading = await readFile(open);
  t.equal(keyOf(reading), KEY);
  t.ok(reading.ok && reading.warning?.endsWith(`chmod 600 ${quoteForShell(open)}`));
  const shut = await readFile(keyFile(t, KEY, 0o600));
  t.equal(shut.ok && shut.warning, null);
});

t.test(
  "a file that is missing, a folder or written without its folder is refused with a reason",
  async (t) => {
    const folder = realpathSync(t.testdir({ sub: {} }));
    t.match(problemOf(await readFile(join(folder, "none"))), /there is no file/);
    t.match(problemOf(await readFile(join(folder, "sub"))), /not a regular file/);
    t.match(problemOf(await readFile("key")), /not an absolute path/);
  },
);

t.test("a fifo or a device is refused at once", async (t) => {
  const fifo = join(realpathSync(t.testdir()), "fifo");
  execFileSync("mkfifo", [fifo]);
  t.match(problemOf(await readFile(fifo)), /not a regular file/);
  t.match(problemOf(await readFile("/dev/zero")), /not a regular file/);
});

t.test("a file of exactly 64 KB is read and one byte more is not", async (t) => {
  t.equal(keyOf(await readFile(keyFile(t, "k".repeat(65_536)))).length, 65_536);
  t.match(problemOf(await readFile(keyFile(t, "k".repeat(65_537)))), /larger than 64 KB/);
});

t.test("a link in keybearer's own folder must not lead out of it", async (t) => {
  const folder = realpathSync(t.testdir({ outside: KEY, home: { real: KEY } }));
  const home = join(folder, "home");
  symlinkSync(join(folder, "outside"), join(home, "out"));
  symlinkSync(join(home, "real"), join(home, "in"));
  symlinkSync(folder, join(home, "up"));
  t.match(problemOf(await readFile(join(home, "out"), [home])), /link to a place outside keybearer's folder/);
  t.match(
    problemOf(await readFile(join(home, "up", "outside"), [home])),
    /link to a place outside keybearer's folder/,
  );
  t.equal(keyOf(await readFile(join(home, "in"), [home])), KEY);
  t.equal(keyOf(await readFile(join(home, "out"))), KEY, "elsewhere a link is the person's own affair");
});

t.test("keybearer's own folder may itself be reached by a link", async (t) => {
  const folder = realpathSync(t.testdir());
  mkdirSync(join(folder, "dotfiles"));
  writeFileSync(join(folder, "dotfiles", "key"), KEY);
  symlinkSync(join(folder, "dotfiles"), join(folder, "home"));
  t.equal(keyOf(await readFile(join(folder, "home", "key"), [join(folder, "home")])), KEY);
});
