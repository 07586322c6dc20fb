import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { systemClock } from "../../src/core/clock.ts";
import type { Secret } from "../../src/core/secret.ts";
import { Trust } from "../../src/keys/trust.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { hello, post, startSandbox } from "../doubles/sandbox.ts";
import { atScreen } from "../doubles/screen.ts";
import { until } from "../doubles/until.ts";

interface Options {
  /** Settings of tool codex. */
  readonly codex?: string;
  /** false: config.yaml has no password for the console. */
  readonly hasLogin?: boolean;
  /** A change that began before the start has to delete the key that no tool holds. */
  readonly isRetiring?: boolean;
  /** The key of tool other, in YAML; "twin": the one of codex. Default: one of its own. */
  readonly other?: string;
}

/** A daemon between a tool and the sandbox, whose console lists the tool's key and one that no tool holds. */
async function start(t: Test, { codex = "", hasLogin = true, isRetiring = false, other }: Options = {}) {
  const sandbox = await startSandbox(t);
  const own = sandbox.createKey({ name: "codex", group: "default" });
  const old = sandbox.createKey({ name: "old laptop", group: "default" });
  const { token, hash } = freshToken();
  const home = await newHome(t);
  const stored = join(home, "keys", "codex");
  mkdirSync(join(home, "keys"), { mode: 0o700 });
  writeFileSync(stored, `${own.key.reveal()}\n`, { mode: 0o600 });
  const ownKey = () => sandbox.createKey({ name: "other", group: "default" }).key.reveal();
  const otherKey = other === "twin" ? `"file:${stored}"` : (other ?? ownKey());
  const { email, password } = sandbox.account;
  const login = hasLogin ? `{ email: ${email}, password: ${password.reveal()} }` : `{ email: ${email} }`;
  const text = [
    "listen: localhost:0",
    "gateways:",
    "  main:",
    `    base_url: ${sandbox.baseUrl}`,
    `    console: { kind: sub2api, url: "${sandbox.origin}", login: ${login} }`,
    "tools:",
    `  codex: { key: "file:${stored}", token: "${hash}"${codex} }`,
    `  other: { key: ${otherKey} }`,
    "",
  ].join("\n");
  const file = await saveConfig(home, text);
  if (isRetiring) await writeRetirement(home, `id:${old.id}`, old.key, sandbox.origin);
  const under = await startUnderTest(t, null, { home });
  return {
    sandbox,
    under,
    home,
    own,
    old,
    text,
    stored,
    config: () => readFileSync(file, "utf8"),
    run: (...args: string[]) => command(t, home, args),
    /** What the tool's next request gets. */
    call: async () => {
      const { status, headers } = await post(`${under.url}/v1/chat/completions`, token, hello());
      return headers.get("x-keybearer-refusal") ?? status;
    },
  };
}

/** As a daemon leaves it that used this key, and is killed before it deletes the key at the console. */
async function writeRetirement(home: string, ref: string, key: Secret, origin: string): Promise<void> {
  const file = join(home, "state", "trust.json");
  const trust = new Trust({ file, clock: systemClock, ranBefore: () => false });
  trust.load();
  const source = { kind: "file", path: join(home, "keys", "codex") } as const;
  trust.judgeKey({ name: "codex", source, origins: [origin], home: [home] }, key);
  await trust.settle();
  const intent = {
    id: `keybearer-${"0".repeat(32)}`,
    tool: "codex",
    gateway: "main",
    account: null,
    reason: "asked",
    started_at: 1,
    successor: null,
    old: { ref, fingerprint: key.fingerprint, digest: trust.digestOf(key), place: null },
    step: "retire",
  };
  const text = JSON.stringify({ version: 1, intents: [intent], leaks: {} });
  writeFileSync(join(home, "state", "key-changes.json"), text, { mode: 0o600 });
}

