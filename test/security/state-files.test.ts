import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import Database from "libsql";
import t, { type Test } from "tap";
import { Secret } from "../../src/core/secret.ts";
import { dayOf } from "../../src/usage/journal/files.ts";
import { command, saveConfig } from "../doubles/command.ts";
import { canaryKey, type DaemonUnderTest, startUnderTest } from "../doubles/daemon-under-test.ts";
import { LONG, longTest } from "../doubles/effort.ts";
import { liveKeys, prepareHome, readConfig } from "../doubles/key-journey.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { hello, post, startSandbox, type TestGateway } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

/* Every program of the user can write keybearer's state. What it finds there is input. */

const DAY_MS = 86_400_000;
/** The time goes on from noon, so that no file of the usage log ends during a test. */
const clock = movableClock(Math.floor(Date.now() / DAY_MS) * DAY_MS + DAY_MS / 2);

interface Scene {
  readonly gateway: TestGateway;
  readonly home: string;
  readonly state: string;
  readonly token: string;
  /** The tool's key. */
  readonly first: string;
}

/** A home in which keybearer ran and sent a request, and is stopped now. */
async function ranBefore(t: Test): Promise<Scene> {
  const gateway = await startSandbox(t);
  const { home, token, first } = await prepareHome(t, gateway);
  const under = await startUnderTest(t, null, { home, clock });
  t.equal((await chat(under, token)).status, 200);
  await under.daemon.stop(0);
  return { gateway, home, state: join(home, "state"), token, first };
}

function chat(under: DaemonUnderTest, token: string): Promise<{ readonly status: number }> {
  return post(`${under.url}/v1/chat/completions`, token, hello());
}

async function problems(under: DaemonUnderTest): Promise<string> {
  const { problems, usage } = await under.daemon.status();
  return [...problems.map(({ message }) => message), ...usage.warnings].join("\n");
}

/** How trust.json names the only tool's key. */
function pinnedDigest(state: string): string {
  const { keys } = JSON.parse(readFileSync(join(state, "trust.json"), "utf8"));
  return keys.find(({ name }: { name: string }) => name === "codex").digest;
}

t.test("a change of a key that keybearer did not begin is set aside, and never executed", async (t) => {
  const scene = await ranBefore(t);
  const { gateway, home, state, token } = scene;
  const secret = canaryKey();
  const outside = join(home, "secret.txt");
  writeFileSync(outside, `${secret}\n`, { mode: 0o600 });
  const { key: victim } = gateway.account.createKey({ name: "someone-0000000", group: "default" });
  const live = liveKeys(gateway).length;
  const digest = pinnedDigest(state);
  const old = { ref: "1", fingerprint: "…0000", digest, place: null };
  const successor = {
    name: "codex-abc1234",
    place: { kind: "file", path: join(home, "keys", "codex") },
    settings: { like: "1" },
    source_before: "itself",
    digest: null,
  };
  const base = {
    id: `keybearer-${"a".repeat(32)}`,
    tool: "codex",
    gateway: "main",
    account: null,
    reason: "asked",
    started_at: clock.now(),
    successor,
    old,
    step: "create",
  };
  const away = { ...successor, place: { kind: "file", path: outside } };
  const forged: Readonly<Record<string, object>> = {
    "a new key from any file": { ...base, successor: away, step: "switch" },
    "a file of the user that is deleted": { ...base, successor: away, step: "undo" },
    "an entry of another program's keychain": {
      ...base,
      successor: { ...successor, place: { kind: "keychain", service: "login", account: "me" } },
      step: "switch",
    },
    "a key for a place of another tool": {
      ...base,
      successor: { ...successor, place: { kind: "file", path: join(home, "keys", "zed") } },
    },
    "a key without the old key's settings": {
      ...base,
      successor: { ...successor, settings: { group: null, quota: null, windows: [], expires_at: null } },
    },
    "an old key that was never used here": {
      ...base,
      old: { ...old, digest: "0".repeat(64) },
      successor: null,
      step: "retire",
    },
    "a name that keybearer does not make": {
      ...base,
      successor: { ...successor, name: victim.name },
      step: "undo",
    },
    "a tool that does not exist": { ...base, tool: "zed", successor: { ...successor, name: "zed-abc1234" } },
    "a gateway that does not exist": { ...base, gateway: "evil" },
  };
  for (const [what, intent] of Object.entries(forged)) {
    const file = join(state, "key-changes.json");
    writeFileSync(file, JSON.stringify({ version: 1, intents: [intent], leaks: {} }), { mode: 0o600 });
    gateway.clearRequests();
    const under = await startUnderTest(t, null, { home, clock });
    t.match(await problems(under), /was not executed, because keybearer did not write it/, what);
    t.equal((await chat(under, token)).status, 200, `${what}: the tool still has its key`);
    t.equal(liveKeys(gateway).length, live, `${what}: no key was created or deleted`);
    t.equal(readFileSync(outside, "utf8"), `${secret}\n`, `${what}: the file is still there`);
    t.notMatch(JSON.stringify(gateway.requests()), secret, `${what}: the secret was not sent`);
    await under.daemon.stop(0);
    t.equal(
      readdirSync(state).filter((name) => name.startsWith("key-changes.json.set-aside")).length,
      1,
      what,
    );
    for (const name of readdirSync(state)) if (name.includes("set-aside")) rmSync(join(state, name));
  }
});

