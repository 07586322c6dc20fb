import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { command, newHome, saveConfig, startServing } from "../doubles/command.ts";
import { freshToken } from "../doubles/daemon-under-test.ts";
import { get, newKey, post, startSandbox } from "../sandbox/sandbox-under-test.ts";

t.test(
  "the running daemon uses the new key for the next request, and a stream under way finishes with the old",
  async (t) => {
    const sandbox = await startSandbox(t, { wordDelay: 40 });
    const [old, fresh] = [newKey(sandbox), newKey(sandbox)];
    const { token, hash } = freshToken();
    const home = await newHome(t);
    const file = await saveConfig(
      home,
      `listen: localhost:0\ngateway: ${sandbox.baseUrl}\n# mine\ntools:\n  codex:\n    key: ${old.text} # the first\n    token: ${hash}\n`,
    );
    const { url } = await startServing(t, home);
    const rotate = (input: string, ...more: string[]) =>
      command(t, home, ["tools", "rotate", "codex", "--key-stdin", ...more], { input });

    const first = await rotate(fresh.text, "--store", "file");
    t.equal(first.code, 0, first.stderr);
    const [was, is] = [`…${old.text.slice(-4)}`, `…${fresh.text.slice(-4)}`];
    t.equal(first.stdout, `codex: key ${was} → ${is}, file:~/keys/codex\n`);
    t.match(first.stderr, /uses it from the next request on/);
    t.match(first.stderr, new RegExp(`now delete the old key ${was} in the gateway's console`));
    t.match(
      readFileSync(file, "utf8"),
      /# mine\ntools:\n {2}codex:\n {4}key: file:~\/keys\/codex # the first\n/,
    );

    const body = { model: "sandbox-small", stream: true, messages: [{ role: "user", content: "hello" }] };
    const stream = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const third = newKey(sandbox);
    const second = await rotate(third.text, "--json");
    t.equal(second.code, 0, second.stderr);
    t.match(JSON.parse(second.stdout), {
      old: is,
      new: `…${third.text.slice(-4)}`,
      source: "file:~/keys/codex-2",
      effect: "in force",
    });
    t.same(
      readdirSync(join(home, "keys")),
      ["codex-2"],
      "the old key's file is gone once it is not read any more",
    );
    t.match(await stream.text(), /\[DONE\]/, "the stream is whole");
    t.equal((await post(`${url}/v1/chat/completions`, token, { ...body, stream: false })).status, 200);
    const used = (id: number) => sandbox.usage().filter((row) => row.keyId === id).length;
    t.same([used(fresh.id), used(third.id)], [1, 1]);
    t.equal((await get(`${url}/v1/models`, token)).status, 200);
  },
);

t.test("a key that does not work, or is the same, changes nothing", async (t) => {
  const sandbox = await startSandbox(t);
  const { text: key } = newKey(sandbox);
  const home = await newHome(t);
  const text = `gateway: ${sandbox.baseUrl}\ntools: { codex: { key: ${key} }, b: { key: env:B_KEY }, c: { key: { command: [/bin/echo, x] } } }\n`;
  const file = await saveConfig(home, text);
  const cases: [string[], string, number, RegExp][] = [
    [["codex", "--key-stdin"], key.slice(0, -2), 1, /--no-probe\nnothing was changed/],
    [["codex", "--key-stdin"], key, 1, /that is the key …\w{4} it has already/],
    [["b", "--key-stdin"], key, 1, /comes from env:B_KEY, which keybearer cannot change.*--from env:NAME/s],
    [["b", "--from", "env:B_KEY"], "", 1, /comes from env:B_KEY already/],
    [["nobody", "--key-stdin"], key, 1, /there is no tool nobody in config\.yaml; its tools are codex, b, c/],
  ];
  for (const [args, input, code, words] of cases) {
    const ended = await command(t, home, ["tools", "rotate", ...args], {
      input,
    });
    t.equal(ended.code, code, `${args.join(" ")}: ${ended.stderr}`);
    t.match(ended.stderr, words);
    t.notOk(ended.stderr.includes(key.slice(0, 14)));
    t.equal(readFileSync(file, "utf8"), text);
  }
  t.notOk(existsSync(join(home, "keys")));
});

t.test(
  "without a daemon it holds from the next start on; another variable is named with --from",
  async (t) => {
    const sandbox = await startSandbox(t);
    const [one, two] = [newKey(sandbox), newKey(sandbox)];
    const home = await newHome(t);
    const file = await saveConfig(home, `gateway: ${sandbox.baseUrl}\ntools: { codex: { key: env:ONE } }\n`);
    const env = { ONE: one.text, TWO: two.text };
    const ended = await command(t, home, ["tools", "rotate", "codex", "--from", "env:TWO"], { env });
    t.equal(ended.code, 0, ended.stderr);
    t.equal(ended.stdout, `codex: key …${one.text.slice(-4)} → …${two.text.slice(-4)}, env:TWO\n`);
    t.match(readFileSync(file, "utf8"), /codex: \{ key: env:TWO \}/);
  },
);