t.test("keys at a console are listed, disabled, enabled and deleted by commands", async (t) => {
  const { sandbox, own, old, home, under, run, call, config, text } = await start(t);

  await t.test("without a terminal and --yes nothing changes", async (t) => {
    for (const verb of ["disable", "enable", "remove"]) {
      const { code, stderr } = await run("tools", verb, "codex", "--at-gateway");
      t.equal(code, 2);
      t.match(stderr, `if you are sure: keybearer tools ${verb} codex --at-gateway --yes`);
    }
    t.equal((await run("keys", "delete", "old laptop")).code, 2);
    t.equal(config(), text);
  });

  await t.test("another config.yaml than the daemon's is not acted on", async (t) => {
    const other = join(home, "other.yaml");
    writeFileSync(other, text, { mode: 0o600 });
    const { code, stderr } = await run(
      "tools",
      "disable",
      "codex",
      "--at-gateway",
      "--yes",
      "--config",
      other,
    );
    t.equal(code, 1);
    t.match(stderr, /the running keybearer uses another file/);
    t.equal(sandbox.keyStatus(own.id), "active");
    t.equal(readFileSync(other, "utf8"), text);
  });

  await t.test("keys refuses the key of a tool, and a name that two keys have", async (t) => {
    const held: [string, RegExp][] = [
      ["disable", /is the key of codex → keybearer tools disable codex --at-gateway/],
      ["enable", /is the key of codex → keybearer tools enable codex --at-gateway/],
      ["delete", /→ keybearer tools rotate codex, or keybearer tools remove codex --at-gateway/],
    ];
    for (const [verb, words] of held)
      t.match(await run("keys", verb, "codex", ...(verb === "delete" ? ["--yes"] : [])), {
        code: 1,
        stderr: words,
      });
    const second = sandbox.createKey({ name: "codex", group: "default" });
    const { code, stderr } = await run("keys", "delete", "codex", "--yes");
    t.equal(code, 1);
    t.match(stderr, /^2 keys match codex: name one by its ref, or by --gateway\n/);
    t.match(stderr, new RegExp(`\\n {2}id:${own.id} {2}\\S+ \\(codex\\), active, codex, gateway main\\n`));
    t.match(
      stderr,
      new RegExp(`\\n? {2}id:${second.id} {2}\\S+ \\(codex\\), active, not held here, gateway main\\n`),
    );
    t.equal(sandbox.keyStatus(own.id), "active");
    t.equal(sandbox.keyStatus(second.id), "active");
    sandbox.deleteKey(second.id);
  });

  await t.test("keys --refresh shows a change in the console at once", async (t) => {
    const tablet = sandbox.createKey({ name: "tablet", group: "default" });
    t.match(await run("keys", "--refresh", "--json"), { code: 0, stdout: /tablet/ });
    sandbox.deleteKey(tablet.id);
    sandbox.createKey({ name: "phone", group: "default" });
    const { stdout } = await run("keys", "--refresh");
    t.notMatch(stdout, /tablet/);
    t.match(stdout, /\nphone /);
    t.match(
      stdout,
      /\ncreate a key\n {2}→ keybearer tools add <tool> --gateway main --create --group <group>\nrotate a tool's key → keybearer tools rotate <tool>\n/,
    );
  });

  await t.test(
    "keys disables, enables and deletes a key that no tool holds, by name, fingerprint or ref",
    async (t) => {
      const { fingerprint } = old.key;
      const off = await run("keys", "disable", "old laptop");
      t.match(off, {
        code: 0,
        stdout: `key ${fingerprint} (old laptop) is disabled at the console of main\n`,
      });
      t.equal(sandbox.keyStatus(old.id), "disabled");
      t.match(await run("keys", "--refresh"), {
        code: 0,
        stdout: /\nold laptop +\S+ +disabled +not held here\n/,
      });
      t.equal((await run("keys", "enable", fingerprint)).code, 0);
      t.equal(sandbox.keyStatus(old.id), "active");
      t.equal((await run("keys", "enable", fingerprint.slice(1))).code, 0, "without the dots");
      t.match(await run("keys", "delete", `id:${old.id}`, "--yes"), {
        code: 0,
        stdout: /is deleted at the console/,
      });
      t.equal(sandbox.keyStatus(old.id), "deleted");
      t.match(await run("keys", "delete", "old laptop", "--yes"), {
        code: 1,
        stderr: /no console lists a key old laptop → keybearer keys/,
      });
      const { actions } = await under.daemon.status();
      t.match(actions[0]?.what, /deleted key old laptop at the console of main/);
    },
  );

  await t.test(
    "disable --at-gateway refuses the tool here and its key at the gateway, and enable undoes it",
    async (t) => {
      t.equal(await call(), 200);
      const off = await run("tools", "disable", "codex", "--at-gateway", "--yes");
      t.strictSame({ code: off.code, stderr: off.stderr }, { code: 0, stderr: "" });
      t.equal(
        off.stdout,
        `codex is disabled\nkey ${own.key.fingerprint} (codex) is disabled at the console of main\n`,
      );
      t.equal(sandbox.keyStatus(own.id), "disabled");
      t.equal(await call(), "tool-disabled");
      const on = await run("tools", "enable", "codex", "--at-gateway", "--yes");
      t.equal(on.code, 0, on.stderr);
      t.match(on.stdout, /^key …\S+ \(codex\) is enabled at the console of main\ncodex is enabled\n/);
      t.equal(sandbox.keyStatus(own.id), "active");
      t.equal(await call(), 200);
    },
  );
});