longTest(t, "an unfinished deletion deletes no key but the old one", async (t) => {
  const { gateway, home, state, token, first } = await ranBefore(t);
  const { key: victim } = gateway.account.createKey({ name: "someone", group: "default" });
  const intent = {
    id: `keybearer-${"b".repeat(32)}`,
    tool: "codex",
    gateway: "main",
    account: null,
    reason: "asked",
    started_at: clock.now(),
    successor: null,
    // Everything fits, because trust.json can be read, but the console has another key under this number.
    old: {
      ref: `id:${victim.id}`,
      fingerprint: `…${first.slice(-4)}`,
      digest: pinnedDigest(state),
      place: null,
    },
    step: "retire",
  };
  writeFileSync(
    join(state, "key-changes.json"),
    JSON.stringify({ version: 1, intents: [intent], leaks: {} }),
    {
      mode: 0o600,
    },
  );
  const under = await startUnderTest(t, null, { home, clock });
  await until("it does not go on", async () => (await under.daemon.status()).key_changes?.length === 1);
  t.ok(liveKeys(gateway).includes("someone"), "the other key is still there");
  t.equal((await chat(under, token)).status, 200);
});

longTest(
  t,
  "an unfinished deletion deletes no key that the console lists under another spelling of its number",
  async (t) => {
    const { gateway, home, state, token, first } = await ranBefore(t);
    const digest = pinnedDigest(state);
    const { key: victim } = gateway.account.createKey({ name: "someone", group: "default" });
    const { text: next } = gateway.account.createKey({ name: "next", group: "default" });
    await saveConfig(home, readConfig(home).replaceAll(first, next));
    const intent = {
      id: `keybearer-${"d".repeat(32)}`,
      // A tool that was removed: nothing but the console can say what its key was.
      tool: "removed",
      gateway: "main",
      account: null,
      reason: "asked",
      started_at: clock.now(),
      successor: null,
      old: { ref: `id:0${victim.id}`, fingerprint: `…${first.slice(-4)}`, digest, place: null },
      step: "retire",
    };
    const file = join(state, "key-changes.json");
    writeFileSync(file, JSON.stringify({ version: 1, intents: [intent], leaks: {} }), { mode: 0o600 });
    const under = await startUnderTest(t, null, { home, clock });
    await until("it has ended", () => !readFileSync(file, "utf8").includes(intent.id));
    t.ok(liveKeys(gateway).includes("someone"), "the other key is still there");
    t.equal((await chat(under, token)).status, 200);
  },
);

