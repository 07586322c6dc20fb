import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { Secret } from "../../src/core/secret.ts";
import { A, B, describeState, EVIL, keyringIn, ONE, script, TWO, want } from "./keyring-under-test.ts";

t.test("every tool gets the key of its source, or the reason why not", async (t) => {
  const { folder, keyring, env } = await keyringIn(t);
  env.MY_KEY = ONE;
  writeFileSync(join(folder, "key"), `${TWO}\n`, { mode: 0o600 });
  const states = await keyring.resolve(
    [
      want("literal", { kind: "literal", secret: new Secret(ONE) }, A),
      want("env", { kind: "env", name: "MY_KEY" }, A),
      want("file", { kind: "file", path: join(folder, "key") }, A),
      want("command", script(folder, "give", `echo ${ONE}`), A),
      want("unset", { kind: "env", name: "NOT_SET" }, A),
      want("failing", script(folder, "fail", `echo "no ${TWO}" >&2; exit 1`), A),
    ],
    Number.POSITIVE_INFINITY,
  );
  for (const tool of ["literal", "env", "command"]) t.equal(describeState(states.get(tool)), `ready ${ONE}`);
  t.equal(describeState(states.get("file")), `ready ${TWO}`);
  t.match(describeState(states.get("unset")), /unavailable the variable NOT_SET is not set/);
  t.match(describeState(states.get("failing")), /unavailable .* failed with exit code 1/);
  t.strictSame(keyring.current(), states);
  t.notMatch(JSON.stringify([...states]), "canary", "printed, no key is in any state");
});

t.test("a command does not get the variables that are withheld from it", async (t) => {
  const { folder, keyring, env } = await keyringIn(t);
  env.OTHER = "hidden-from-commands";
  const source = script(folder, "give", `[ -z "\${OTHER+set}" ] && echo ${ONE}`);
  const states = await keyring.resolve([{ ...want("codex", source, A), withhold: ["OTHER"] }], 5_000);
  t.equal(describeState(states.get("codex")), `ready ${ONE}`);
});

t.test("a thousand keys in config.yaml are ready at once", async (t) => {
  const { keyring } = await keyringIn(t);
  const wants = Array.from({ length: 1_000 }, (_, i) =>
    want(`tool-${i}`, { kind: "literal", secret: new Secret(`sk-a-literal-key-${i}`) }, A),
  );
  const states = await keyring.resolve(wants, 0);
  t.equal(describeState(states.get("tool-999")), "ready sk-a-literal-key-999");
});

t.test("commands run side by side, but never more than sixteen", async (t) => {
  const { folder, keyring } = await keyringIn(t);
  const source = script(
    folder,
    "count",
    `touch "$DIR/run.$1"; ls "$DIR" | grep -c '^run' >> "$DIR/counts"; sleep 0.3; rm "$DIR/run.$1"; echo ${ONE}`,
  );
  const program = source.kind === "command" ? source.argv[0] : "";
  const wants = Array.from({ length: 24 }, (_, i) =>
    want(`tool-${i}`, { kind: "command", argv: [program, String(i)] }, A),
  );
  const warnings: Error[] = [];
  const onWarning = (warning: Error) => warnings.push(warning);
  process.on("warning", onWarning);
  t.teardown(() => process.off("warning", onWarning));
  const states = await keyring.resolve(wants, Number.POSITIVE_INFINITY);
  t.ok([...states.values()].every((state) => state.state === "ready"));
  const counts = readFileSync(join(folder, "counts"), "utf8").trim().split("\n").map(Number);
  t.equal(counts.length, 24);
  t.strictSame(warnings, [], "and node sees no leak in it");
  t.ok(Math.max(...counts) > 1 && Math.max(...counts) <= 16, `at most ${Math.max(...counts)} at once`);
});