longTest(
  t,
  "remove without --at-gateway leaves the key at the console, and with it deletes it there, also of the last tool",
  async (t) => {
    const { sandbox, own, run } = await start(t);
    t.match(await run("tools", "remove", "other", "--yes"), {
      code: 0,
      stdout:
        /delete it in the gateway's console, too\nfrom here: keybearer keys delete <key>, .*; --at-gateway does both at once\n/,
    });
    const left = sandbox.account.keys.find(({ name }) => name === "other");
    t.equal(left?.deletedAt, null);
    t.match(await run("tools", "remove", "codex", "--at-gateway", "--yes"), { code: 0 });
    t.not(sandbox.keyStatus(own.id), "active");
  },
);

t.test("remove --at-gateway deletes the key at the console and here, and then the tool", async (t) => {
  const { sandbox, own, run, stored, config, under } = await start(t);
  const gone = await run("tools", "remove", "codex", "--at-gateway", "--yes");
  t.equal(gone.code, 0, gone.stderr);
  t.match(
    gone.stdout,
    /^key …\S+ \(codex\) is deleted at the console of main\ncodex is removed from .*\nits key is deleted from file:\S+\n$/,
  );
  t.equal(sandbox.keyStatus(own.id), "deleted");
  t.notOk(existsSync(stored));
  t.notMatch(config(), /codex/);
  t.notOk(under.logText().includes(own.key.reveal()));
});

t.test(
  "without a daemon, a login or a console nothing changes, and the message names the manual step",
  async (t) => {
    const verbs = [
      ["disable", "disabled", "disable"],
      ["enable", "enabled", "enable"],
      ["remove", "deleted", "delete"],
    ] as const;
    const noLogin = await start(t, { hasLogin: false });
    const stopped = await start(t);
    await stopped.under.daemon.stop(0);
    const bare = await newHome(t);
    const text = "gateway: http://127.0.0.1:9/v1\ntools: { codex: {}, other: {} }\n";
    const file = await saveConfig(bare, text);
    const homes = [
      {
        home: noLogin.home,
        config: noLogin.config,
        text: noLogin.text,
        why: /has no login yet → keybearer mirror login main/,
      },
      {
        home: stopped.home,
        config: stopped.config,
        text: stopped.text,
        why: /keybearer is not running → keybearer start/,
      },
      {
        home: bare,
        config: () => readFileSync(file, "utf8"),
        text,
        why: /its gateway has no console in config\.yaml/,
      },
    ];
    for (const { home, config, text: before, why } of homes) {
      for (const [verb, past, action] of verbs) {
        const { code, stdout, stderr } = await command(t, home, [
          "tools",
          verb,
          "codex",
          "--at-gateway",
          "--yes",
        ]);
        t.strictSame({ code, stdout }, { code: 1, stdout: "" }, verb);
        t.match(stderr, `the key of codex cannot be ${past} at the gateway: `);
        t.match(stderr, why);
        t.match(
          stderr,
          `nothing was changed. by hand: ${action} the key in the gateway's console, and type keybearer tools ${verb} codex`,
        );
        t.equal(config(), before);
      }
    }
    t.equal(noLogin.sandbox.keyStatus(noLogin.own.id), "active");
    const listed = await noLogin.run("keys", "--refresh");
    t.equal(listed.code, 1);
    t.match(
      listed.stdout,
      /^main: its keys cannot be listed: the console has no login yet\n {2}→ keybearer mirror login main\n$/,
    );
  },
);