t.test("a change that names known keys sends, creates and deletes none of them", async (t) => {
  const gateway = await startSandbox(t);
  const evil = await startSandbox(t);
  const { home, token, first } = await prepareHome(t, gateway);
  const state = join(home, "state");
  const place = (name: string) => ({ kind: "file", path: join(home, "keys", name) });
  mkdirSync(join(home, "keys"), { mode: 0o700 });
  writeFileSync(join(home, "keys", "codex"), `${first}\n`, { mode: 0o600 });
  const literal = readConfig(home);
  const stored = literal.replace(`key: ${first}`, `key: file:${join(home, "keys", "codex")}`);
  await saveConfig(home, stored);
  const before = await startUnderTest(t, null, { home });
  t.equal((await chat(before, token)).status, 200);
  await before.daemon.stop(0);
  // A program that writes these files can read them: this digest is right, and so is that of a key which the attacker has.
  const digest = pinnedDigest(state);
  const { salt } = JSON.parse(readFileSync(join(state, "trust.json"), "utf8"));
  const { text: theirs } = gateway.account.createKey({ name: "theirs", group: "default" });
  const { key: other, text: otherText } = gateway.account.createKey({ name: "other", group: "default" });
  gateway.account.createKey({ name: "codex-0machin", group: "default" });
  const mine = `id:${gateway.account.keys[0]?.id}`;
  const old = { ref: mine, fingerprint: `…${first.slice(-4)}`, digest, place: null };
  const successor = {
    name: "codex-abc1234",
    place: place("codex-2"),
    settings: { like: mine },
    source_before: `file:${join(home, "keys", "codex")}`,
    digest: null as string | null,
  };
  const base = {
    id: `keybearer-${"c".repeat(32)}`,
    tool: "codex",
    gateway: "main",
    account: null,
    reason: "asked",
    started_at: Date.now(),
    successor: null as object | null,
    old,
    step: "retire",
  };
  const toEvil = stored
    .replace(`sub2api, url: ${gateway.origin}`, `sub2api, url: ${evil.origin}`)
    .replace(
      /email: \S+, password: \S+/,
      `email: ${evil.account.email}, password: ${evil.account.password.reveal()}`,
    )
    // A gateway with a new name: its console is a new one, too.
    .replace("  main:", "  moved:");
  const noted = /was not executed, because keybearer did not write it/;
  const forged: Readonly<Record<string, { intent: object; config?: string; says?: RegExp }>> = {
    "the tool's key goes to another console": {
      config: toEvil,
      intent: {
        ...base,
        gateway: "moved",
        step: "create",
        successor: { ...successor, place: place("codex"), digest },
      },
    },
    "a copy of the tool's key goes to the console": {
      intent: { ...base, step: "create", successor: { ...successor, place: place("codex-3"), digest } },
      says: /the key in .*codex-3 is not new: it was not sent/,
    },
    "the tool's key file is removed": {
      intent: { ...base, step: "undo", successor: { ...successor, place: place("codex"), digest } },
    },
    "a key with the settings of another key": {
      intent: {
        ...base,
        step: "create",
        old: { ...old, ref: `id:${other.id}` },
        successor: { ...successor, settings: { like: `id:${other.id}` } },
      },
    },
    "any key is deleted": {
      intent: { ...base, old: { ...old, ref: `id:${other.id}`, fingerprint: `…${otherText.slice(-4)}` } },
    },
    "the tool's key is deleted": { intent: base },
    "the attacker's key for the tool, and the tool's key is deleted": {
      intent: {
        ...base,
        step: "switch",
        successor: { ...successor, digest: new Secret(theirs).digest(salt) },
      },
    },
    "a key that another machine's keybearer made is deleted": {
      intent: {
        ...base,
        step: "undo",
        successor: { ...successor, place: place("codex-4"), name: "codex-0machin" },
      },
      says: /has a key codex-0machin, which may be an unfinished one of codex: it was not deleted/,
    },
  };
  writeFileSync(join(home, "keys", "codex-2"), `${theirs}\n`, { mode: 0o600 });
  writeFileSync(join(home, "keys", "codex-3"), `${first}\n`, { mode: 0o600 });
  const live = liveKeys(gateway);
  for (const [what, { intent, config = stored, says = noted }] of Object.entries(forged).slice(
    0,
    LONG ? undefined : 3,
  )) {
    await saveConfig(home, config);
    writeFileSync(
      join(state, "key-changes.json"),
      JSON.stringify({ version: 1, intents: [intent], leaks: {} }),
      {
        mode: 0o600,
      },
    );
    const under = await startUnderTest(t, null, { home });
    await until(`${what}: it is shown`, async () => {
      const { key_changes } = await under.daemon.status();
      return says.test(
        [await problems(under), ...(key_changes ?? []).map(({ why }) => why), under.logText()].join("\n"),
      );
    });
    t.strictSame(liveKeys(gateway), live, `${what}: no key was created or deleted`);
    t.match(
      await post(`${under.url}/v1/chat/completions`, token, hello()),
      { status: 200 },
      `${what}: the tool still has its key`,
    );
    await under.daemon.stop(0);
    t.equal(readFileSync(join(home, "keys", "codex"), "utf8"), `${first}\n`, what);
    t.notOk(JSON.stringify(evil.requests()).includes(first), `${what}: no key was sent`);
    rmSync(join(state, "key-changes.json"), { force: true });
  }
});