t.test("two tools with one command share its run", async (t) => {
  const { folder, keyring } = await keyringIn(t);
  const source = script(folder, "give", `echo ran >> "$DIR/runs"; echo ${ONE}`);
  const states = await keyring.resolve([want("one", source, A), want("two", source, A)], 5_000);
  t.equal(describeState(states.get("one")), `ready ${ONE}`);
  t.equal(describeState(states.get("two")), `ready ${ONE}`);
  t.equal(readFileSync(join(folder, "runs"), "utf8"), "ran\n");
});

t.test("a command added after the first start does not run before it is trusted", async (t) => {
  const { folder, keyring, trust } = await keyringIn(t);
  await keyring.resolve([want("codex", { kind: "literal", secret: new Secret(TWO) }, A)], 5_000);
  await trust.settle();
  const source = script(folder, "new", `touch "$DIR/ran"; echo ${ONE}`);
  const states = await keyring.resolve([want("codex", source, A)], 5_000);
  t.equal(describeState(states.get("codex")), `held no command → ${join(folder, "new")}, for ${A}`);
  t.equal(await keyring.reread("codex"), false);
  t.notOk(existsSync(join(folder, "ran")));

  const granted = await keyring.grant("codex");
  t.match(granted, {
    ok: true,
    granted: /the command that gives codex its key: no command → /,
    problem: null,
  });
  t.equal(granted.ok && describeState(granted.state), `ready ${ONE}`);
  t.ok(existsSync(join(folder, "ran")));
  t.match(readFileSync(join(folder, "pins.json"), "utf8"), join(folder, "new"), "the yes is written down");
});

t.test("a file added after the first start is not read before it is trusted", async (t) => {
  const { folder, keyring, trust } = await keyringIn(t);
  await trust.settle();
  const path = join(folder, "token");
  writeFileSync(path, ONE);
  const states = await keyring.resolve([want("codex", { kind: "file", path }, EVIL)], 5_000);
  t.equal(describeState(states.get("codex")), `held no file → ${path}, for ${EVIL}`);
  t.strictSame([...keyring.secrets()], [], "nothing was read");
});