t.test("a key that another tool also has is not disabled or deleted", async (t) => {
  const { sandbox, own, run, config, text } = await start(t, { other: "twin" });
  for (const verb of ["disable", "remove"]) {
    const { code, stderr } = await run("tools", verb, "codex", "--at-gateway", "--yes");
    t.equal(code, 1);
    t.match(stderr, /tool other has the same key/);
  }
  t.equal(sandbox.keyStatus(own.id), "active");
  t.equal(config(), text);
});

t.test("at a terminal a question comes first; Enter is yes for disable and no for remove", async (t) => {
  const { sandbox, own, old, home, config, text } = await start(t, { codex: ", keys_elsewhere: true" });
  const remove = atScreen(t, home, ["tools", "remove", "codex", "--at-gateway"]);
  await remove.says(/and\s+delete\s+its\s+key\s+…[\s\S]*\(keys_elsewhere\),[\s\S]*main\? \[y\/N\]/);
  remove.type("\r");
  t.match(await remove.ended, { code: 1, stdout: /nothing was changed/ });
  t.equal(config(), text);
  t.equal(sandbox.keyStatus(own.id), "active");
  const disable = atScreen(t, home, ["tools", "disable", "codex", "--at-gateway"]);
  await disable.says(/disable key …[\s\S]*too\? \[Y\/n\]/);
  disable.type("\r");
  t.equal((await disable.ended).code, 0);
  t.equal(sandbox.keyStatus(own.id), "disabled");
  const unsure = atScreen(t, home, ["keys", "delete", "old laptop"]);
  await unsure.says(/delete key …[\s\S]*for\s+good\? \[y\/N\]/);
  unsure.type("\r");
  t.match(await unsure.ended, { code: 1, stdout: /nothing was changed/ });
  t.equal(sandbox.keyStatus(old.id), "active");
});

t.test("a key is not deleted while the key of a tool cannot be read", async (t) => {
  const { sandbox, old, run } = await start(t, { other: "{ command: [/bin/false] }" });
  const { code, stderr } = await run("keys", "delete", "old laptop", "--yes");
  t.equal(code, 1);
  t.match(stderr, /the key of other cannot be read now, and may be this one → keybearer status/);
  t.equal(sandbox.keyStatus(old.id), "active");
  t.equal((await run("keys", "enable", "old laptop")).code, 0, "enabling it is allowed");
});

longTest(t, "status shows an unfinished change of a key and what it waits for", async (t) => {
  const { sandbox, old, run, under, text } = await start(t, { hasLogin: false, isRetiring: true });
  await until("it was tried", async () =>
    (await under.daemon.status()).key_changes.some(({ next }) => next !== null),
  );
  t.match(await run("status"), {
    code: 0,
    stdout:
      /\n\ncodex: the change of its key is not finished, and is tried again every minute:\s+the console of main has no login yet\n {2}→ keybearer mirror login main\n/,
  });
  t.equal(sandbox.keyStatus(old.id), "active");
  const { email, password } = sandbox.account;
  const login = `{ email: ${email}, password: ${password.reveal()} }`;
  await under.daemon.stop(0);
  await saveConfig(under.home, text.replace(`{ email: ${email} }`, login));
  const again = await startUnderTest(t, null, { home: under.home });
  await until("it is finished", () => sandbox.keyStatus(old.id) === "deleted");
  await until("it is forgotten", async () => (await again.daemon.status()).key_changes.length === 0);
});
