import { fork } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { KeySource } from "../../src/config/schema.ts";
import { Secret } from "../../src/core/secret.ts";
import { type Subject, Trust } from "../../src/keys/trust.ts";
import { heldClock } from "../doubles/held-clock.ts";

const A = "https://a.example.com";
const EVIL = "https://evil.example.net";
const ONE = new Secret("sk-canary-one-1111111111");
const TWO = new Secret("sk-canary-two-2222222222");
const op: KeySource = { kind: "command", argv: ["/bin/op", "--token", "canary-in-an-argument-5h1"] };

const use = (source: KeySource, ...origins: string[]): Subject => ({
  name: "codex",
  source,
  origins,
  home: [],
});
const env: KeySource = { kind: "env", name: "KEY" };
const at = (file: string): Trust => new Trust({ file, clock: heldClock(), ranBefore: () => false });

/** A pins file from a first start with ONE and op at A. */
async function pinned(t: Test): Promise<string> {
  const file = join(t.testdir(), "state", "pins.json");
  const trust = at(file);
  await trust.load();
  trust.judgeSource(use(op, A));
  trust.judgeKey(use(env, A), ONE);
  t.strictSame(await trust.settle(), { problem: null, blocksKeys: false });
  return file;
}

t.test("pins survive the process, in a file and folder that only the owner can open", async (t) => {
  const file = await pinned(t);
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.equal(statSync(join(file, "..")).mode & 0o777, 0o700);
  const again = at(file);
  t.strictSame(await again.load(), { problem: null });
  t.match(again.judgeKey(use(env, EVIL), ONE), { from: A, to: EVIL });
  t.equal(again.judgeKey(use(env, A), ONE), null);
  t.equal(again.judgeSource(use(op, A)), null);
  t.ok(again.judgeSource(use({ kind: "command", argv: ["/bin/new"] }, A)), "and it is no first start");
});

t.test("neither a key nor an argument is in the file", async (t) => {
  const file = await pinned(t);
  const trust = at(file);
  await trust.load();
  trust.grant(use(op, EVIL), TWO);
  await trust.settle();
  const text = readFileSync(file, "utf8");
  t.match(text, EVIL);
  for (const canary of ["canary", "1111111111", "5h1"]) t.notMatch(text, canary);
});

t.test("two files never share a salt, so their digests cannot be compared", async (t) => {
  const one = readFileSync(await pinned(t), "utf8");
  const two = readFileSync(await pinned(t), "utf8");
  const digests = (text: string): readonly string[] => text.match(/[0-9a-f]{64}/g) ?? [];
  t.equal(digests(one).length, 5);
  const shared = digests(one).filter((digest) => digests(two).includes(digest));
  t.strictSame(shared, []);
});

t.test("a first start without keys is a first start, too", async (t) => {
  const file = join(t.testdir(), "pins.json");
  const trust = at(file);
  await trust.load();
  await trust.settle();
  t.ok(trust.judgeSource(use(op, A)), "in this process");
  const again = at(file);
  await again.load();
  t.ok(again.judgeSource(use(op, A)), "and in the next");
});

t.test("before the pins are loaded, nothing is trusted and nothing is written", async (t) => {
  const file = await pinned(t);
  const before = readFileSync(file, "utf8");
  const trust = at(file);
  t.ok(trust.judgeKey(use(env, A), ONE));
  t.ok(trust.judgeSource(use(op, A)));
  await trust.settle();
  t.equal(readFileSync(file, "utf8"), before);
});

t.test("a damaged file is not a first start: everything is held until it is trusted", async (t) => {
  const good = JSON.parse(readFileSync(await pinned(t), "utf8"));
  const broken: [string, string][] = [
    ["empty", ""],
    ["cut off", JSON.stringify(good).slice(0, -20)],
    ["null", "null"],
    ["another version", JSON.stringify({ ...good, version: 2 })],
    ["no salt", JSON.stringify({ ...good, salt: "" })],
    ["no keys", JSON.stringify({ ...good, keys: undefined })],
    [
      "an entry without origins",
      JSON.stringify({ ...good, keys: [{ ...good.keys[0], origins: undefined }] }),
    ],
    ["an entry without digest", JSON.stringify({ ...good, sources: [{ ...good.sources[0], digest: "x" }] })],
    ["an entry twice", JSON.stringify({ ...good, keys: [good.keys[0], good.keys[0]] })],
  ];
  for (const [name, text] of broken) {
    const file = join(t.testdir(), "pins.json");
    writeFileSync(file, text, { mode: 0o600 });
    const trust = at(file);
    t.match((await trust.load()).problem, /cannot be used: it is damaged.*keybearer trust --all$/, name);
    t.match(trust.judgeSource(use(op, A)), { from: /is lost/ }, name);
    t.match(trust.judgeKey(use(env, A), ONE), { from: /is lost/, to: A }, name);
    await trust.settle();
    t.equal(readFileSync(file, "utf8"), text, `${name}: not overwritten while nothing was granted`);
  }
});