longTest(t, "whatever the index says of the usage log, keybearer starts, serves and counts", async (t) => {
  const { home, state, token } = await ranBefore(t);
  let served = 1;
  const nonsense = [
    ["digest", "["],
    ["digest", '"x"'],
    ["digest", '{"offset":-5,"value":3}'],
    ["digest", '{"offset":1e300,"value":"x"}'],
    ["position", '{"day":"../../../etc","offset":"x","passed":false}'],
  ] as const;
  for (const [name, value] of LONG ? nonsense : nonsense.slice(-2)) {
    const under = await startUnderTest(t, null, { home, clock });
    t.equal((await chat(under, token)).status, 200, value);
    served += 1;
    await until("it is in the index", async () => {
      const { stdout } = await command(t, home, ["usage", "--json"]);
      return JSON.parse(stdout).total?.requests === served;
    });
    await under.daemon.stop(0);
    const index = new Database(join(state, "index.db"));
    index.prepare("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)").run(name, value);
    index.close();
  }
  const last = await startUnderTest(t, null, { home, clock });
  t.equal((await chat(last, token)).status, 200);
});

t.test("what is not a file of keybearer's own is set aside and named in status", async (t) => {
  const { home, state, token } = await ranBefore(t);
  const target = join(home, "profile");
  const day = `usage/${dayOf(clock.now())}.jsonl`;
  const made: Readonly<Record<string, (path: string) => void>> = {
    "a link": (path) => symlinkSync(target, path),
    "a second name": (path) => linkSync(target, path),
    "a pipe": (path) => void execFileSync("mkfifo", [path]),
    "a link to a device": (path) => symlinkSync("/dev/zero", path),
    // A folder where a day's file belongs is left alone, and nothing is sent.
    "a folder": (path) => (path.endsWith(".jsonl") ? symlinkSync(target, path) : mkdirSync(path)),
  };
  const files = [
    "token-uses.json",
    "key-changes.json",
    "shared.json",
    "notify-queue.jsonl",
    "index.db",
    "mirror.db",
    day,
  ];
  for (const [what, make] of Object.entries(made)) {
    writeFileSync(target, "mine\n", { mode: 0o600 });
    for (const name of files) {
      rmSync(join(state, name), { force: true });
      make(join(state, name));
    }
    const under = await startUnderTest(t, null, { home, clock });
    const found = await problems(under);
    for (const name of files)
      t.match(found, new RegExp(`${name} .*: it was set aside as `), `${what}: ${name}`);
    const { stdout } = await command(t, home, ["status"]);
    t.match(stdout, /^warning: .*token-uses\.json/m, "config.yaml is not blamed");
    t.equal((await chat(under, token)).status, 200, `${what}: it serves`);
    await until("the index is read", async () => (await under.daemon.status()).usage.state === "ok");
    await under.daemon.stop(0);
    t.equal(readFileSync(target, "utf8"), "mine\n", `${what}: what it leads to is as it was`);
    for (const name of files)
      if (existsSync(join(state, name))) t.ok(lstatSync(join(state, name)).isFile(), `${what}: ${name}`);
    for (const folder of [state, join(state, "usage")])
      for (const name of readdirSync(folder))
        if (name.includes("set-aside")) rmSync(join(folder, name), { recursive: true });
  }
});

longTest(t, "a link that replaces the usage log while keybearer runs is not written to", async (t) => {
  const { home, state, token } = await ranBefore(t);
  const under = await startUnderTest(t, null, { home, clock });
  const target = join(home, "profile");
  writeFileSync(target, "mine\n");
  const file = join(state, "usage", `${dayOf(clock.now())}.jsonl`);
  renameSync(file, `${file}.away`);
  symlinkSync(target, file);
  await until("it is noticed", async () => /is a link: it was set aside/.test(await problems(under)));
  t.equal((await chat(under, token)).status, 200);
  t.equal(readFileSync(target, "utf8"), "mine\n");
  t.ok(lstatSync(file).isFile());
});

