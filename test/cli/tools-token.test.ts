import { createHash } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { dayName } from "../../src/core/units.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { freshToken, serveIn } from "../doubles/daemon-under-test.ts";
import { get, startSandbox } from "../doubles/sandbox.ts";
import { atScreen } from "../doubles/screen.ts";
import { until } from "../doubles/until.ts";

function hashOf(token: string): string {
  return `sha256:${createHash("sha256").update(token).digest("hex")}`;
}

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
  old: { key: env:OLD_KEY, enabled: false }
`;

t.test("a token is printed once, alone, and only its hash is written; every other byte stays", async (t) => {
  const home = await newHome(t);
  for (const tool of ["codex", "old"]) {
    const file = await saveConfig(home, BLOCK);
    const { code, stdout, stderr } = await command(t, home, ["tools", "token", tool]);
    t.equal(code, 0, tool);
    t.match(stdout, /^kb_[A-Za-z0-9_-]+\n$/, "one line, nothing else");
    const token = stdout.trim();
    t.notOk(stderr.includes(token));
    const after = readFileSync(file, "utf8");
    t.notOk(after.includes(token));
    t.equal(after.split(hashOf(token)).length, 2, "the hash is there once");
    const without = after.replace(
      /(\n {4}|, )token: \[\{ name: \w+, hash: sha256:\w+, created: [\d-]+ \}\]/,
      "",
    );
    t.equal(without, BLOCK, "comments, order and spaces are kept to the byte");
    t.equal(statSync(file).mode & 0o777, 0o600);
  }
});

t.test("a new token is added to the others, --replace ends them", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, "gateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n");
  const make = async (...more: string[]) => {
    const made = await command(t, home, ["tools", "token", "codex", ...more]);
    return { hash: hashOf(made.stdout.trim()), stderr: made.stderr };
  };
  const kept = () => readFileSync(file, "utf8");
  const first = await make();
  t.match(first.stderr, /^token codex of codex: shown only now; .* and its other tokens keep working$/m);
  const second = await make("--add");
  t.match(second.stderr, /^token codex-2 of codex/m);
  const third = await make("--name", "laptop");
  for (const { hash } of [first, second, third]) t.ok(kept().includes(hash));
  t.match(kept(), new RegExp(`\\{ name: laptop, hash: ${third.hash}, created: \\d{4}-\\d\\d-\\d\\d \\}`));
  const last = await make("--replace", "--name", "desk");
  t.match(last.stderr, /^token desk of codex: .* and all its other tokens have ended$/m);
  for (const { hash } of [first, second, third]) t.notOk(kept().includes(hash));
  t.ok(kept().includes(last.hash));
  t.equal((await command(t, home, ["check"])).code, 0, "and the file is still good");
});

t.test("tokens are listed by name and ended one by one, older ones without a name, too", async (t) => {
  const home = await newHome(t);
  const old = freshToken().hash;
  const file = await saveConfig(
    home,
    `gateway: http://127.0.0.1:9/v1\ntools:\n  codex:\n    token: ${old} # mine\n    key: env:X\n`,
  );
  const id = old.slice("sha256:".length, "sha256:".length + 8);
  const day = () => dayName(Date.now());
  const before = day();
  await command(t, home, ["tools", "token", "codex", "--name", "laptop"]);
  const after = day();
  const listed = await command(t, home, ["tools", "tokens", "codex"]);
  // The day may end in between.
  const today = readFileSync(file, "utf8").includes(`created: ${before}`) ? before : after;
  t.equal(listed.stdout, `name      created     last use\n${id}  -           -\nlaptop    ${today}  -\n`);
  const json = await command(t, home, ["tools", "tokens", "codex", "--json"]);
  t.same(JSON.parse(json.stdout), [
    { name: id, created: null, last_use: null },
    { name: "laptop", created: today, last_use: null },
  ]);
  const taken = await command(t, home, ["tools", "token", "codex", "--name", "laptop"]);
  t.match(taken, {
    code: 1,
    stdout: "",
    stderr: /already has a token called laptop.*keybearer tools revoke codex laptop/,
  });
  const unknown = await command(t, home, ["tools", "revoke", "codex", "desk", "--yes"]);
  t.match(unknown, { code: 1, stderr: `codex has no token called desk; it has ${id}, laptop` });
  t.match(await command(t, home, ["tools", "revoke", "codex", id, "--yes"]), {
    code: 0,
    stdout: `token ${id} of codex has ended\n`,
  });
  t.notOk(readFileSync(file, "utf8").includes(old));
  t.match(await command(t, home, ["tools", "revoke", "codex", "laptop", "--yes"]), {
    code: 0,
    stdout: /has ended\ncodex has no token now → keybearer tools token codex\n/,
  });
  t.equal(readFileSync(file, "utf8"), "gateway: http://127.0.0.1:9/v1\ntools:\n  codex:\n    key: env:X\n");
  const none = await command(t, home, ["tools", "tokens", "codex"]);
  t.equal(none.stdout, "codex has no token → keybearer tools token codex\n");
  for (const name of ["", "a b", "kb\u001b[2J", "x".repeat(41)])
    t.match(await command(t, home, ["tools", "token", "codex", "--name", name]), { code: 2, stdout: "" });
});