t.test("a link in keybearer's folder does not give access to a file elsewhere", async (t) => {
  const { folder, keyring, trust } = await keyringIn(t);
  await trust.settle();
  writeFileSync(join(folder, "elsewhere"), ONE);
  const home = join(folder, "home");
  mkdirSync(home);
  symlinkSync(join(folder, "elsewhere"), join(home, "key"));
  const source = { kind: "file", path: join(home, "key") } as const;
  const states = await keyring.resolve([{ ...want("codex", source, EVIL), home: [home] }], 5_000);
  t.match(describeState(states.get("codex")), /unavailable .* link to a place outside keybearer's folder/);
});

t.test("a moved key is held, and trust releases exactly that key", async (t) => {
  const { keyring, trust, env } = await keyringIn(t);
  env.KEY = ONE;
  const source = { kind: "env", name: "KEY" } as const;
  await keyring.resolve([want("codex", source, A)], 5_000);
  await trust.settle();
  const states = await keyring.resolve([want("codex", source, B)], 5_000);
  t.equal(describeState(states.get("codex")), `held ${A} → ${B}`);

  const seen = states.get("codex");
  await keyring.resolve([want("codex", source, EVIL)], 5_000);
  const stale = await keyring.grant("codex", seen?.state === "needs-trust" ? seen : undefined);
  t.match(stale, { ok: false, problem: /changed again in the meantime/ });
  t.equal(describeState(keyring.current().get("codex")), `held ${A} → ${EVIL}`);

  await keyring.resolve([want("codex", source, B)], 5_000);
  const granted = await keyring.grant("codex", seen?.state === "needs-trust" ? seen : undefined);
  t.match(granted, { ok: true, granted: `the key …1111 of codex: ${A} → ${B}` });
  t.equal(describeState(keyring.current().get("codex")), `ready ${ONE}`);
  t.match(await keyring.grant("codex"), { ok: false, problem: /nothing of codex is held/ });
  t.match(await keyring.grant("nobody"), { ok: false, problem: /there is no nobody/ });
});

t.test("a new command that gives a known key needs trust twice", async (t) => {
  const { folder, keyring, trust } = await keyringIn(t);
  await keyring.resolve([want("codex", { kind: "literal", secret: new Secret(ONE) }, A)], 5_000);
  await trust.settle();
  await keyring.resolve([want("codex", script(folder, "give", `echo ${ONE}`), EVIL)], 5_000);
  const granted = await keyring.grant("codex");
  t.equal(granted.ok && describeState(granted.state), `held ${A} → ${EVIL}`);
});

t.test("a tool's key is read again at most once a minute, and once at a time", async (t) => {
  const { folder, keyring, clock } = await keyringIn(t);
  writeFileSync(join(folder, "value"), ONE);
  const source = script(folder, "give", 'echo ran >> "$DIR/runs"; cat "$DIR/value"');
  await keyring.resolve([want("codex", source, A)], 5_000);
  const runs = () => readFileSync(join(folder, "runs"), "utf8").trim().split("\n").length;

  writeFileSync(join(folder, "value"), TWO);
  t.strictSame(await Promise.all([keyring.reread("codex"), keyring.reread("codex")]), [true, true]);
  t.equal(runs(), 2);
  t.equal(describeState(keyring.current().get("codex")), `ready ${TWO}`);

  writeFileSync(join(folder, "value"), ONE);
  clock.pass(59_999);
  t.equal(await keyring.reread("codex"), false);
  t.equal(runs(), 2, "not within the minute");
  clock.pass(1);
  t.equal(await keyring.reread("codex"), true);
  t.equal(runs(), 3);
  clock.pass(60_000);
  t.equal(await keyring.reread("codex"), false, "the same key again is no change");
  t.equal(runs(), 4);
  t.equal(await keyring.reread("nobody"), false);
});

t.test("a source that fails on a second read does not remove the key", async (t) => {
  const { folder, keyring } = await keyringIn(t);
  writeFileSync(join(folder, "value"), ONE);
  await keyring.resolve([want("codex", script(folder, "give", 'cat "$DIR/value"'), A)], 5_000);
  rmSync(join(folder, "value"));
  t.equal(await keyring.reread("codex"), false);
  t.equal(describeState(keyring.current().get("codex")), `ready ${ONE}`);
});

t.test("a tool without a key gets one when its source is read again", async (t) => {
  const { keyring, env } = await keyringIn(t);
  await keyring.resolve([want("codex", { kind: "env", name: "KEY" }, A)], 5_000);
  env.KEY = ONE;
  t.equal(await keyring.reread("codex"), true);
  t.equal(describeState(keyring.current().get("codex")), `ready ${ONE}`);
});

t.test("keys that are held or were just replaced are still redacted", async (t) => {
  const { keyring, trust, env } = await keyringIn(t);
  const revealed = () => [...keyring.secrets()].map((secret) => secret.reveal());
  const source = { kind: "env", name: "KEY" } as const;
  env.KEY = ONE;
  await keyring.resolve([want("codex", source, A)], 5_000);
  await trust.settle();
  await keyring.resolve([want("codex", source, A)], 5_000);
  t.strictSame(revealed(), [ONE], "once, while nothing changes");
  await keyring.resolve([want("codex", source, EVIL)], 5_000);
  t.strictSame(revealed(), [ONE], "held");
  env.KEY = TWO;
  await keyring.resolve([want("codex", source, A)], 5_000);
  t.strictSame(revealed(), [TWO, ONE], "replaced");
  await keyring.resolve([], 5_000);
  t.strictSame(revealed(), [ONE, TWO], "removed");
});

t.test("a key file that others may open is a warning beside a key that works", async (t) => {
  const { folder, keyring } = await keyringIn(t);
  const path = join(folder, "key");
  writeFileSync(path, ONE);
  chmodSync(path, 0o644);
  const states = await keyring.resolve([want("codex", { kind: "file", path }, A)], 5_000);
  t.equal(describeState(states.get("codex")), `ready ${ONE}`);
  t.match(keyring.warnings(), [{ path: "tools.codex.key", message: new RegExp(`chmod 600 ${path}`) }]);
});