longTest(t, "files of any size are neither read into memory nor a reason not to start", async (t) => {
  const { home, state, token } = await ranBefore(t);
  const files = ["token-uses.json", "key-changes.json", "shared.json"];
  for (const name of files) {
    writeFileSync(join(state, name), "{", { mode: 0o600 });
    // Without blocks on the disk.
    truncateSync(join(state, name), 900_000_000);
  }
  const packed = join(state, "usage", "2026-01-01.jsonl.gz");
  writeFileSync(packed, "", { mode: 0o600 });
  truncateSync(packed, 900_000_000);
  const under = await startUnderTest(t, null, { home });
  const found = await problems(under);
  for (const name of files)
    t.match(found, new RegExp(`${name} is larger than .*: it was set aside as `), name);
  t.equal((await chat(under, token)).status, 200, "it serves");
  await under.daemon.stop(0);
  t.match((await command(t, home, ["usage", "--json"])).code, 0, "the packed day counts as damaged");

  writeFileSync(join(state, "key-changes.json"), " ".repeat(2_000_000), { mode: 0o600 });
  const again = await startUnderTest(t, null, { home });
  t.match(await problems(again), /key-changes\.json is damaged, and was set aside as/, "a smaller one, too");
});

t.test("lines that keybearer did not write, and a file from far ahead, are reported", async (t) => {
  const { home, state, token } = await ranBefore(t);
  const folder = join(state, "usage");
  const future = join(folder, "2099-01-01.jsonl");
  writeFileSync(future, '{"kind":"carry","tools":0}\n', { mode: 0o600 });
  const under = await startUnderTest(t, null, { home, clock });
  t.match(
    await problems(under),
    /another program writes to the usage log: .*2099-01-01\.jsonl is dated more than a day ahead/,
  );
  t.notOk(existsSync(future), "it is set aside");
  t.equal((await chat(under, token)).status, 200);
  const today = join(folder, `${dayOf(clock.now())}.jsonl`);
  t.ok(readFileSync(today, "utf8").length > 0, "today's file is the current one");
  appendFileSync(today, '{"kind":"ack"}\n');
  await until("it is noticed", async () =>
    /has lines that keybearer did not write/.test(await problems(under)),
  );
});

longTest(t, "a usage log that lost requests while keybearer did not run is reported", async (t) => {
  const { home, state, token } = await ranBefore(t);
  const folder = join(state, "usage");
  /** One more request, and an index that has read everything. Returns the newest file. */
  async function serveAndIndex(): Promise<string> {
    const under = await startUnderTest(t, null, { home });
    t.equal(await problems(under), "", "an untouched log is not reported");
    t.equal((await chat(under, token)).status, 200);
    await under.daemon.stop(0);
    t.equal((await command(t, home, ["usage"])).code, 0);
    return join(folder, readdirSync(folder).sort().at(-1) ?? "");
  }
  const edits: Readonly<Record<string, { readonly edit: (file: string) => void; readonly says: RegExp }>> = {
    "the end is cut off": {
      edit: (file) =>
        writeFileSync(file, `${readFileSync(file, "utf8").split("\n").slice(0, 3).join("\n")}\n`),
      says: /has [01] requests, .*, and had [2-9] requests/,
    },
    "a request used less": {
      edit: (file) =>
        writeFileSync(
          file,
          readFileSync(file, "utf8").replaceAll(/(?<="output_tokens":)\d+/g, (tokens) =>
            "0".padStart(tokens.length),
          ),
        ),
      says: /has other lines than before/,
    },
    "the file is gone": { edit: (file) => rmSync(file), says: /\.jsonl is gone \(it had [1-9]\d* requests/ },
  };
  for (const [what, { edit, says }] of Object.entries(edits)) {
    edit(await serveAndIndex());
    const under = await startUnderTest(t, null, { home });
    t.match(await problems(under), /the usage log was changed while keybearer did not run/, what);
    t.match(await problems(under), says, what);
    t.equal((await chat(under, token)).status, 200, `${what}: it serves`);
    await under.daemon.stop(0);
    t.equal((await command(t, home, ["usage", "rebuild"])).code, 0, "the index takes the log as it is now");
  }
});

t.test("a state folder with nothing in it is a first start", async (t) => {
  const gateway = await startSandbox(t);
  const { home, token } = await prepareHome(t, gateway);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  const under = await startUnderTest(t, null, { home, clock });
  t.equal((await chat(under, token)).status, 200);
  t.equal(await problems(under), "");
});