t.test("trust after damage is kept, so is the damaged file, and the rest stays held", async (t) => {
  const file = join(t.testdir(), "pins.json");
  writeFileSync(file, "{ damaged", { mode: 0o600 });
  const trust = at(file);
  await trust.load();
  trust.grant(use(env, A), ONE);
  t.strictSame(await trust.settle(), { problem: null, blocksKeys: false });
  const aside = readdirSync(join(file, "..")).filter((name) => name.includes(".set-aside-"));
  t.equal(aside.length, 1);
  t.equal(readFileSync(join(file, "..", aside[0] ?? ""), "utf8"), "{ damaged");
  const again = at(file);
  t.match(
    (await again.load()).problem,
    /^the list of trusted addresses is lost \(.* at an earlier start\), so .* keybearer trust --all$/,
    "and how to end that is in the message",
  );
  t.equal(again.judgeKey(use(env, A), ONE), null);
  const itself: KeySource = { kind: "literal", secret: TWO };
  t.match(
    again.judgeKey(use(itself, A), TWO),
    { from: /is lost/ },
    "it may be a known key of another origin",
  );
});

t.test("a file that others can write, or that is no file, is not relied on", async (t) => {
  const file = await pinned(t);
  chmodSync(file, 0o666);
  const trust = at(file);
  t.match((await trust.load()).problem, /other users can write to it/);
  t.ok(trust.judgeKey(use(env, A), ONE));
  rmSync(file);
  mkdirSync(file, { mode: 0o700 });
  const folder = at(file);
  t.match((await folder.load()).problem, /not a regular file/);
  t.ok(folder.judgeKey(use(env, A), ONE));
  folder.grant(use(env, A), ONE);
  t.strictSame(await folder.settle(), { problem: null, blocksKeys: false }, "the folder is set aside");
  t.equal(folder.judgeKey(use(env, A), ONE), null);
  t.ok(statSync(file).isFile());
});

t.test("a file that is removed or changed while keybearer runs is written again from memory", async (t) => {
  const file = await pinned(t);
  const before = readFileSync(file, "utf8");
  const trust = at(file);
  await trust.load();
  rmSync(file);
  t.ok(trust.judgeKey(use(env, EVIL), ONE));
  t.strictSame(await trust.settle(), { problem: null, blocksKeys: false });
  t.equal(readFileSync(file, "utf8"), before);
  writeFileSync(file, before.replace(A, EVIL));
  await trust.settle();
  t.equal(readFileSync(file, "utf8"), before);
});

t.test("a write that fails is reported, kept in memory, and repeated next time", async (t) => {
  const file = join(t.testdir({ state: "a file where the folder should be" }), "state", "pins.json");
  rmSync(join(file, ".."));
  const trust = at(file);
  await trust.load();
  writeFileSync(join(file, ".."), "in the way");
  trust.judgeKey(use(env, A), ONE);
  t.match((await trust.settle()).problem, /could not be written \((ENOTDIR|EEXIST)\)/);
  t.ok(trust.judgeKey(use(env, EVIL), ONE));
  rmSync(join(file, ".."));
  t.strictSame(await trust.settle(), { problem: null, blocksKeys: false });
  t.ok(existsSync(file));
});

t.test("what is pinned while another write runs is written as well", async (t) => {
  const file = join(t.testdir(), "pins.json");
  const trust = at(file);
  await trust.load();
  trust.judgeKey(use(env, A), ONE);
  const first = trust.settle();
  trust.judgeKey(use(env, A), TWO);
  await Promise.all([first, trust.settle()]);
  t.equal(JSON.parse(readFileSync(file, "utf8")).keys.length, 2);
});

t.test("kill -9 during a write leaves the pins complete", async (t) => {
  const file = await pinned(t);
  for (let round = 0; round < 4; round += 1) {
    const writer = fork(join(import.meta.dirname, "settle-for-ever.js"), [file], {
      execArgv: [],
      stdio: "inherit",
    });
    // It reports each settled write; the kill comes at some point of one of the next.
    for (let describeState = 0; describeState < 3 + round; describeState += 1) await once(writer, "message");
    writer.kill("SIGKILL");
    await once(writer, "exit");
    const trust = at(file);
    t.strictSame(await trust.load(), { problem: null });
    t.match(trust.judgeKey(use(env, EVIL), ONE), { from: A });
  }
  const folder = join(file, "..");
  const left = readdirSync(folder).filter((name) => name.endsWith(".tmp"));
  // After a minute a temporary file is taken for one of a process that is gone.
  for (const name of left) utimesSync(join(folder, name), new Date(0), new Date(0));
  const trust = at(file);
  await trust.load();
  trust.grant(use(env, A), TWO);
  t.strictSame(
    await trust.settle(),
    { problem: null, blocksKeys: false },
    "what the killed one left is not in the way",
  );
  t.strictSame(readdirSync(folder), ["pins.json"]);
});