t.test("a file that cannot be edited is left alone, and no token is printed", async (t) => {
  const home = await newHome(t);
  const none = await command(t, home, ["tools", "token", "codex"]);
  t.match(none, { code: 1, stdout: "", stderr: /there is no .*config\.yaml → keybearer init/ });
  const bad: [string | Buffer, string, RegExp][] = [
    [BLOCK, "nobody", /there is no tool nobody in config\.yaml; its tools are zed, codex, old/],
    ["tools: { codex: { key: [", "codex", /keybearer check/],
    ["gateway: http://127.0.0.1:9/v1\n", "codex", /no map of tools/],
    [Buffer.from([...Buffer.from("tools: { codex: {} } # "), 0xff, 0xfe, 0x0a]), "codex", /./],
  ];
  for (const [text, tool, words] of bad) {
    const file = await saveConfig(home, "");
    writeFileSync(file, text);
    const { code, stdout, stderr } = await command(t, home, ["tools", "token", tool]);
    t.equal(code, 1, String(text).slice(0, 30));
    t.equal(stdout, "");
    t.match(stderr, words);
    t.notMatch(stderr, /^\s+at /m, "no stack trace");
    t.ok(readFileSync(file).equals(Buffer.from(text)), "not a byte is changed");
  }
});

t.test("a running daemon accepts a new token at once, and the old ones until they are ended", async (t) => {
  const sandbox = await startSandbox(t);
  const { key } = sandbox.createKey({ name: "tools", group: "default" });
  const { token, hash } = freshToken();
  const home = await newHome(t);
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: ${sandbox.baseUrl}\ntools:\n  codex:\n    key: ${key.reveal()}\n    token: "${hash}"\n`,
  );
  const { url, daemon } = await serveIn(t, home);
  const status = async (each: string) => (await get(`${url}/v1/models`, each)).status;
  const made = (await command(t, home, ["tools", "token", "codex", "--name", "laptop"])).stdout.trim();
  t.strictSame([await status(made), await status(token)], [200, 200]);
  const refused = await get(`${url}/v1/models`, freshToken().token);
  t.match(JSON.stringify(refused), /make one for this client: keybearer tools token <tool>/);
  const listed = async () =>
    JSON.parse((await command(t, home, ["tools", "tokens", "codex", "--json"])).stdout).map(
      ({ name, last_use }: { name: string; last_use: number | null }) => [name, last_use !== null],
    );
  const id = hash.slice("sha256:".length, "sha256:".length + 8);
  await until("both uses are written", async () => (await listed()).every((row: unknown[]) => row[1]));
  t.equal((await command(t, home, ["tools", "revoke", "codex", id, "--yes"])).code, 0);
  t.strictSame([await status(made), await status(token)], [200, 401]);
  const revoked =
    /was revoked, \d{4}-\d\d-\d\d \d\d:\d\d\. make another one for this client: keybearer tools token/;
  t.match(JSON.stringify(await get(`${url}/v1/models`, token)), revoked);
  await daemon.stop();
  t.strictSame(await listed(), [["laptop", true]], "and it is known after the daemon has ended");
  const again = (await command(t, home, ["tools", "token", "codex", "--replace"])).stdout.trim();
  const next = await serveIn(t, home);
  t.equal((await get(`${next.url}/v1/models`, again)).status, 200);
  t.equal((await get(`${next.url}/v1/models`, made)).status, 401);
  t.match(JSON.stringify(await get(`${next.url}/v1/models`, token)), revoked, "after a restart, too");
  t.match(JSON.stringify(await get(`${next.url}/v1/models`, made)), revoked, "revoked while it was stopped");
  await next.daemon.stop();
  const kept = readFileSync(join(home, "state/token-uses.json"), "utf8");
  for (const each of [token, made, again]) t.notOk(kept.includes(each), "only hashes are kept");
  t.equal(kept.match(/revoked_at/g)?.length, 2);
});

t.test("a token is revoked once the person agrees; without a terminal, only with --yes", async (t) => {
  const home = await newHome(t);
  const text = `gateway: http://127.0.0.1:9/v1\ntools:\n  codex:\n    token: "${hashOf("kb_x")}"\n`;
  const file = await saveConfig(home, text);
  const id = hashOf("kb_x").slice("sha256:".length, "sha256:".length + 8);
  const revoke = ["tools", "revoke", "codex", id];
  t.match(await command(t, home, revoke), {
    code: 2,
    stderr: `there is no terminal to ask at. if you are sure: keybearer ${revoke.join(" ")} --yes`,
  });
  t.equal(readFileSync(file, "utf8"), text);
  const typed = async (text: string) => {
    const person = atScreen(t, home, revoke);
    await person.says(/revoke token \w+ of codex\? \[y\/N\]/);
    person.type(text);
    return person.ended;
  };
  t.match(await typed("\r"), { code: 1, stdout: /not revoked; nothing changed/ });
  t.equal(readFileSync(file, "utf8"), text);
  t.match(await typed("y\r"), { code: 0, stdout: `token ${id} of codex has ended` });
  t.notOk(readFileSync(file, "utf8").includes("sha256:"));
});
